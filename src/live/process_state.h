#pragma once

namespace tulle::live {

// Returns true if the process does not run because a signal or a debugger stopped it, or if it is
// gone. A process that waits for a processor, for memory or for anything else is not stopped. A
// process whose state this one may not read counts as stopped.
bool is_stopped(int process);

}  // namespace tulle::live
