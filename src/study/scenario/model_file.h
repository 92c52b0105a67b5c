#pragma once

// The file of a model: its shape and GPUs, and how it is trained and served.

#include <string>
#include <string_view>

#include "base/result.h"
#include "study/workload/serving.h"
#include "study/workload/training.h"

namespace tulle::scenario {

// Both know the model and its GPUs, and neither its servers.
struct ModelFile {
  workload::TrainingSettings step;
  workload::ServingSettings serving;
};

// Reads a file's text. Profiles of GPUs are in `folder`. The error is one line with the file's path
// and the key's place.
Result<ModelFile> parse_model_file(std::string_view text, const std::string& path,
                                   const std::string& folder);
Result<ModelFile> read_model_file(const std::string& path, const std::string& folder);

}  // namespace tulle::scenario
