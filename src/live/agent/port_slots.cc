#include "live/agent/port_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/quoted.h"

namespace tulle::live {
namespace {

using namespace std::chrono_literals;

constexpr auto recovery_time = 2s;  // processes look for a new agent every 200 ms
constexpr auto port_retry_time = 20ms;

// Copies as much of a text as there is room for, without a part of a UTF-8 character at its end.
template <std::size_t n>
void assign(std::array<char, n>& to, const std::string& from) {
  std::size_t bytes = std::min(from.size(), n - 1);
  const auto continues = [&](std::size_t at) {
    return (static_cast<unsigned char>(from[at]) & 0xC0) == 0x80;
  };
  if (bytes < from.size()) {
    while (bytes > 0 && continues(bytes)) --bytes;
  }
  to = {};
  std::copy_n(from.data(), bytes, to.data());
}

}  // namespace

Result<void> PortSlots::open() {
  auto group = SocketGroup::create(port_);
  if (group) {
    group_.emplace(std::move(*group));
    recovering_until_.reset();
    return {};
  }
  if (group.error().error_number != EADDRINUSE) return group.error();
  const auto now = Clock::now();
  if (!recovering_until_) recovering_until_ = now + recovery_time;
  if (now >= *recovering_until_) {
    return Error{fmt::format("UDP port {} is in use by another program (`ss -ulpn sport = {}` may "
                             "show it)",
                             port_, port_),
                 EADDRINUSE};
  }
  retry_at_ = now + port_retry_time;
  return {};
}

Result<void> PortSlots::recover(UniqueFd vault) {
  auto group = SocketGroup::recover(std::move(vault));
  if (!group) return group.error();
  if (group->port() != port_) return Error{"those sockets' port is another", EINVAL};
  group_.emplace(std::move(*group));
  recovering_until_.reset();
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    if (!group_->is_locked(slot)) group_->close_gate(slot);
  }
  return {};
}

Result<UniqueFd> PortSlots::take(Session& session) {
  for (std::uint32_t i = 0; i < slots - 1; ++i) {
    const std::uint32_t slot = next_slot_;
    next_slot_ = next_slot_ + 1 == slots ? agent_slot + 1 : next_slot_ + 1;
    SlotRecord& record = group_->record(slot);
    const std::uint32_t turn = (record.turn + 1) % turns_per_slot;
    const QpNumbers numbers{first_qp_of(slot, turn), qps_per_process};
    UniqueFd lock = group_->lock(slot, numbers);
    if (!lock) continue;
    record.turn = turn;
    record.first_qp = numbers.first;
    record.pid = session.peer.pid;
    record.uid = session.peer.uid;
    assign(record.command, session.hello.command);
    assign(record.device, one_line(session.hello.device.name));
    session.slot = slot;
    return lock;
  }
  return Error{fmt::format("all {} places for processes of this host are taken", slots - 1),
               EUSERS};
}

ProcessStatus PortSlots::status_of(const Session& session) {
  const SlotRecord& record = group_->record(session.slot);
  ProcessStatus status;
  status.pid = record.pid;
  status.uid = record.uid;
  status.command = std::string(record.command.data(), strnlen(record.command.data(), 31));
  status.device = std::string(record.device.data(), strnlen(record.device.data(), 31));
  status.slot = session.slot;
  status.first_qp = record.first_qp;
  status.qp_count = qps_per_process;
  status.connected = session.state == Session::State::process;
  status.counters = session.counters.read();
  status.refusal = session.counters.read_refusal();
  return status;
}

}  // namespace tulle::live
