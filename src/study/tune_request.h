#pragma once

// A search as a person asks for it, in words. The settings of one are the same, understood
// (study/tune.h).

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "study/scenario/workloads.h"
#include "study/tune.h"

namespace tulle::study {

struct TuneRequest {
  std::vector<std::string> knobs;       // "KEY=LEAST..MOST" or "KEY=VALUE,VALUE"
  std::vector<std::string> knob_files;  // or names of those that come with Tulle
  std::string minimize, maximize;       // the objective, a figure; one of them is empty
  std::vector<std::string> limits;      // "FIGURE<=NUMBER"
  std::string seeds = "1..2", validation_seeds = "101..105";
  std::size_t budget = 100;  // settings to try
};

// Reads the request. The error is one line, which spells members as the caller's users know them:
// files are "knobs", and each of the knobs is a "knob".
Result<TuneSettings> tune_settings(const TuneRequest& request, const scenario::Spelling& spell);

}  // namespace tulle::study
