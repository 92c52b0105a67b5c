/* Files whose content is the value of an attribute at the moment they are opened. */

#ifndef TULLE_SHIM_PATHS_RECIPES_H
#define TULLE_SHIM_PATHS_RECIPES_H

#include <stdbool.h>
#include <sys/types.h>

/* Returns the descriptor that a program is to read in place of `file`, which was opened just now.
   If `file` is a recipe (tree.cc makes them), that is a file with the text that the recipe leads
   to, and `file` is closed. Otherwise it is `file` itself. Where a kernel would fail to read the
   attribute, reading the descriptor fails with EINVAL. Recipes are on the tree's `device`. Files on
   other devices are not examined, because reading a kernel's own attribute may have effects. Nor
   are files that are not below `tree`, a path without links: a user who wrote one there would
   decide what the program sees, and where it connects. `tree` is null for a file that was opened
   by a path of the tree. */
__attribute__((visibility("hidden"))) int tulle_text_instead_of(int file, dev_t device,
                                                                const char* tree);

/* Returns true if that function would return another descriptor than `file`, which has no copy and
   stays where it is. */
__attribute__((visibility("hidden"))) bool tulle_is_recipe(int file, dev_t device,
                                                           const char* tree);

#endif
