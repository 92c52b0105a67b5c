# tulle_drop_in(TARGET NAME VERSION MAP FOLDER): makes a shared library take another library's place. It gets that
# library's name and version, and exports nothing but what the map names. It stays loaded, since its threads run in it.
# The bfd linker writes which version node follows which, as the replaced library has it.
function(tulle_drop_in target name version map folder)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${name}
    VERSION ${version}
    SOVERSION ${version}
    LIBRARY_OUTPUT_DIRECTORY ${folder}
    LINK_DEPENDS ${map})
  target_link_options(${target} PRIVATE -fuse-ld=bfd
    -Wl,--version-script=${map} -Wl,-z,nodelete -Wl,--exclude-libs,ALL)
  if(NOT TULLE_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,-z,defs)  # no symbol is left to be found elsewhere
  endif()
endfunction()
