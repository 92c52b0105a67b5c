#include "live/path/packets/raw_link.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "os/cancellation.h"

namespace tulle::live {

int RawLink::may_open() {
  if (device_.gids.empty()) return EOPNOTSUPP;
  const std::string& interface = device_.gids[0].interface;
  if (!probed_ || probed_->interface != interface) {
    probed_ = Probed{interface, PacketPort::probe(interface)};
  }
  return probed_->error;
}

int RawLink::open() {
  if (const int error = may_open(); error != 0) return error;
  auto port = PacketPort::open(device_.gids[0].interface);
  if (!port) return port.error().error_number;
  port_ = std::move(*port);
  packets_.set_frame_bytes_max(port_->frame_bytes_max());
  return 0;
}

int RawLink::watch(const device::FlowRule& rule) {
  return port_ == nullptr ? EINVAL : port_->watch(rule);
}

void RawLink::unwatch(const device::FlowRule& rule) { port_->unwatch(rule); }

// Frames that wait hold up no datagrams.
bool RawLink::resume(Time now) {
  const CancellationOff cancellation_off;
  sent_ = port_->transmit(packets_);
  if (sent_ != PacketPort::Sent::all) look_again_ = now + look_again_after;
  return true;
}

Time RawLink::next_deadline() const {
  const bool must_look = sent_ == PacketPort::Sent::queue_is_full || port_->is_waiting();
  return must_look ? look_again_ : Time::never();
}

int RawLink::receive(device::Adapter&, Time now) {
  if (port_->receiving_socket() < 0) return 0;
  const int count = port_->receive(now, packets_);
  if (count > 0) ++counters_.receive_calls;
  if (port_->is_waiting()) look_again_ = now + look_again_after;
  return count < PacketPort::frames_max ? std::min(count, 1) : received_max;
}

void RawLink::rebase(Time by) {
  tulle::rebase(by, look_again_);
  port_->rebase(by);
}

}  // namespace tulle::live
