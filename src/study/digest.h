#pragma once

// Digests by which files, texts and builds are told apart.

#include <string>

namespace tulle::study {

// These return SHA-256 as hexadecimal digits. What is no file, cannot be read, or is longer than
// config::read_file() reads, counts as empty: the writer of a file of results may have named
// anything as what it depends on.
std::string digest_of(const std::string& text);
std::string digest_of_file(const std::string& path);

// Returns the version of this program, with a digest of its file: two builds may have one number.
const std::string& build_version();

}  // namespace tulle::study
