#pragma once

// The lane of a port for management, as InfiniBand's VL15 (IBTA 7.9): its messages go before all
// frames, and no flow control holds them back. The messages of all ports of a network share a pool.

#include <cstdint>
#include <vector>

namespace tulle::port {

// The messages that wait at one port: places in a pool, the first and the last.
struct ManagementLane {
  static constexpr std::uint32_t none = 0xFFFF'FFFF;

  std::uint32_t first = none;
  std::uint32_t last = none;

  bool empty() const { return first == none; }
};

// No memory is allocated once there are as many places as messages were ever under way.
template <typename Message>
class ManagementPool {
 public:
  static constexpr std::uint32_t none = ManagementLane::none;

  std::uint32_t take(const Message& message) {
    if (free_ == none) {
      free_ = static_cast<std::uint32_t>(places_.size());
      places_.emplace_back();
    }
    const std::uint32_t place = free_;
    free_ = places_[place].next;
    places_[place] = {message, none};
    return place;
  }
  void give(std::uint32_t place) {
    places_[place].next = free_;
    free_ = place;
  }
  const Message& operator[](std::uint32_t place) const { return places_[place].message; }

  void push(ManagementLane& lane, std::uint32_t place) {
    places_[place].next = none;
    (lane.empty() ? lane.first : places_[lane.last].next) = place;
    lane.last = place;
  }
  // Removes the first message that waits in a lane. Returns none if there is none.
  std::uint32_t pop(ManagementLane& lane) {
    const std::uint32_t place = lane.first;
    if (place != none) lane.first = places_[place].next;
    return place;
  }

 private:
  struct Place {
    Message message;
    std::uint32_t next = none;
  };
  std::vector<Place> places_;
  std::uint32_t free_ = none;
};

}  // namespace tulle::port
