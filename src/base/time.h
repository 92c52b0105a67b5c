#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace tulle {

// A point in time or a span of time, in picoseconds: 64 bytes at 800 Gb/s last 640 ps, and int64
// holds 106 days. Time is an argument everywhere below the drivers, where nothing reads a clock.
struct Time {
  std::int64_t ps = 0;

  static constexpr Time zero() { return {0}; }
  static constexpr Time never() { return {std::numeric_limits<std::int64_t>::max()}; }
  static constexpr Time picoseconds(std::int64_t n) { return {n}; }
  static constexpr Time nanoseconds(std::int64_t n) { return {n * 1'000}; }
  static constexpr Time microseconds(std::int64_t n) { return {n * 1'000'000}; }
  static constexpr Time milliseconds(std::int64_t n) { return {n * 1'000'000'000}; }
  static constexpr Time seconds(std::int64_t n) { return {n * 1'000'000'000'000}; }

  constexpr bool is_never() const { return ps == never().ps; }
  constexpr std::int64_t to_nanoseconds() const { return ps / 1'000; }
  constexpr std::int64_t to_microseconds() const { return ps / 1'000'000; }
  constexpr double to_seconds() const { return static_cast<double>(ps) * 1e-12; }

  // Returns this point in time by a clock whose zero is `by` later. A point before that zero
  // becomes zero, which means "long ago". Never stays never.
  constexpr Time rebased(Time by) const {
    if (is_never()) return *this;
    return ps > by.ps ? Time{ps - by.ps} : zero();
  }

  constexpr auto operator<=>(const Time&) const = default;  // NOLINT(modernize-use-nullptr)
  constexpr Time operator+(Time other) const { return {ps + other.ps}; }
  constexpr Time operator-(Time other) const { return {ps - other.ps}; }
  constexpr Time operator*(std::int64_t factor) const { return {ps * factor}; }
  constexpr Time& operator+=(Time other) {
    ps += other.ps;
    return *this;
  }
};

// Returns the sum of two durations that are not negative, or never if it is more than a Time holds,
// as the times of many ports together may be.
constexpr Time sum_or_never(Time a, Time b) {
  return a > Time::never() - b ? Time::never() : a + b;
}

// Rebases each of these points in time. A state machine offers a function of this name if it keeps
// points in time and may live longer than Time lasts (live/clock.h).
template <typename... Times>
constexpr void rebase(Time by, Times&... points) {
  ((points = points.rebased(by)), ...);
}

}  // namespace tulle
