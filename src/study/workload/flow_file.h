#pragma once

// Flows as a table in text (CSV) with the columns src,dst,bytes,start_ns and, where flows wait for
// others, after.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "study/workload/flows.h"

namespace tulle::workload {

// `text` is the content of a file. `file` is its name for errors, which are one line: "FILE:LINE:
// fault; remedy". Host numbers are below `hosts`. The first line names the columns, in any order:
//   src, dst   host numbers, not the same
//   bytes      at least 1
//   start_ns   0 or more, down to a picosecond: 0.001
//   after      optional: the number of an earlier flow (the first is 0) to wait for, whose dst is
//              this flow's src; empty or -1 for none
// Blank lines and comments (from # to the end of a line) are skipped.
Result<Flows> parse_flows(std::string_view text, std::string_view file, std::uint32_t hosts);

// Writes flows in the same format. The column `after` is present only if some flow waits.
std::string format_flows(const Flows& flows);

}  // namespace tulle::workload
