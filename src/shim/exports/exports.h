#pragma once

// Reads from a shared library's file what the library offers to programs that are linked to it. By
// that, `tulle run` can tell that the library whose place ours takes offers more than ours.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tulle::shim {

// The functions and objects that an ELF file for this machine defines at version nodes, each as
// "ibv_open_device@IBVERBS_1.1", sorted. Empty for everything else, damaged files among it: any
// bytes may be given.
std::vector<std::string> exports(std::span<const std::byte> elf);

// Names what `theirs` exports and `ours` does not. It is empty too if one of them cannot be read.
std::vector<std::string> exports_missing(const std::filesystem::path& ours,
                                         const std::filesystem::path& theirs);

}  // namespace tulle::shim
