#pragma once

// Two ends of a connection and a path between them in virtual time, for tests. The test decides
// what the path does to each segment.

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "rdma/optional/tcp/connection.h"

namespace tulle::transport::tcp::testing {

inline constexpr wire::TcpSequence first_a{0xFFFF'F000};  // wraps soon
inline constexpr wire::TcpSequence first_b{7};

class Pair {
 public:
  // The fate of a segment: how many copies arrive, how late, and whether they are marked.
  struct Fate {
    int copies = 1;
    Time late;
    bool marked = false;
  };
  using Path = std::function<Fate(bool from_a, const Segment& segment, std::uint64_t number)>;

  struct End {
    End(Connection::Kind kind, const Settings& settings, const Endpoints& ends)
        : connection(kind, settings, ends, counters) {}
    Counters counters;
    Connection connection;
    std::vector<Segment> sent;
    std::vector<bool> got;  // which bytes of the peer's stream have come, by offset
    bool reads = true;
    std::uint64_t twice = 0;  // bytes that were reported as arrived more than once
  };

  explicit Pair(const Settings& settings, Connection::Kind kind = Connection::Kind::bytes)
      : a(kind, settings, {1'000, 2'000, first_a, first_b}),
        b(kind, settings, {2'000, 1'000, first_b, first_a}) {}

  // Runs until nothing happens any more, or until the given time.
  void run(Time until) {
    for (;;) {
      transmit(a, true);
      transmit(b, false);
      const Time next = std::min({queue_.empty() ? Time::never() : queue_.top().at,
                                  a.connection.next_deadline(), b.connection.next_deadline()});
      if (next > until || next.is_never()) return;
      now = std::max(now, next);
      a.connection.handle_deadline(now);
      b.connection.handle_deadline(now);
      while (!queue_.empty() && queue_.top().at <= now) {
        const Flying flying = queue_.top();
        queue_.pop();
        deliver(flying.to_a ? a : b, flying.to_a ? b : a, flying);
      }
    }
  }

  Time now;
  Time delay = Time::microseconds(20);
  Time per_segment = Time::microseconds(1);
  Path path = [](bool, const Segment&, std::uint64_t) { return Fate{}; };
  End a, b;

 private:
  struct Flying {
    Time at;
    std::uint64_t number = 0;
    bool to_a = false;
    bool marked = false;
    Segment segment;
    bool operator<(const Flying& other) const {
      return at != other.at ? at > other.at : number > other.number;
    }
  };

  void transmit(End& from, bool is_a) {
    Segment segment;
    while (from.connection.pull_segment(now, segment)) {
      from.sent.push_back(segment);
      Time& free_at = is_a ? free_a_ : free_b_;
      free_at = std::max(now, free_at) + per_segment;
      const Fate fate = path(is_a, segment, ++number_);
      for (int i = 0; i < fate.copies; ++i) {
        queue_.push({free_at + delay + fate.late, number_, !is_a, fate.marked, segment});
      }
    }
  }

  static void deliver(End& to, const End&, const Flying& flying, Time now) {
    const Arrival arrival = to.connection.handle_segment(now, flying.segment.header,
                                                         flying.segment.bytes, flying.marked);
    if (arrival.bytes > 0) {
      const Offset end = arrival.offset + arrival.bytes;
      if (to.got.size() < end) to.got.resize(end);
      for (Offset i = arrival.offset; i < end; ++i) {
        if (to.got[i]) ++to.twice;
        to.got[i] = true;
      }
    }
    if (to.reads) to.connection.consumed(to.connection.in_order());
  }
  void deliver(End& to, const End& from, const Flying& flying) { deliver(to, from, flying, now); }

  std::priority_queue<Flying> queue_;
  std::uint64_t number_ = 0;
  Time free_a_, free_b_;
};

}  // namespace tulle::transport::tcp::testing
