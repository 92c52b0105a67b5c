#pragma once

// The settings of a picture of a scenario's results: the table [picture].

#include <cstdint>
#include <string>
#include <vector>

namespace tulle::report {

struct PictureSettings {
  enum class Kind : std::uint8_t {
    bars,       // a figure of each variant
    cdf,        // the share of flows for which a figure is no more than x
    by_size,    // a figure of flows by their size
    progress,   // the share of flows that are done by a time
    over_time,  // the rate of a link, or the queue before it
  };
  enum class Scale : std::uint8_t { automatic, linear, logarithmic };

  Kind kind = Kind::bars;
  // The figure's name. For cdf it is one of flows alone, such as fct_us.
  std::string show = "fct_us.p99";
  std::string label;               // label of the figure's axis; if empty, it follows from the name
  Scale scale = Scale::automatic;  // scale of that axis
  std::vector<std::string> variants;  // variants to show; empty means all

  struct Range {
    std::uint32_t first = 0, last = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
  std::vector<Range> flows;       // flows to show; empty means all
  std::vector<std::string> link;  // over_time: from one node to another, named as in links.csv
  std::string file;               // file that it was read from, for errors
};

}  // namespace tulle::report
