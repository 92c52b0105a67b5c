#include "sim/synchronizer.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "fabric/routing.h"
#include "fabric/topology.h"
#include "sim/network.h"

namespace tulle::sim {
namespace {

// A team of threads that sleep while they wait for each other.
class Threads final : public Team {
 public:
  explicit Threads(std::uint32_t size) : size_(size) {}
  std::uint32_t size() const override { return size_; }
  void work(const std::function<void(std::uint32_t)>& function) override {
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < size_; ++i) threads.emplace_back(function, i);
    for (std::thread& thread : threads) thread.join();
  }
  void meet(const std::function<void()>& before_all_go) override {
    std::unique_lock lock(mutex_);
    const std::uint64_t meeting = meetings_;
    if (++here_ < size_) return all_go_.wait(lock, [&] { return meetings_ != meeting; });
    before_all_go();
    here_ = 0;
    ++meetings_;
    all_go_.notify_all();
  }

 private:
  std::uint32_t size_;
  std::mutex mutex_;
  std::condition_variable all_go_;
  std::uint32_t here_ = 0;
  std::uint64_t meetings_ = 0;
};

// Each alarm of a host plans one at another host, and asks something of it, until its token is 0.
class Relay final : public Application {
 public:
  using Seen = std::vector<std::tuple<std::int64_t, std::uint32_t, std::uint32_t>>;

  Relay(const fabric::Topology& topology, const fabric::Routes& routes, Team* team)
      : network_(topology, routes, {}, team), seen(network_.hosts()) {
    for (std::uint32_t host = 0; host < network_.hosts(); ++host) {
      network_.alarm(Time{1 + host % 3}, host, 40 + host);
    }
  }
  bool play(Time until) { return network_.play(until, *this); }
  const Network& network() const { return network_; }

  void handle_completions(Time, std::uint32_t) override {}
  void handle_alarm(Time now, std::uint32_t host, std::uint32_t token) override {
    seen[host].emplace_back(now.ps, token, 0);
    if (token == 0) return;
    const std::uint32_t next = (host * 5 + token) % network_.hosts();
    network_.request(next, token, host, *this);
    network_.alarm(now + network_.lookahead() + Time{token}, next, token - 1);
  }
  void meet_request(std::uint32_t host, std::uint32_t token, std::uint32_t note) override {
    asked[host] += token * 100 + note;
  }
  bool accepts_alarm(std::uint32_t, std::uint32_t) const override { return true; }
  bool accepts_request(std::uint32_t, std::uint32_t, std::uint32_t) const override { return true; }
  bool goes_on() override { return true; }

 private:
  Network network_;

 public:
  std::vector<Seen> seen;                                                      // by host
  std::vector<std::uint32_t> asked = std::vector<std::uint32_t>(seen.size());  // by host
};

class SynchronizerTest : public testing::Test {
 protected:
  fabric::Topology topology = *fabric::leaf_spine({.leaves = 4, .spines = 2, .hosts_per_leaf = 2});
  fabric::Routes routes = *fabric::compute_routes(topology, {});
};

TEST_F(SynchronizerTest, ThreadsSeeWhatOneThreadSees) {
  Relay alone(topology, routes, nullptr);
  EXPECT_TRUE(alone.play(Time::never()));
  for (const std::uint32_t size : {2u, 4u}) {
    Threads threads(size);
    Relay relay(topology, routes, &threads);
    ASSERT_EQ(relay.network().threads(), size);
    EXPECT_TRUE(relay.play(Time::never()));
    EXPECT_EQ(relay.seen, alone.seen) << size;
    EXPECT_EQ(relay.asked, alone.asked) << size;
    EXPECT_EQ(relay.network().events(), alone.network().events()) << size;
    EXPECT_TRUE(relay.network().next_event().is_never());
  }
}

TEST_F(SynchronizerTest, ARoundMayBeCut) {
  Relay alone(topology, routes, nullptr);
  Threads threads(2);
  Relay relay(topology, routes, &threads);
  for (std::int64_t i = 1; i < 40; ++i) {
    const Time until{alone.network().lookahead().ps * i / 3};
    EXPECT_TRUE(alone.play(until));
    EXPECT_TRUE(relay.play(until));
    ASSERT_EQ(relay.seen, alone.seen) << i;
    ASSERT_EQ(relay.network().next_event(), alone.network().next_event()) << i;
  }
}

}  // namespace
}  // namespace tulle::sim
