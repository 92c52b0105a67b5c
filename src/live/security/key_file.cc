#include "live/security/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "os/unique_fd.h"
#include "os/users.h"

namespace tulle::live {
namespace {

constexpr std::string_view blanks = " \t\r\n";

std::string_view trimmed(std::string_view line) {
  const std::size_t first = line.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(blanks) - first + 1);
}

bool parse(std::string_view digits, SecretKey& key) {
  if (digits.size() != 2 * key.size()) return false;
  for (std::size_t i = 0; i < key.size(); ++i) {
    std::uint8_t value = 0;
    const char* first = digits.data() + 2 * i;
    const auto [rest, error] = std::from_chars(first, first + 2, value, 16);
    if (error != std::errc() || rest != first + 2) return false;
    key[i] = std::byte{value};
  }
  return true;
}

}  // namespace

Result<std::vector<SecretKey>> parse_keys(std::string_view text) {
  std::vector<SecretKey> keys;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty() || line.front() == '#') continue;
    if (keys.size() == keys_max) {
      return Error{fmt::format("line {}: there are more than {} keys", number, keys_max), EINVAL};
    }
    if (!parse(line, keys.emplace_back())) {
      return Error{fmt::format("line {}: a key is 64 hexadecimal digits (`openssl rand -hex 32` "
                               "prints one)",
                               number),
                   EINVAL};
    }
  }
  if (keys.empty()) return Error{"there is no key (`openssl rand -hex 32` prints one)", EINVAL};
  return keys;
}

Result<std::uint64_t> parse_manager_key(std::string_view text) {
  std::string_view digits = trimmed(text);
  std::uint64_t key = 0;
  if (digits.starts_with("0x")) digits.remove_prefix(2);
  const char* end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, key, 16);
  if (error != std::errc() || rest != end || key == 0) {
    return Error{"a manager's key is one line such as 0x1b2c3d4e5f607182, and not 0", EINVAL};
  }
  return key;
}

Error unusable_key_file(const std::string& path, const std::string& why, int error) {
  return {fmt::format("cannot use the key file {}: {}", path, why), error};
}

namespace {

// Returns the file's text. The caller overwrites it after use.
Result<std::string> read_secret(const std::string& path) {
  const auto failed = [&](const std::string& why, int error) {
    return unusable_key_file(path, why, error);
  };
  // O_NONBLOCK: a FIFO must not hold the program up.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) return failed(std::strerror(errno), errno);
  if (!S_ISREG(status.st_mode)) return failed("it is not a regular file", EINVAL);
  if (!is_trusted(status.st_uid)) {
    return failed(fmt::format("it belongs to {}, who can change it", user_text(status.st_uid)),
                  EACCES);
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return failed("other users have rights to it; try `chmod 600`", EACCES);
  }
  std::string text(key_file_bytes_max + 1, '\0');
  const ssize_t bytes = read(file.get(), text.data(), text.size());
  if (bytes < 0) return failed(std::strerror(errno), errno);
  if (static_cast<std::size_t>(bytes) > key_file_bytes_max) return failed("it is too long", EFBIG);
  text.resize(static_cast<std::size_t>(bytes));
  return text;
}

// Reads the file and parses its text.
template <typename Key>
Result<Key> read_parsed(const std::string& path, Result<Key> (*parse_text)(std::string_view)) {
  auto text = read_secret(path);
  if (!text) return text.error();
  auto key = parse_text(*text);
  explicit_bzero(text->data(), text->size());
  if (!key) return unusable_key_file(path, key.error().message, key.error().error_number);
  return key;
}

}  // namespace

Result<std::vector<SecretKey>> read_key_file(const std::string& path) {
  return read_parsed(path, parse_keys);
}

Result<std::uint64_t> read_manager_key(const std::string& path) {
  return read_parsed(path, parse_manager_key);
}

}  // namespace tulle::live
