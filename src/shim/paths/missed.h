/* Says why a program under `tulle run` finds no Tulle device, where nothing else would. */

#ifndef TULLE_SHIM_PATHS_MISSED_H
#define TULLE_SHIM_PATHS_MISSED_H

/* Warns, once in a process, if a libibverbs or librdmacm is loaded that is not Tulle's: another
   LD_LIBRARY_PATH or a DT_RPATH led to it. */
__attribute__((visibility("hidden"))) void tulle_warn_of_other_libraries(void);

#endif
