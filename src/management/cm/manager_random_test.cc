// Runs two managers in virtual time over a network that loses, duplicates, delays and reorders
// messages. Whatever the network does short of cutting the two apart, each connection is
// established on both sides or both are told why not. No program gets an event twice, and nothing
// is left at the end.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/random.h"
#include "management/cm/manager.h"

namespace tulle::management::cm {
namespace {

using Kind = Event::Kind;
using wire::cm::Reason;

constexpr std::uint64_t service = 0x1'0106'0001;
constexpr int connections = 30;

struct Weather {
  double loss = 0;
  double doubling = 0;
  Time delay_max;
};

// A program's knowledge of one of its connections.
struct Known {
  std::multiset<Kind> events;
  bool is_active = false;
  bool is_established = false;
  bool is_over = false;  // an event said that it failed or ended
  bool has_released = false;
  // The test's number of the connection. It travels in the private data, so that both sides'
  // records can be matched.
  std::uint32_t number = 0;
};

class World {
 public:
  // With `moves_clocks`, the managers' clocks move their zero again and again (Manager::rebase).
  World(std::uint64_t seed, const Weather& weather, bool moves_clocks = false)
      : random_(seed), weather_(weather), moves_clocks_(moves_clocks) {
    for (unsigned i = 0; i < 2; ++i) {
      Manager::Settings settings;
      settings.ca_guid = 1 + i;
      settings.random = RandomSource{seed + i};
      settings.retries_max = 15;
      managers_.emplace_back(settings);
      managers_[i].listen(Time::zero(), service);
    }
  }

  void run() {
    for (int i = 0; i < connections; ++i) {
      at(Time::milliseconds(static_cast<std::int64_t>(random_.below(20'000))),
         [this, i] { connect(static_cast<std::uint32_t>(i)); });
    }
    // Servers now and then take their listener down, and usually put it up again.
    for (unsigned i = 0; i < 2; ++i) {
      for (int times = 0; times < 5; ++times) at(soon() * 700, [this, i] { pause(i); });
    }
    while (step()) {
    }
  }

  Manager& manager(unsigned i) { return managers_[i]; }
  // The messages that were sent, with their times.
  const std::vector<std::pair<Time, std::vector<std::byte>>>& messages() const { return messages_; }
  const std::map<std::uint32_t, Known>& known(unsigned i) const { return known_[i]; }

 private:
  static Gid address(unsigned i) { return Gid::from_ipv4(0x0A00'0001 + i); }

  void at(Time when, std::function<void()> what) { due_.emplace(now_ + when, std::move(what)); }
  Time soon() { return Time::milliseconds(static_cast<std::int64_t>(random_.below(30))); }

  bool step() {
    Time next = due_.empty() ? Time::never() : due_.begin()->first;
    for (unsigned i = 0; i < 2; ++i) {
      const Time due = managers_[i].next_deadline();
      if (!due.is_never()) next = std::min(next, due - clocks_ahead + behind_[i]);
    }
    if (next.is_never()) return false;
    now_ = next;
    while (!due_.empty() && due_.begin()->first <= now_) {
      const auto what = std::move(due_.begin()->second);
      due_.erase(due_.begin());
      what();
    }
    for (unsigned i = 0; i < 2; ++i) {
      if (moves_clocks_) {
        managers_[i].rebase(now_ - behind_[i]);
        behind_[i] = now_;
      }
      managers_[i].advance(clock(i));
      while (const auto event = managers_[i].pull_event()) handle(i, *event);
      while (const Outgoing* out = managers_[i].next_outgoing()) {
        carry(1 - i, *out);
        managers_[i].pop_outgoing();
      }
    }
    return true;
  }

  void carry(unsigned to, const Outgoing& out) {
    messages_.emplace_back(now_, std::vector(out.bytes.begin(), out.bytes.end()));
    const int copies = random_.chance(weather_.doubling) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      if (random_.chance(weather_.loss)) continue;
      const auto delay = Time::picoseconds(static_cast<std::int64_t>(
          random_.below(static_cast<std::uint64_t>(weather_.delay_max.ps))));
      at(delay, [this, to, out] {
        managers_[to].handle(clock(to), {out.route.remote, out.route.local, 0}, out.bytes);
      });
    }
  }

  void connect(std::uint32_t number) {
    const auto from = static_cast<unsigned>(random_.below(2));
    Request request;
    request.route = {address(from), address(1 - from), 0};
    request.service_id = service;
    request.qp = QpNumber{0x100 + number};
    request.path_mtu = 3;
    request.packet_lifetime = 16;
    request.ack_timeout = 17;
    request.private_data = PrivateData(std::as_bytes(std::span(&number, 1)));
    const ConnectionId id = managers_[from].connect(clock(from), request);
    Known& known = known_[from][id.value];
    known.is_active = true;
    known.number = number;
    if (random_.chance(0.1)) at(soon() * 100, [this, from, id] { release(from, id); });
  }

  void release(unsigned i, ConnectionId id) {
    managers_[i].release(clock(i), id);
    known_[i][id.value].has_released = true;
  }

  void handle(unsigned i, const Event& event) {
    Known& known = known_[i][event.id.value];
    EXPECT_FALSE(known.has_released) << "told of what it had let go";
    known.events.insert(event.kind);
    EXPECT_EQ(known.events.count(event.kind), 1u) << static_cast<int>(event.kind);
    EXPECT_FALSE(known.is_over) << "told after the end";
    switch (event.kind) {
      case Kind::request:
        std::memcpy(&known.number, event.request.private_data.bytes.data(), sizeof(known.number));
        return at(slowly(), [this, i, id = event.id] { decide(i, id); });
      case Kind::reply:
        return at(slowly(), [this, i, id = event.id] { confirm(i, id); });
      case Kind::established:
        known.is_established = true;
        return at(soon() * 1000, [this, i, id = event.id] { leave(i, id); });
      case Kind::disconnect_request:
        return at(soon(), [this, i, id = event.id] { leave(i, id); });
      case Kind::disconnected:
        return;
      case Kind::rejected:
      case Kind::unreachable:
      case Kind::time_wait_over:
        known.is_over = true;
        return;
      default:
        ADD_FAILURE() << "no connection's event";
    }
  }

  void pause(unsigned i) {
    if (!std::exchange(is_listening_[i], false)) return;
    managers_[i].stop_listening(service);
    managers_[i].expect_listener(clock(i), service);
    at(random_.chance(0.2) ? Time::seconds(2) : soon() * 10, [this, i] {
      is_listening_[i] = true;
      managers_[i].listen(clock(i), service);
    });
  }

  // Returns a delay after which a program answers, now and then longer than the peer waits.
  Time slowly() { return random_.chance(0.1) ? Time::seconds(12) : soon(); }

  void decide(unsigned i, ConnectionId id) {
    if (known_[i][id.value].has_released || known_[i][id.value].is_over) return;
    if (random_.chance(0.1)) return release(i, id);
    if (random_.chance(0.1)) {
      managers_[i].reject(clock(i), id, Reason::consumer, {});
      known_[i][id.value].has_released = true;
      return;
    }
    Reply reply;
    reply.qp = QpNumber{0x1000 + known_[i][id.value].number};
    managers_[i].accept(clock(i), id, reply);
  }

  void confirm(unsigned i, ConnectionId id) {
    Known& known = known_[i][id.value];
    if (known.has_released || known.is_over) return;
    if (random_.chance(0.1)) return release(i, id);
    known.is_established = managers_[i].establish(clock(i), id, {});
    at(soon() * 1000, [this, i, id] { leave(i, id); });
  }

  void leave(unsigned i, ConnectionId id) {
    Known& known = known_[i][id.value];
    if (known.has_released || known.is_over) return;
    if (random_.chance(0.3)) return release(i, id);
    managers_[i].disconnect(clock(i), id, {});
  }

  // Returns what a manager's clock shows. Nothing here lasts as long as it is ahead.
  Time clock(unsigned i) const { return now_ + clocks_ahead - behind_[i]; }
  static constexpr Time clocks_ahead = Time::seconds(10'000);

  Random random_;
  Weather weather_;
  bool moves_clocks_;
  Time now_ = Time::seconds(1);
  Time behind_[2];
  std::vector<std::pair<Time, std::vector<std::byte>>> messages_;
  std::vector<Manager> managers_;
  bool is_listening_[2] = {true, true};
  std::multimap<Time, std::function<void()>> due_;
  std::map<std::uint32_t, Known> known_[2];
};

void check(World& world) {
  // Checks that nothing is left, and that each program was told how its connections ended.
  for (unsigned i = 0; i < 2; ++i) {
    Manager& manager = world.manager(i);
    EXPECT_EQ(manager.connection_count(), 0u);
    EXPECT_EQ(manager.index_size(), 0u);
    EXPECT_TRUE(manager.next_deadline().is_never());
    EXPECT_EQ(manager.next_outgoing(), nullptr);
    EXPECT_EQ(manager.counters().malformed, 0u);
    for (const auto& [id, known] : world.known(i)) {
      EXPECT_TRUE(known.is_over || known.has_released) << "left in the dark: " << known.number;
    }
    std::map<std::uint32_t, int> requests;  // late copies must not look like new requests
    for (const auto& [id, known] : world.known(i)) {
      if (!known.is_active) ++requests[known.number];
    }
    for (const auto& [number, count] : requests) EXPECT_EQ(count, 1) << number;
  }
  // If the active side is established, the accepting side must be established, told of the end, or
  // released.
  for (unsigned i = 0; i < 2; ++i) {
    for (const auto& [id, known] : world.known(i)) {
      if (!known.is_active || !known.is_established) continue;
      bool is_heard_of = false;
      for (const auto& [other_id, other] : world.known(1 - i)) {
        is_heard_of |= other.number == known.number && !other.is_active &&
                       (other.is_established || other.is_over || other.has_released);
      }
      EXPECT_TRUE(is_heard_of) << known.number;
    }
  }
}

TEST(ManagerRandomTest, BothSidesKnowHowItEnds) {
  const char* only = std::getenv("TULLE_SEED");
  const std::uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  const char* many = std::getenv("TULLE_SEEDS");
  const std::uint64_t count = many != nullptr   ? std::strtoull(many, nullptr, 10)
                              : only != nullptr ? 1
                                                : 400;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(testing::Message() << "TULLE_SEED=" << seed);
    Random random(seed * 7919);
    const Weather weather{random.unit() * 0.4, random.unit() * 0.5,
                          Time::milliseconds(1 + static_cast<std::int64_t>(random.below(250)))};
    World world(seed, weather);
    world.run();
    check(world);
    if (testing::Test::HasFailure()) break;
  }
}

TEST(ManagerRandomTest, AClockThatMovesItsZeroChangesNothing) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const Weather weather{0.1, 0.1, Time::milliseconds(100)};
    World steady(seed, weather), moved(seed, weather, true);
    steady.run();
    moved.run();
    EXPECT_EQ(steady.messages(), moved.messages());
    check(moved);
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace tulle::management::cm
