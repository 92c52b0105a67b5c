#pragma once

// Reads from a shared library's file what the library offers to programs that are linked to it, and
// from a program's file how it finds its libraries. `tulle run` thereby finds out whether the
// library that ours replaces offers more than ours, and whether the program will find ours.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tulle::shim {

// Returns the functions and objects that an ELF file for this machine defines at version nodes,
// each as "ibv_open_device@IBVERBS_1.1", sorted. Any bytes may be given: the list is empty for
// anything that is not such a file, and a damaged file yields what can still be read.
std::vector<std::string> exports(std::span<const std::byte> elf);

// Returns what `theirs` exports and `ours` does not. The list is empty too if one of them cannot be
// read.
std::vector<std::string> exports_missing(const std::filesystem::path& ours,
                                         const std::filesystem::path& theirs);

// How a program is linked to shared libraries.
struct Linking {
  bool is_program = false;  // an ELF file for this machine; scripts are none
  bool is_dynamic = false;  // a dynamic linker loads it
  // The value of DT_RPATH. The linker searches its folders before LD_LIBRARY_PATH. It is empty
  // where there is a DT_RUNPATH, which the linker searches after LD_LIBRARY_PATH.
  std::string rpath;
  std::vector<std::string> needed;  // DT_NEEDED: the libraries that it names
};

// Reads it from a file's bytes, which may be any.
Linking linking(std::span<const std::byte> elf);
Linking linking_of(const std::filesystem::path& program);

}  // namespace tulle::shim
