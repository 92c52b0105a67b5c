# Writes OUTPUT, one source with the contents of FILES (FILE;FILE…), which `tulle_joined_tests` in cmake/Room.cmake
# compiles in place of them. Tests of different files give their helpers the same names, so each file's unnamed namespace
# gets a namespace of the file's name inside it. Line numbers stay those of the files.
set(text "")
foreach(file ${FILES})
  file(READ ${file} source)
  file(RELATIVE_PATH name ${ROOT} ${file})
  string(MAKE_C_IDENTIFIER ${name} identifier)
  string(REPLACE "\nnamespace {\n" "\nnamespace { namespace ${identifier} {\n" source "${source}")
  string(REPLACE "\n}  // namespace\n" "\n} }  // namespace\n" source "${source}")
  # The compiler runs in the build folder, so that the text has no folder of the clone's in it.
  file(RELATIVE_PATH seen ${FROM} ${file})
  string(APPEND text "#line 1 \"${seen}\"\n${source}\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
