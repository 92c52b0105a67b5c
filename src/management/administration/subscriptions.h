#pragma once

// Subscriptions to notices (IBTA 13.4.11, 15.2.5.12): who subscribes to which, and the reports that
// are under way. A report is sent until it is answered, a few times.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/time.h"
#include "management/packet.h"
#include "rdma/wire/sa.h"

namespace tulle::management::administration {

class Subscriptions {
 public:
  static constexpr std::size_t subscriptions_max = 1'024;
  static constexpr std::size_t subscriptions_of_port_max = 128;
  // Reports that wait for their answers, of all ports and of one. Others are dropped and counted:
  // a subscriber that does not answer keeps neither memory nor others' reports.
  static constexpr std::size_t reports_max = 4'096;
  static constexpr std::size_t reports_of_port_max = 1'024;
  static constexpr Time timeout = Time::seconds(1);
  static constexpr int tries_max = 3;

  // Subscribes the sender of a question, or ends its subscription. Returns false if there is no
  // room, or no such subscription. `port` is the GUID of the sender's port, which may have several
  // LIDs.
  bool change(const Packet& question, const wire::InformInfo& info, std::uint64_t port);
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
  void rebase(Time by) {
    for (Waiting& each : waiting_) tulle::rebase(by, each.due);
  }
  void clear() {
    subscriptions_.clear();
    reports_.clear();
    of_port_.clear();
    unsent_.clear();
    waiting_.clear();
  }
  std::size_t size() const { return subscriptions_.size(); }
  std::uint64_t dropped_reports() const { return dropped_reports_; }

 private:
  struct Subscription {
    Lid subscriber;
    std::uint64_t port = 0;
    wire::InformInfo info;
  };
  struct Report {
    Packet packet;
    std::uint64_t port = 0;
    int tries_left = tries_max;
  };
  struct Waiting {
    std::uint64_t transaction = 0;
    Time due;
  };
  using Reports = std::map<std::uint64_t, Report>;  // by transaction ID

  void end(Reports::iterator report);

  std::vector<Subscription> subscriptions_;
  Reports reports_;
  std::map<std::uint64_t, std::size_t> of_port_;  // reports
  // Each report is in one of these. Those that have ended may be here a little longer.
  std::deque<std::uint64_t> unsent_;
  std::deque<Waiting> waiting_;  // by time
  std::uint64_t dropped_reports_ = 0;
  std::uint64_t next_transaction_ = 1;
};

}  // namespace tulle::management::administration
