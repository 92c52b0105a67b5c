/* Files whose content is what an attribute says at the moment they are opened. */

#ifndef TULLE_SHIM_PATHS_RECIPES_H
#define TULLE_SHIM_PATHS_RECIPES_H

#include <sys/types.h>

/* What a program is to read in place of a file that was opened just now: if the file is a recipe
   (tree.cc makes them), one with the text that it leads to, and the file is closed; else the file
   itself. Where a kernel would fail to read the attribute, reading fails (EINVAL). Recipes are on
   the tree's device; no other files are looked into, as reading a kernel's own attribute may have
   effects. */
__attribute__((visibility("hidden"))) int tulle_text_instead_of(int file, dev_t device);

#endif
