#pragma once

// A link outside src/: it carries the packets of two devices of one process in memory, by a queue
// and an eventfd for each.

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "live/link.h"
#include "live/process/network.h"
#include "os/unique_fd.h"
#include "rdma/wire/ip_udp.h"

namespace tulle::courier {

// What lies between the two ends.
class Road {
 public:
  struct Parcel {
    wire::IpUdp ip;
    std::vector<std::byte> bytes;
  };
  Road();

  void send(std::size_t to, Parcel parcel);
  // Returns the parcels for an end, but not more than so many.
  std::deque<Parcel> take(std::size_t end, std::size_t most);
  // Returns a descriptor that is readable while there are parcels.
  int bell(std::size_t end) const { return bells_[end].get(); }

 private:
  std::mutex mutex_;
  std::array<std::deque<Parcel>, 2> parcels_;
  std::array<UniqueFd, 2> bells_;
};

class CourierLink final : public live::Link {
 public:
  CourierLink(std::shared_ptr<Road> road, std::size_t end) : road_(std::move(road)), end_(end) {}

  Offer offer(device::Datagram& datagram, Time now) override;
  int receive(device::Adapter& adapter, Time now) override;
  int receiving_socket() const override { return road_->bell(end_); }

 private:
  std::shared_ptr<Road> road_;
  std::size_t end_;
};

class CourierNetwork final : public live::Network {
 public:
  CourierNetwork(std::shared_ptr<Road> road, std::size_t end) : road_(std::move(road)), end_(end) {}

  Result<void> open(const live::LinkContext&, live::Links& links) override {
    links.add(std::make_unique<CourierLink>(road_, end_));
    return {};
  }

 private:
  std::shared_ptr<Road> road_;
  std::size_t end_;
};

}  // namespace tulle::courier
