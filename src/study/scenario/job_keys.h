#pragma once

// Jobs of GPUs by short names, such as "allreduce:256MiB" and "step:llama-3-8b".

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tulle::scenario {

// The keys of a job that a name abbreviates. All values are text.
struct JobKeys {
  std::string title;
  std::vector<std::pair<std::string_view, std::string>> keys;
};

// The files of named jobs are in these folders.
struct JobFolders {
  std::filesystem::path models;  // MODEL.toml of step:MODEL and serve:MODEL
  std::filesystem::path files;   // models that are named FILE.toml, and traces
  // The paths are whole ones, so that a model's file must be there. Otherwise it is looked up when
  // a scenario is built.
  bool are_whole = false;
};

// Returns the keys for a collective with its bytes, a part of a mixture of experts, a step of a
// training, a model that is served, or a trace. Returns nothing if the text names none of these.
// The error is one line.
Result<std::optional<JobKeys>> keys_of_job(const std::string& workload, const JobFolders& folders);

// Says in a sentence which names there are.
std::string job_names();

}  // namespace tulle::scenario
