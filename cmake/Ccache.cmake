# What one clone has compiled, another one need not compile again: folders on command lines become relative, names of
# sources do not have the clone's folder, and ccache accepts compiled headers.
find_program(CCACHE ccache)
if(CCACHE)
  set(ccache_launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_launcher})
  set(CMAKE_C_COMPILER_LAUNCHER ${ccache_launcher})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options(-fpch-preprocess)
  endif()
endif()
# Messages and backtraces name sources from the clone's folder on. `./dev build --debug` keeps whole names for debuggers.
add_compile_options($<$<CONFIG:RelWithDebInfo>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>)
