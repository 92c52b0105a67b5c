#include "live/links.h"

#include <algorithm>

#include "os/cancellation.h"

namespace tulle::live {

void Links::add(Link& link) {
  all_.push_back(&link);
  (link.is_by_memory() ? by_memory_ : by_socket_).push_back(&link);
  if (link.takes_datagrams()) for_datagrams_.push_back(&link);
}

void Links::add_first(Link& link) {
  all_.insert(all_.begin(), &link);
  auto& of_kind = link.is_by_memory() ? by_memory_ : by_socket_;
  of_kind.insert(of_kind.begin(), &link);
  if (link.takes_datagrams()) for_datagrams_.insert(for_datagrams_.begin(), &link);
}

void Links::add(std::unique_ptr<Link> link) {
  add(*link);
  owned_.push_back(std::move(link));
}

// --- sending ---

void Links::transmit(device::Adapter& adapter, Time now) {
  has_more_ = false;
  for (Link* const link : all_) {
    if (!link->resume(now)) return;
  }
  for (int batch = 0; batch < batches_max; ++batch) {
    bool has_more = pull(adapter, now) == Link::batch_max;
    bool waits = false;
    for (Link* const link : for_datagrams_) {
      const Link::Flushed flushed = link->flush(now);
      has_more |= flushed == Link::Flushed::more;
      waits |= flushed == Link::Flushed::waits;
    }
    if (waits || !has_more) return;
  }
  has_more_ = true;
}

// Returns how many datagrams it pulled. Those that links have borrowed stay where they are.
std::size_t Links::pull(device::Adapter& adapter, Time now) {
  std::size_t pulled = 0;
  std::size_t borrowed = 0;
  while (pulled < Link::batch_max && adapter.pull_datagram(now, datagrams_[borrowed])) {
    ++pulled;
    switch (offer(datagrams_[borrowed], now)) {
      case Link::Offer::taken:
        break;
      case Link::Offer::borrowed:
        ++borrowed;
        break;
      case Link::Offer::kept:
        return pulled;
      case Link::Offer::declined:
        ++counters_.send_errors;
        break;
    }
  }
  return pulled;
}

Link::Offer Links::offer(device::Datagram& datagram, Time now) {
  for (Link* const link : for_datagrams_) {
    const Link::Offer offer = link->offer(datagram, now);
    if (offer != Link::Offer::declined) return offer;
  }
  return Link::Offer::declined;
}

Time Links::next_deadline() const {
  Time next = Time::never();
  for (const Link* const link : all_) next = std::min(next, link->next_deadline());
  return next;
}

bool Links::must_continue() const { return std::ranges::any_of(by_memory_, &Link::must_continue); }

// --- receiving ---

int Links::receive_from_memory(device::Adapter& adapter, Time now) {
  int received = 0;
  for (Link* const link : by_memory_) received = std::max(received, link->receive(adapter, now));
  return received;
}

int Links::receive_from_sockets(device::Adapter& adapter, Time now) {
  const CancellationOff cancellation_off;
  int received = 0;
  for (Link* const link : by_socket_) received = std::max(received, link->receive(adapter, now));
  return received;
}

bool Links::is_unfinished() const { return std::ranges::any_of(by_memory_, &Link::is_unfinished); }

void Links::note_ring() {
  for (Link* const link : by_memory_) link->note_ring();
}

void Links::set_polled(bool is_polled) {
  for (Link* const link : by_memory_) link->set_polled(is_polled);
}

std::uint64_t Links::packets_by_memory() const {
  std::uint64_t packets = 0;
  for (const Link* const link : by_memory_) packets += link->packets_by_memory();
  return packets;
}

int Links::waking_socket() const {
  const auto found = std::ranges::find_if(by_socket_, &Link::wakes_sleepers);
  return found == by_socket_.end() ? -1 : (*found)->receiving_socket();
}

// --- addresses and groups ---

int Links::join(const Gid& group) {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const int error = all_[i]->join(group);
    if (error == 0) continue;
    while (i > 0) all_[--i]->leave(group);
    return error;
  }
  return 0;
}

void Links::leave(const Gid& group) {
  for (Link* const link : all_) link->leave(group);
}

std::optional<std::pair<Link*, Link::Neighbour>> Links::unknown_neighbour(
    const DeviceInfo& device, const verbs::AddressVector& to) const {
  for (Link* const link : all_) {
    if (const auto neighbour = link->unknown_neighbour(device, to)) {
      return std::pair(link, *neighbour);
    }
  }
  return {};
}

// --- the rest of a device's life ---

void Links::set_addresses(const DeviceInfo& device) {
  for (Link* const link : all_) link->set_addresses(device);
}
void Links::set_captured(bool is_captured) {
  for (Link* const link : all_) link->set_captured(is_captured);
}
void Links::begin_thread() {
  for (Link* const link : all_) link->begin_thread();
}
void Links::count() {
  for (Link* const link : all_) link->count(counters_);
}
void Links::rebase(Time by) {
  for (Link* const link : all_) link->rebase(by);
}
void Links::lose_network(DeviceInfo& device, int other) {
  for (Link* const link : all_) link->lose_network(device, other);
}
void Links::forget_in_child(int other) {
  for (Link* const link : all_) link->forget_in_child(other);
}

}  // namespace tulle::live
