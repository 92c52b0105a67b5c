#pragma once

// A file of keys by which the hosts of one network recognise one another. Each line is a key: 64
// hexadecimal digits, as `openssl rand -hex 32` prints. A line that begins with # is a comment. A
// host seals with the first key and opens with any, so that keys can be replaced while programs
// run: add the new key as the second line on all hosts, then make it the first on all, then remove
// the old one.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tulle::live {

// It does not stay in memory that has been freed.
struct SecretKey : std::array<std::byte, 32> {
  SecretKey() : array{} {}
  SecretKey(const SecretKey&) = default;
  SecretKey& operator=(const SecretKey&) = default;
  ~SecretKey() { explicit_bzero(data(), size()); }
};

inline constexpr std::size_t keys_max = 16;
inline constexpr std::size_t key_file_bytes_max = 64 * 1024;

// Returns the error of a file that cannot be used, in one line for a person.
Error unusable_key_file(const std::string& path, const std::string& why, int error);
// Reads the text of such a file. The error names the line.
Result<std::vector<SecretKey>> parse_keys(std::string_view text);
// Reads the file. Refuses one that other users can read or write, since a key is a secret.
Result<std::vector<SecretKey>> read_key_file(const std::string& path);

// Reads a file that has a subnet manager's key, such as 0x1b2c3d4e5f607182: one line of "0x" and
// one to 16 hexadecimal digits, which are not all 0. Refuses the files that read_key_file refuses.
Result<std::uint64_t> read_manager_key(const std::string& path);
// Reads the text of such a file.
Result<std::uint64_t> parse_manager_key(std::string_view text);

}  // namespace tulle::live
