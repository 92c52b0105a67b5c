# -DTULLE_SANITIZE=address,undefined | thread
set(TULLE_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")
option(TULLE_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
option(TULLE_COVERAGE "Count the lines that run (clang's source-based coverage)" OFF)
option(TULLE_WERROR "Treat warnings as errors" OFF)

if(TULLE_SANITIZE)
  add_compile_options(-fsanitize=${TULLE_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TULLE_SANITIZE})
endif()
if(TULLE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(TULLE_COVERAGE)
  add_compile_options(-fprofile-instr-generate -fcoverage-mapping)
  add_link_options(-fprofile-instr-generate -fcoverage-mapping)
endif()

find_program(MOLD_LINKER mold)
if(MOLD_LINKER)
  add_link_options(-fuse-ld=mold)
endif()
