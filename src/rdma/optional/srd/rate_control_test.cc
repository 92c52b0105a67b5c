#include "rdma/optional/srd/rate_control.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>

namespace tulle::transport::srd {
namespace {

constexpr std::uint32_t frame = 4'180;
constexpr Time delay = Time::microseconds(10);

// A bottleneck behind the rate control. It has a rate, a queue before it, and a delay.
class Loop {
 public:
  explicit Loop(std::int64_t bottleneck) : bottleneck_(bottleneck), control_(settings_) {}

  void run(Time span) {
    const Time end = now_ + span;
    while (now_ < end) {
      while (!flying_.empty() && flying_.front().back_at <= now_) {
        const Flying packet = flying_.front();
        flying_.pop_front();
        in_flight_ -= frame;
        arrived_bytes_ += frame;
        control_.acknowledged(now_, packet.sent_at, now_ - packet.sent_at, frame);
      }
      if (now_ >= line_free_ && control_.may_send(now_, in_flight_, frame)) send();
      control_.handle_deadline(now_);
      now_ += Time::nanoseconds(20);
    }
  }
  std::int64_t arrived() { return static_cast<std::int64_t>(std::exchange(arrived_bytes_, 0)); }
  Time queue() const { return free_at_ > now_ ? free_at_ - now_ : Time::zero(); }
  void set_bottleneck(std::int64_t rate) { bottleneck_ = rate; }
  RateControl& control() { return control_; }
  Time now() const { return now_; }

 private:
  struct Flying {
    Time sent_at, back_at;
  };
  static Time time_of(std::int64_t rate) {
    return Time{static_cast<std::int64_t>(frame * 8e12 / static_cast<double>(rate))};
  }
  void send() {
    line_free_ = now_ + time_of(settings_.line_bits_per_second);
    free_at_ = std::max(free_at_, now_) + time_of(bottleneck_);
    flying_.push_back({now_, free_at_ + delay});
    in_flight_ += frame;
    control_.sent(now_, frame);
  }

  Settings settings_;
  std::int64_t bottleneck_;
  RateControl control_;
  Time now_ = Time::microseconds(1);
  Time line_free_, free_at_;
  std::uint64_t in_flight_ = 0;
  std::uint64_t arrived_bytes_ = 0;
  std::deque<Flying> flying_;
};

constexpr std::int64_t line = 100'000'000'000;

TEST(SrdRateControl, it_starts_with_a_few_packets_and_fills_an_empty_link_in_some_round_trips) {
  Loop loop(line);
  EXPECT_EQ(loop.control().window_bytes(frame), 16u * frame);
  loop.run(Time::microseconds(80));
  loop.arrived();
  loop.run(Time::microseconds(100));
  EXPECT_GT(loop.arrived() * 8, 97 * line / 100 / 10'000);
  EXPECT_EQ(loop.control().bits_per_second(), line);
}

TEST(SrdRateControl, it_takes_what_a_bottleneck_lets_through_and_keeps_its_queue_short) {
  for (const std::int64_t share : {2, 5, 20}) {
    Loop loop(line / share);
    loop.run(Time::milliseconds(1));
    loop.arrived();
    Time longest;
    for (int i = 0; i < 200; ++i) {
      loop.run(Time::microseconds(20));
      longest = std::max(longest, loop.queue());
    }
    const double fair_share = static_cast<double>(line) / static_cast<double>(share);
    const double used = static_cast<double>(loop.arrived()) * 8 / (4e-3 * fair_share);
    EXPECT_GT(used, 0.85) << share;
    // The queue may reach the target, plus what one round adds.
    EXPECT_LT(longest, delay * 2 + Time::nanoseconds(2'500) * share) << share;
  }
}

TEST(SrdRateControl, it_takes_up_again_what_others_leave) {
  Loop loop(line / 20);
  loop.run(Time::milliseconds(1));
  loop.set_bottleneck(line);
  loop.run(Time::microseconds(500));
  EXPECT_EQ(loop.control().bits_per_second(), line);
}

TEST(SrdRateControl, silence_halves_the_rate_and_idleness_begins_anew) {
  Loop loop(line);
  loop.run(Time::microseconds(100));
  loop.control().silent(loop.now());
  EXPECT_EQ(loop.control().bits_per_second(), line / 2);
  EXPECT_TRUE(loop.control().may_send(loop.now() + Time::milliseconds(1), 0, frame));
  EXPECT_EQ(loop.control().bits_per_second(), line);
  EXPECT_EQ(loop.control().window_bytes(frame), 16u * frame);
}

}  // namespace
}  // namespace tulle::transport::srd
