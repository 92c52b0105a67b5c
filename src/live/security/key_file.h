#pragma once

// A file of keys by which the hosts of one network recognise one another. Each line is a key: 64
// hexadecimal digits, as `openssl rand -hex 32` prints. A line that begins with # is a comment. A
// host seals with the first key and opens with any, so that keys can be replaced while programs
// run: add the new key as the second line on all hosts, then make it the first on all, then remove
// the old one.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tulle::live {

using SecretKey = std::array<std::byte, 32>;

inline constexpr std::size_t keys_max = 16;
inline constexpr std::size_t key_file_bytes_max = 64 * 1024;

// Reads the text of such a file. The error names the line.
Result<std::vector<SecretKey>> parse_keys(std::string_view text);
// Reads the file. Refuses one that other users can read or write, since a key is a secret.
Result<std::vector<SecretKey>> read_key_file(const std::string& path);

}  // namespace tulle::live
