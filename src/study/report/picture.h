#pragma once

// Draws a picture of the outcomes of runs.

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "study/report/chart.h"
#include "study/report/outcome.h"
#include "study/report/picture_settings.h"

namespace tulle::report {

// Figures of flows cover the flows that the picture selects. All others are summary.json's.
inline constexpr std::string_view flow_figure_list = "fct_us, slowdown, latency_us or rate_gbps";
bool is_flow_figure(std::string_view name);
// True for what may follow a figure of flows: min, median, p99, max.
bool is_statistic(std::string_view name);
// Splits "fct_us.p99" in two. The second part is empty if there is no point.
std::pair<std::string, std::string> name_and_kind(const std::string& show);

// Draws the chart. The error is one line, as for a scenario's keys.
Result<Chart> draw(const PictureSettings& picture, const Results& results);

}  // namespace tulle::report
