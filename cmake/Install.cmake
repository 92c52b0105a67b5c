# Defines what `cmake --install` installs. `tulle` finds it by paths from its own folder, so an installation may be moved
# as a whole. Symbolic links give the build folder the same layout.
include(GNUInstallDirs)

# The drop-in libraries have the names of the system's libraries, so they lie where only `tulle run` looks.
set(TULLE_INSTALL_LIBRARIES ${CMAKE_INSTALL_LIBDIR}/tulle)
set(TULLE_INSTALL_DATA ${CMAKE_INSTALL_DATADIR}/tulle)
# The simulator is a program of its own, which `tulle` starts. It is not on the PATH.
set(TULLE_INSTALL_PROGRAMS ${CMAKE_INSTALL_LIBEXECDIR}/tulle)
set(TULLE_SIMULATOR_PACKAGE "" CACHE STRING "Package that has the simulator, if `tulle` is in another one; empty: none")
file(RELATIVE_PATH TULLE_LIBRARY_FOLDER
  ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/tulle)
file(RELATIVE_PATH TULLE_DATA_FOLDER
  ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_DATADIR}/tulle)
file(RELATIVE_PATH TULLE_PROGRAM_FOLDER
  ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBEXECDIR}/tulle)

# tulle_program(TARGET FOLDER): makes a program of a target, which lies in FOLDER as seen from the folder of `tulle`, and
# finds from there what belongs to Tulle (src/cli/layout.h).
function(tulle_program target folder)
  cmake_path(ABSOLUTE_PATH folder
    BASE_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} NORMALIZE OUTPUT_VARIABLE built)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${built})
  cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY ${CMAKE_INSTALL_FULL_BINDIR} NORMALIZE OUTPUT_VARIABLE installed)
  file(RELATIVE_PATH live ${installed} ${CMAKE_INSTALL_FULL_BINDIR}/tulle)
  file(RELATIVE_PATH simulator ${installed} ${CMAKE_INSTALL_FULL_LIBEXECDIR}/tulle/tulle-simulator)
  file(RELATIVE_PATH libraries ${installed} ${CMAKE_INSTALL_FULL_LIBDIR}/tulle)
  file(RELATIVE_PATH data ${installed} ${CMAKE_INSTALL_FULL_DATADIR}/tulle)
  target_compile_definitions(${target} PRIVATE
    TULLE_LIVE_PROGRAM="${live}"
    TULLE_SIMULATOR_PROGRAM="${simulator}"
    TULLE_LIBRARY_FOLDER="${libraries}"
    TULLE_DATA_FOLDER="${data}")
  # A library that is linked and not used would have to be installed all the same.
  target_link_options(${target} PRIVATE -Wl,--as-needed)
endfunction()

# tulle_link_in_build(FOLDER TARGET): makes FOLDER, as `tulle` sees it from its own, lead to TARGET.
function(tulle_link_in_build folder target)
  if(NOT folder MATCHES "^\\.\\./[^.]")
    message(FATAL_ERROR "Programs, libraries and data must be installed side by side, but ${folder} is not beside "
      "${CMAKE_INSTALL_FULL_BINDIR}.")
  endif()
  cmake_path(ABSOLUTE_PATH folder
    BASE_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} NORMALIZE OUTPUT_VARIABLE link)
  cmake_path(GET link PARENT_PATH parent)
  file(RELATIVE_PATH target ${parent} ${target})
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${target} ${link} SYMBOLIC)
endfunction()

tulle_link_in_build(${TULLE_LIBRARY_FOLDER} ${CMAKE_BINARY_DIR}/lib/shim)
tulle_link_in_build(${TULLE_DATA_FOLDER}/scenarios ${PROJECT_SOURCE_DIR}/scenarios)

# tulle_install_library(TARGET [FOLDER]): installs a library for programs under `tulle run`, in FOLDER below the other
# libraries. It finds those beside itself, never the system's.
function(tulle_install_library target)
  set(folder ${TULLE_INSTALL_LIBRARIES})
  set(others $ORIGIN)
  if(ARGC GREATER 1)
    string(APPEND folder /${ARGV1})
    set(others $ORIGIN/..)
  endif()
  # The build folder has the same layout. With search paths of its own, CMake would pad them with empty entries, so that it
  # can write those of the installation over them. An empty entry is the current folder, where anybody's library may lie.
  set_target_properties(${target} PROPERTIES INSTALL_RPATH ${others} BUILD_WITH_INSTALL_RPATH ON)
  install(TARGETS ${target} LIBRARY DESTINATION ${folder} NAMELINK_SKIP)
endfunction()

# Scenarios, the fabrics and profiles that they name, and tables of flows and links.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/scenarios DESTINATION ${TULLE_INSTALL_DATA})

# The documents, whose links lead to each other and to the scenarios.
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR}
  FILES_MATCHING PATTERN *.svg PATTERN *.png
  PATTERN compatibility EXCLUDE PATTERN decisions EXCLUDE PATTERN man EXCLUDE PATTERN reliability EXCLUDE)
install(CODE "
  set(SOURCE \"${PROJECT_SOURCE_DIR}\")
  file(GLOB FILES RELATIVE \${SOURCE} \${SOURCE}/README.md \${SOURCE}/CHANGELOG.md \${SOURCE}/SECURITY.md \${SOURCE}/docs/*.md
    \${SOURCE}/docs/guide/*.md \${SOURCE}/docs/reference/*.md \${SOURCE}/docs/reference/simulator/*.md
    \${SOURCE}/docs/decisions/*.md \${SOURCE}/docs/gallery/*.md \${SOURCE}/docs/internals/*.md)
  file(GLOB OTHERS RELATIVE \${SOURCE} \${SOURCE}/LICENSE \${SOURCE}/docs/*.svg \${SOURCE}/docs/*.png
    \${SOURCE}/docs/gallery/*.svg)
  set(FOLDERS docs docs/decisions docs/gallery docs/guide docs/internals docs/reference docs/reference/simulator)
  cmake_path(SET DOCUMENTS NORMALIZE \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}\")
  cmake_path(SET DATA NORMALIZE \"\${CMAKE_INSTALL_PREFIX}/${TULLE_INSTALL_DATA}\")
  include(\"${PROJECT_SOURCE_DIR}/cmake/InstallDocs.cmake\")")
