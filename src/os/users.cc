#include "os/users.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <sstream>

#include "os/unique_fd.h"

namespace tulle {
namespace {

// Returns the beginning of a file, or nothing. A map has at most 340 lines.
std::string beginning_of(const char* path) {
  constexpr std::size_t bytes_max = 32'768;
  const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4'096> piece;
  while (file && text.size() < bytes_max) {
    const ssize_t bytes = read(file.get(), piece.data(), piece.size());
    if (bytes <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(bytes));
  }
  return text;
}

// The number is that of the whole machine.
uid_t overflow_number() {
  static const uid_t number = [] {
    uid_t read = UserNumbers{}.overflow;
    const std::string text = beginning_of("/proc/sys/kernel/overflowuid");
    std::from_chars(text.data(), text.data() + text.size(), read);
    return read;
  }();
  return number;
}

}  // namespace

// The kernel refuses a map that gives a user two numbers, or two users one.
bool maps_all_users(std::string_view map) {
  constexpr std::uint64_t users = 0xFFFF'FFFF;  // the last number is no user's
  std::istringstream lines{std::string(map)};
  std::uint64_t inside = 0, outside = 0, count = 0, mapped = 0;
  while (lines >> inside >> outside >> count) mapped += count;
  return mapped == users;
}

// A process may enter a namespace, and a namespace may get its map later.
UserNumbers user_numbers() {
  return {overflow_number(), maps_all_users(beginning_of("/proc/self/uid_map"))};
}

bool is_known_user(uid_t user) { return user != overflow_number() || user_numbers().has_all; }

bool same_user(uid_t one, uid_t other) { return one == other && is_known_user(one); }

bool is_trusted(uid_t user) { return (user == 0 || user == geteuid()) && is_known_user(user); }

std::string user_text(uid_t user, const UserNumbers& numbers) {
  constexpr const char* several = " (any user who has no number in this user namespace)";
  return fmt::format("user {}{}", user, numbers.is_known(user) ? "" : several);
}

std::string user_text(uid_t user) { return user_text(user, user_numbers()); }

}  // namespace tulle
