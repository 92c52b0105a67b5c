#pragma once

namespace tulle {

// Puts all memory in large pages, where the system has them: a cluster's state is touched all over,
// and looking up a page would cost more than the memory access itself. The C library reads this
// setting when a program starts, so this program starts again. Call this function before anything
// else is done.
void take_large_pages();

}  // namespace tulle
