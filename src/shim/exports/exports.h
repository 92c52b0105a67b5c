#pragma once

// Reads from a shared library's file what the library offers to programs that are linked to it.
// `tulle run` thereby finds out whether the library that ours replaces offers more than ours.

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

}  // namespace tulle::shim
