# help2man makes the manual pages, one for `tulle` and one for each command, from the help texts; docs/man adds what the
# help texts do not say. A sanitizer's build leaves the pages out, since its programs may need a special environment to
# start.
find_program(HELP2MAN help2man)
if(NOT HELP2MAN)
  message(STATUS "The manual pages need help2man, which is not installed: they are left out.")
  return()
elseif(TULLE_SANITIZE OR TULLE_FUZZ)
  return()
endif()

set(TULLE_LIBRARY_PATH ${CMAKE_INSTALL_FULL_LIBDIR}/tulle)
set(TULLE_PROGRAM_PATH ${CMAKE_INSTALL_FULL_LIBEXECDIR}/tulle)
set(TULLE_DATA_PATH ${CMAKE_INSTALL_FULL_DATADIR}/tulle)
set(pages)
foreach(command "" run devices status capture fabric agent sim sweep tune compare bench calibrate)
  string(JOIN "-" name tulle ${command})
  set(page ${CMAKE_BINARY_DIR}/share/man/man1/${name}.1)
  set(additions ${CMAKE_BINARY_DIR}/share/man/${name}.h2m)
  configure_file(${PROJECT_SOURCE_DIR}/docs/man/${name}.h2m ${additions} @ONLY)
  add_custom_command(OUTPUT ${page}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/share/man/man1
    COMMAND ${HELP2MAN} --no-info --locale=C.UTF-8 --section=1 --manual=Tulle "--source=Tulle ${PROJECT_VERSION}"
      --version-string=${PROJECT_VERSION} --include=${additions} --output=${page} "$<TARGET_FILE:tulle> ${command}"
    DEPENDS tulle tulle_simulator ${additions}
    VERBATIM)
  list(APPEND pages ${page})
endforeach()
add_custom_target(manual ALL DEPENDS ${pages})
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
