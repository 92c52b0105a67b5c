#pragma once

// The notices on their way from switches to hosts, with a queue for each port where they wait to be
// sent. No memory is allocated once there are as many places as notices were ever under way.

#include <cstdint>
#include <vector>

#include "fabric/endpoint_monitor.h"

namespace tulle::sim {

class Notices {
 public:
  static constexpr std::uint32_t none = 0xFFFF'FFFF;

  explicit Notices(std::size_t ports) : waiting_(ports) {}

  std::uint32_t take(const fabric::EndpointNotice& notice) {
    if (free_ == none) {
      free_ = static_cast<std::uint32_t>(places_.size());
      places_.emplace_back();
    }
    const std::uint32_t place = free_;
    free_ = places_[place].next;
    places_[place] = {notice, none};
    return place;
  }
  void give(std::uint32_t place) {
    places_[place].next = free_;
    free_ = place;
  }
  const fabric::EndpointNotice& operator[](std::uint32_t place) const {
    return places_[place].notice;
  }

  void push(std::size_t port, std::uint32_t place) {
    Queue& queue = waiting_[port];
    places_[place].next = none;
    (queue.first == none ? queue.first : places_[queue.last].next) = place;
    queue.last = place;
  }
  // Removes the first notice that waits at a port. Returns none if there is none.
  std::uint32_t pop(std::size_t port) {
    Queue& queue = waiting_[port];
    const std::uint32_t place = queue.first;
    if (place != none) queue.first = places_[place].next;
    return place;
  }
  bool waits(std::size_t port) const { return waiting_[port].first != none; }

  std::vector<fabric::EndpointMonitor> monitors;  // by host, for the port of its switch
  std::uint64_t told = 0;

 private:
  struct Place {
    fabric::EndpointNotice notice;
    std::uint32_t next = none;
  };
  struct Queue {
    std::uint32_t first = none, last = none;
  };
  std::vector<Place> places_;
  std::uint32_t free_ = none;
  std::vector<Queue> waiting_;  // by port
};

}  // namespace tulle::sim
