# tulle_messages(TARGET FILE.proto)
#
# Makes a library of the code that protoc writes for a file. The generated code is no room's: it is compiled alone, without
# the warnings, and found as a system's header. It is made while CMake runs, since ./dev tidy reads sources where nothing is
# built.
function(tulle_messages target file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  get_filename_component(name ${file} NAME_WE)
  execute_process(
    COMMAND ${TULLE_PROTOC} --cpp_out=${CMAKE_CURRENT_BINARY_DIR} --proto_path=${CMAKE_CURRENT_SOURCE_DIR}
      ${file}
    COMMAND_ERROR_IS_FATAL ANY)
  add_library(${target} STATIC ${CMAKE_CURRENT_BINARY_DIR}/${name}.pb.cc)
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  target_include_directories(${target} SYSTEM PUBLIC ${CMAKE_CURRENT_BINARY_DIR})
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf-lite)
endfunction()
