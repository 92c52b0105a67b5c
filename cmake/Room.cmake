# tulle_room(NAME DEPENDS <rooms> LIBRARIES <external>)
#
# Makes one static library of a folder. Sources are the folder's *.cc, unit tests its *_test.cc, fuzzers its *_fuzz.cc
# (built with -DTULLE_FUZZ=ON, and with the tests as programs that replay inputs), benchmarks its *_bench.cc. A folder
# within it that has a CMakeLists.txt is another room. A room is linked only to the rooms that it names, so that a wrong
# include fails to link and also fails in tests/layers_test.py.
function(tulle_room name)
  cmake_parse_arguments(ROOM "" "" "DEPENDS;LIBRARIES" ${ARGN})

  file(GLOB_RECURSE all_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  file(GLOB_RECURSE other_rooms CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt)
  foreach(other ${other_rooms})
    get_filename_component(folder ${other} DIRECTORY)
    list(FILTER all_sources EXCLUDE REGEX "^${folder}/")
  endforeach()
  set(sources ${all_sources})
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz|bench)\\.cc$")
  set(tests ${all_sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(fuzzers ${all_sources})
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  set(benchmarks ${all_sources})
  list(FILTER benchmarks INCLUDE REGEX "_bench\\.cc$")

  if(sources)
    add_library(tulle_${name} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(tulle_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(tulle_${name} ${scope} ${PROJECT_SOURCE_DIR}/src)
  foreach(dependency ${ROOM_DEPENDS})
    target_link_libraries(tulle_${name} ${scope} tulle_${dependency})
  endforeach()
  if(ROOM_LIBRARIES)
    target_link_libraries(tulle_${name} ${scope} ${ROOM_LIBRARIES})
  endif()
  if(sources)
    tulle_warnings(tulle_${name})
  endif()

  if(TULLE_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE tulle_${name})
    tulle_googletest(${name}_test ${name})
  endif()

  if(TULLE_FUZZ OR TULLE_TESTS)
    foreach(fuzzer ${fuzzers})
      get_filename_component(program ${fuzzer} NAME_WE)
      if(NOT TULLE_FUZZ)
        string(APPEND program _replay)
      endif()
      add_executable(${program} ${fuzzer})
      target_link_libraries(${program} PRIVATE tulle_${name})
      target_include_directories(${program} PRIVATE ${PROJECT_BINARY_DIR}/generated)
      tulle_warnings(${program})
      if(TULLE_FUZZ)
        target_link_options(${program} PRIVATE -fsanitize=fuzzer)
      else()
        target_link_libraries(${program} PRIVATE fuzz_replay)
        tulle_quick_to_compile(${program})
      endif()
    endforeach()
  endif()

  if(TULLE_TESTS AND benchmarks)
    add_executable(${name}_bench EXCLUDE_FROM_ALL ${benchmarks})
    target_link_libraries(${name}_bench PRIVATE
      tulle_${name} benchmark::benchmark benchmark::benchmark_main)
    tulle_warnings(${name}_bench)
  endif()
endfunction()

# Makes a program of GoogleTest's tests, whose names begin with a prefix and a dot.
function(tulle_googletest target prefix)
  target_link_libraries(${target} PRIVATE GTest::gtest GTest::gtest_main)
  tulle_warnings(${target})
  tulle_quick_to_compile(${target})
  tulle_joined_tests(${target})
  target_include_directories(${target} PRIVATE ${PROJECT_BINARY_DIR}/generated)
  # The first room's tests compile GoogleTest's header for all.
  if(TARGET base_test AND NOT target STREQUAL base_test)
    target_precompile_headers(${target} REUSE_FROM base_test)
  else()
    target_precompile_headers(${target} PRIVATE <gtest/gtest.h>)
  endif()
  gtest_discover_tests(${target} TEST_PREFIX ${prefix}. DISCOVERY_TIMEOUT 60)
endfunction()

# With TULLE_UNITY, compiles a program's tests in pieces of several files: a test alone takes two seconds, mostly for
# headers and for code that all tests have.
function(tulle_joined_tests target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)  # CMake's own pieces would have names twice
  if(NOT TULLE_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(TRANSFORM sources REPLACE "^${CMAKE_CURRENT_SOURCE_DIR}/" "")
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  foreach(test ${tests})
    get_source_file_property(is_alone ${test} SKIP_UNITY_BUILD_INCLUSION)
    if(is_alone)
      list(REMOVE_ITEM tests ${test})
    endif()
  endforeach()
  list(REMOVE_ITEM sources ${tests})
  set(batch 8)
  set(piece 0)
  while(tests)
    list(SUBLIST tests 0 ${batch} files)
    list(REMOVE_ITEM tests ${files})
    list(TRANSFORM files PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
    set(joined ${CMAKE_CURRENT_BINARY_DIR}/${target}_joined/${target}_${piece}.cc)
    add_custom_command(OUTPUT ${joined}
      COMMAND ${CMAKE_COMMAND} -DOUTPUT=${joined} "-DFILES=${files}" -DROOT=${PROJECT_SOURCE_DIR}
        -DFROM=${CMAKE_BINARY_DIR} -P ${PROJECT_SOURCE_DIR}/cmake/JoinTests.cmake
      DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/JoinTests.cmake
      VERBATIM)
    list(APPEND sources ${joined})
    math(EXPR piece "${piece} + 1")
  endwhile()
  set_property(TARGET ${target} PROPERTY SOURCES ${sources})
endfunction()

# A test is compiled in half the time, and spends its own in the room's library. Comes after tulle_warnings().
function(tulle_quick_to_compile target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1 -g1>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # GCC 12 warns of its own std::string (GCC bug 105651) in a precompiled header. GCC 12 and 14 both report a copy of a
    # vector as out of bounds. With a sanitizer, GCC reports the empty value of an std::optional as read.
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow -Wno-maybe-uninitialized)
  endif()
endfunction()

function(tulle_warnings target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 warns of std::string's own operator+ (GCC bug 105651).
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  if(TULLE_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
