#include "courier/courier.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

namespace tulle::courier {

Road::Road() {
  for (UniqueFd& bell : bells_) bell.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

void Road::send(std::size_t to, Parcel parcel) {
  const std::lock_guard lock(mutex_);
  parcels_[to].push_back(std::move(parcel));
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(bells_[to].get(), &one, sizeof one);
}

std::deque<Road::Parcel> Road::take(std::size_t end, std::size_t most) {
  const std::lock_guard lock(mutex_);
  std::deque<Parcel>& all = parcels_[end];
  std::deque<Parcel> taken;
  while (!all.empty() && taken.size() < most) {
    taken.push_back(std::move(all.front()));
    all.pop_front();
  }
  std::uint64_t count = 0;
  if (all.empty()) {
    [[maybe_unused]] const ssize_t was_read = read(bells_[end].get(), &count, sizeof count);
  }
  return taken;
}

live::Link::Offer CourierLink::offer(device::Datagram& datagram, Time) {
  if (!std::holds_alternative<wire::IpUdp>(datagram.path)) return Offer::declined;
  datagram.finish_frame(0);
  Road::Parcel parcel{datagram.ip(), {}};
  const auto append = [&](std::span<const std::byte> piece) {
    parcel.bytes.insert(parcel.bytes.end(), piece.begin(), piece.end());
  };
  append(std::span(datagram.frame.head).first(datagram.frame.head_bytes));
  for (std::size_t i = 0; i < datagram.piece_count; ++i) append(datagram.pieces[i]);
  append(std::span(datagram.frame.tail).first(datagram.frame.tail_bytes));
  road_->send(1 - end_, std::move(parcel));
  return Offer::taken;
}

int CourierLink::receive(device::Adapter& adapter, Time now) {
  const auto parcels = road_->take(end_, received_max);
  for (const Road::Parcel& parcel : parcels) {
    live::survive([&] { adapter.handle_datagram(now, parcel.ip, false, parcel.bytes); });
  }
  return static_cast<int>(parcels.size());
}

}  // namespace tulle::courier
