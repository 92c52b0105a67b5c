#pragma once

// The folder of -o. Older results in it are replaced, and what is not Tulle's is never mixed with
// them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "os/output_folder.h"
#include "study/monitor.h"

namespace tulle::study {

enum class ResultsOf : std::uint8_t { run, sweep, search, gallery };

// Makes the folder if it does not exist, and checks that files can be made in it and that it is
// empty or has results of the same kind. If they are to be replaced, tells the monitor.
// `scenario` is the one whose results a sweep adds to the folder.
Result<void> prepare_results(const std::string& folder, ResultsOf kind, Monitor& monitor,
                             const std::string& scenario = "");

// Removes the files of an earlier run: its variants may have other names.
void remove_run(const OutputFolder& folder);

// Returns the text of a file that this program may have written, and anybody else may have changed:
// no device, no FIFO and no link, and none of more than results_bytes_max. Nothing if there is no
// such file.
inline constexpr std::size_t results_bytes_max = std::size_t{256} << 20;
std::optional<std::string> read_results_file(const std::string& path);

// Makes the folder if it does not exist, and fails if no files can be made in it.
Result<void> prepare_folder(const std::string& folder);

}  // namespace tulle::study
