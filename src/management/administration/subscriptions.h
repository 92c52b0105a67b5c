#pragma once

// Subscriptions to notices (IBTA 13.4.11, 15.2.5.12): who wants to hear of which, and the reports
// that are under way. A report is sent until it is answered, a few times.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "base/time.h"
#include "management/packet.h"
#include "wire/sa.h"

namespace tulle::management::administration {

class Subscriptions {
 public:
  static constexpr std::size_t subscriptions_max = 1'024;
  static constexpr std::size_t subscriptions_of_port_max = 128;
  // Reports that wait for their answers. Others are dropped, as a subscriber that does not answer
  // must not keep memory.
  static constexpr std::size_t reports_max = 1'024;
  static constexpr Time timeout = Time::seconds(1);
  static constexpr int tries_max = 3;

  // Subscribes the sender of a question, or ends its subscription. Returns false if there is no
  // room, or no such subscription. `is_of_port` says whether a LID is one of the sender's port.
  bool change(const Packet& question, const wire::InformInfo& info,
              const std::function<bool(Lid)>& is_of_port);
  // Forgets the subscriptions of LIDs that `keeps` does not hold.
  template <typename Keeps>
  void keep_only(Keeps keeps) {
    std::erase_if(subscriptions_,
                  [&](const Subscription& each) { return !keeps(each.subscriber); });
  }
  // Reports a notice to all who want it.
  void report(Lid own, const wire::ReportedNotice& notice);
  // Takes the answer to a report.
  void receive(const Packet& packet);

  std::optional<Packet> take_packet(Time now);
  Time next_timeout() const;
  void expire(Time now);
  void clear() {
    subscriptions_.clear();
    reports_.clear();
  }
  std::size_t size() const { return subscriptions_.size(); }

 private:
  struct Subscription {
    Lid subscriber;
    wire::InformInfo info;
  };
  struct Report {
    Packet packet;
    Time due;
    int tries_left = tries_max;
    bool is_to_send = true;
  };

  std::vector<Subscription> subscriptions_;
  std::deque<Report> reports_;
  std::uint64_t next_transaction_ = 1;
};

}  // namespace tulle::management::administration
