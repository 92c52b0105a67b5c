#pragma once

// What a picture is to show of a scenario's results: its table [picture].

#include <cstdint>
#include <string>
#include <vector>

namespace tulle::scenario {

struct PictureSettings {
  enum class Kind : std::uint8_t {
    bars,       // a figure of each variant
    cdf,        // the share of flows for which a figure is no more than x
    by_size,    // a figure of flows by their size
    progress,   // the share of flows that are done by a time
    over_time,  // what a link carries, or what waits before it
  };
  enum class Scale : std::uint8_t { automatic, linear, logarithmic };

  Kind kind = Kind::bars;
  std::string show =
      "fct_us.p99";                // a figure's name; with cdf that of flows' alone, such as fct_us
  std::string label;               // of its axis; empty: follows from its name
  Scale scale = Scale::automatic;  // of that axis
  std::vector<std::string> variants;  // those to show; empty: all

  struct Range {
    std::uint32_t first = 0, last = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
  std::vector<Range> flows;       // those to show; empty: all
  std::vector<std::string> link;  // over_time: from a node to another, as links.csv names them
  std::string file;               // where it was read, for errors
};

}  // namespace tulle::scenario
