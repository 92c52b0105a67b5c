#include "management/subnet/trap_sender.h"

#include <algorithm>

namespace tulle::management::subnet {

void TrapSender::raise(Time now, Kind kind, std::uint8_t port, const wire::Notice& notice) {
  Trap& trap = traps_[static_cast<std::size_t>(kind)];
  trap.notice = notice;
  trap.transaction = next_transaction_++;
  trap.port = port;
  trap.sendings_left = sendings_max;
  // The pause since the last sending counts here too, so that a link that flaps cannot flood the
  // manager.
  trap.due = std::max(now, trap.earliest);
}

bool TrapSender::repress(const wire::MadHeader& header) {
  bool is_own = false;
  for (Trap& trap : traps_) {
    if (trap.transaction == 0 || trap.transaction != header.transaction_id) continue;
    trap.due = Time::never();
    is_own = true;
  }
  return is_own;
}

Time TrapSender::next() const {
  return std::min_element(traps_.begin(), traps_.end(),
                          [](const Trap& a, const Trap& b) { return a.due < b.due; })
      ->due;
}

std::optional<std::uint8_t> TrapSender::take(Time now, Answer packet) {
  for (Trap& trap : traps_) {
    if (trap.due.is_never() || trap.due > now) continue;
    trap.earliest = now + pause;
    trap.due = --trap.sendings_left > 0 ? trap.earliest : Time::never();
    wire::MadHeader header;
    header.management_class = wire::subnet_class;
    header.class_version = wire::subnet_class_version;
    header.method = method_trap;
    header.transaction_id = trap.transaction;
    header.attribute_id = wire::attribute_notice;
    std::fill(packet.begin(), packet.end(), std::byte{0});
    put_attribute(header, 0, packet);
    put_attribute(trap.notice, wire::subnet_data_offset, packet);
    return trap.port;
  }
  return std::nullopt;
}

}  // namespace tulle::management::subnet
