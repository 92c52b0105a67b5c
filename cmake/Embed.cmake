# tulle_embed(TARGET NAMESPACE NAME=FILE...)
#
# Adds files to a target as texts: `embedded.h`, which is made anew when a file changes, declares for each NAME a
# `std::string_view NAME` in the namespace.
function(tulle_embed target namespace)
  set(header ${CMAKE_CURRENT_BINARY_DIR}/${target}_embedded/embedded.h)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}_embedded/embedded.cc)
  set(declarations "")
  set(arguments "")
  set(files "")
  foreach(pair ${ARGN})
    string(REGEX MATCH "^([a-z_]+)=(.+)$" matched ${pair})
    string(APPEND declarations "extern const std::string_view ${CMAKE_MATCH_1};\n")
    list(APPEND arguments ${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
    list(APPEND files ${CMAKE_MATCH_2})
  endforeach()
  file(CONFIGURE OUTPUT ${header}
    CONTENT "#pragma once\n\n#include <string_view>\n\nnamespace ${namespace} {\n${declarations}}\n")
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${source} -DNAMESPACE=${namespace} "-DARGUMENTS=${arguments}"
      -P ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${source})
  set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${target}_embedded)
endfunction()
