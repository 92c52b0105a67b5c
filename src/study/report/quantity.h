#pragma once

// Numbers with units, as people write them in a scenario: "1.5us", "400Gbps", "64KiB".

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"

namespace tulle::report {

// Parses ps, ns, us, ms, s. Returns nothing if the text is not a time, or not in [0, 106 days).
std::optional<Time> parse_time(std::string_view text);
// Parses bps, Kbps, Mbps, Gbps, Tbps: bits a second, in powers of 1000, at least 1.
std::optional<std::int64_t> parse_rate(std::string_view text);
// Parses B; KB, MB, GB, TB in powers of 1000; KiB, MiB, GiB, TiB in powers of 1024.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

inline constexpr std::string_view time_units = "ps, ns, us, ms or s";
inline constexpr std::string_view rate_units = "bps, Kbps, Mbps, Gbps or Tbps";
inline constexpr std::string_view byte_units = "B, KB, MB, GB, KiB, MiB or GiB";

// Format the same quantities for people, with about three digits.
std::string time_text(Time time);
std::string rate_text(double bits_per_second);
std::string bytes_text(double bytes);

}  // namespace tulle::report
