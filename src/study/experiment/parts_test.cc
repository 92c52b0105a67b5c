// A network in several parts, seen from the application.

#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "fabric/routing.h"
#include "fabric/topology.h"
#include "sim/network.h"
#include "study/experiment/threads.h"

namespace tulle::experiment {
namespace {

constexpr std::uint32_t hosts = 4;
constexpr std::uint32_t failing = 99;  // the token of an alarm that throws

// Host 0 has an alarm each microsecond, and each time asks host 3 for something, and sets an alarm
// there.
class Chain : public sim::Application {
 public:
  explicit Chain(sim::Team* team)
      : topology_(*fabric::single_switch({hosts, {100'000'000'000, Time::microseconds(1)}})),
        routes_(*fabric::compute_routes(topology_, {})),
        network(topology_, routes_, {}, team) {}

  void handle_completions(Time, std::uint32_t) override { FAIL() << "no host does anything"; }
  void handle_alarm(Time now, std::uint32_t host, std::uint32_t token) override {
    if (token == failing) throw std::runtime_error("an alarm failed");
    heard[host].push_back({now, token, false});
    if (host != 0) return;
    network.request(3, token, token + 1, *this);
    network.alarm(now + network.lookahead(), 3, token);
    network.alarm(now + Time::microseconds(1), 0, token + 1);
  }
  void meet_request(std::uint32_t host, std::uint32_t token, std::uint32_t note) override {
    EXPECT_EQ(note, token + 1);
    heard[host].push_back({Time::zero(), token, true});
  }
  bool accepts_alarm(std::uint32_t, std::uint32_t) const override { return true; }
  bool accepts_request(std::uint32_t, std::uint32_t, std::uint32_t) const override { return true; }
  bool goes_on() override { return true; }

  struct Heard {
    Time at;
    std::uint32_t token = 0;
    bool is_request = false;
    bool operator==(const Heard&) const = default;
  };
  std::array<std::vector<Heard>, hosts> heard;  // each host has its own

 private:
  fabric::Topology topology_;
  fabric::Routes routes_;

 public:
  sim::Network network;
};

// Some of these moments lie within a round.
void play_in_pieces(Chain& chain) {
  chain.network.alarm(Time::nanoseconds(300), 0, 1);
  for (const std::int64_t until : {1, 250, 299, 300, 301, 5'000, 5'000, 7'777, 20'000}) {
    EXPECT_TRUE(chain.network.play(Time::nanoseconds(until), chain));
  }
}

TEST(Parts, AlarmsAndRequestsCrossAsInOnePart) {
  Chain alone(nullptr);
  play_in_pieces(alone);
  ASSERT_EQ(alone.heard[0].size(), 20u);
  for (const std::uint32_t threads : {2u, 3u, 4u}) {
    Threads team(threads);
    Chain chain(&team);
    EXPECT_EQ(chain.network.threads(), threads);
    play_in_pieces(chain);
    EXPECT_EQ(chain.heard[0], alone.heard[0]);
    EXPECT_EQ(chain.network.events(), alone.network.events());
    // A request is met before what comes after it.
    ASSERT_EQ(chain.heard[3].size(), alone.heard[3].size());
    std::uint32_t asked = 0;
    for (const Chain::Heard& heard : chain.heard[3]) {
      if (heard.is_request) {
        EXPECT_EQ(heard.token, ++asked);
      } else {
        EXPECT_LE(heard.token, asked);
      }
    }
    EXPECT_EQ(asked, 20u);
  }
}

TEST(Parts, AnExceptionOfAnyThreadComesToTheCaller) {
  for (const std::uint32_t threads : {1u, 2u, 4u}) {
    for (std::uint32_t host = 0; host < hosts; ++host) {
      Threads team(threads);
      Chain chain(&team);
      chain.network.alarm(Time::nanoseconds(300), 0, 1);
      chain.network.alarm(Time::microseconds(4), host, failing);
      EXPECT_THROW(chain.network.play(Time::never(), chain), std::runtime_error)
          << threads << " threads, host " << host;
    }
  }
}

}  // namespace
}  // namespace tulle::experiment
