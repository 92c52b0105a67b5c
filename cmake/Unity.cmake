# -DTULLE_UNITY=ON compiles each room's sources in a few large pieces, which takes two fifths of the time, since the
# compiler then reads each header a few times and not once a file. `./dev build` and `./dev fuzz` use it.
# `./dev build --debug` and clang-tidy read each file alone, so that a file which forgets an include is noticed.
option(TULLE_UNITY "Compile each room's sources in a few large pieces" OFF)

if(TULLE_UNITY)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 10)
  # A class that is declared in a header and defined in a .cc file may have members of that file's unnamed namespace. In
  # one large piece the compiler takes the .cc file for another header, and warns.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()
