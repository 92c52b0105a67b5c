#include "live/path/packets/roce_v1_link.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "live/message/device_info.h"
#include "os/cancellation.h"

namespace tulle::live {

static_assert(Link::batch_max <= RoceV1Port::packets_max);

Link::Offer RoceV1Link::offer(device::Datagram& datagram, Time) {
  if (!std::holds_alternative<wire::EthernetPath>(datagram.path)) return Offer::declined;
  port_->add(datagram);
  has_added_ = true;
  return Offer::taken;
}

Link::Flushed RoceV1Link::flush(Time now) {
  if (!std::exchange(has_added_, false)) return Flushed::all;
  return send(now) ? Flushed::all : Flushed::waits;
}

// Returns false if frames wait.
bool RoceV1Link::send(Time now) {
  const CancellationOff cancellation_off;
  sent_ = port_->send();
  look_again_ = now + look_again_after;
  return sent_ == RoceV1Port::Sent::all;
}

int RoceV1Link::receive(device::Adapter& adapter, Time now) {
  const int count = port_->receive([&](port::Arrival& arrival, std::span<const std::byte> frame) {
    survive([&] { adapter.handle_frame(now, arrival, frame); });
  });
  if (count > 0) ++counters_.receive_calls;
  return count < RoceV1Port::frames_max ? std::min(count, 1) : received_max;
}

void RoceV1Link::set_addresses(const DeviceInfo& device) { port_->set_addresses(device.gids); }

std::optional<Link::Neighbour> RoceV1Link::unknown_neighbour(const DeviceInfo& device,
                                                             const verbs::AddressVector& to) const {
  if (to.source_gid_index >= device.gids.size()) return {};
  const GidEntry& entry = device.gids[to.source_gid_index];
  const Gid& gid = to.destination.gid;
  if (!entry.is_roce_v1 || gid.is_multicast() || port_->is_own(gid)) return {};
  return Neighbour{entry.interface_index, entry.gid, gid};
}

}  // namespace tulle::live
