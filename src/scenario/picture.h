#pragma once

// Draws a picture of the outcomes of runs.

#include <string>
#include <vector>

#include "base/result.h"
#include "report/chart.h"
#include "scenario/picture_settings.h"
#include "scenario/run.h"
#include "scenario/scenario.h"

namespace tulle::scenario {

class TableReader;

PictureSettings read_picture(TableReader table, const std::vector<Variant>& variants);

// Draws the chart. Figures of flows ("fct_us", "slowdown", "latency_us", "rate_gbps") cover the
// flows that the picture selects; all others are summary.json's. The error is one line, as for a
// scenario's keys.
Result<report::Chart> draw(const Scenario& scenario, const std::vector<Outcome>& outcomes);

}  // namespace tulle::scenario
