# Writes OUTPUT, which defines the texts that cmake/Embed.cmake declares. ARGUMENTS is NAME;FILE;NAME;FILE…
set(text "#include \"embedded.h\"\n\nnamespace ${NAMESPACE} {\n")
while(ARGUMENTS)
  list(POP_FRONT ARGUMENTS name file)
  file(READ ${file} bytes HEX)
  string(LENGTH "${bytes}" length)
  math(EXPR length "${length} / 2")
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(APPEND text "static constexpr unsigned char ${name}_bytes[] = {${bytes}0};\n"
    "const std::string_view ${name}{reinterpret_cast<const char*>(${name}_bytes), ${length}};\n")
endwhile()
file(WRITE ${OUTPUT} "${text}}\n")
