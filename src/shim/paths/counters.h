/* Files whose content is a counter's value at the moment they are opened. */

#ifndef TULLE_SHIM_PATHS_COUNTERS_H
#define TULLE_SHIM_PATHS_COUNTERS_H

#include <sys/types.h>

/* What a program is to read in place of a file that was opened just now: if the file is a recipe
   for a counter (tree.cc makes them), one with the counter's value, and the file is closed; else
   the file itself. Recipes are on the tree's device; no other files are looked into, as reading a
   kernel's own attribute may have effects. */
__attribute__((visibility("hidden"))) int tulle_counter_instead_of(int file, dev_t device);

#endif
