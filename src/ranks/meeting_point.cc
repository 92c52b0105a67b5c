#include "ranks/meeting_point.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "base/quoted.h"

namespace tulle::ranks {
namespace {

using Clock = std::chrono::steady_clock;
using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<Addresses> resolve(const std::string& address, bool is_own) {
  const std::size_t colon = address.rfind(':');
  std::string host = colon == std::string::npos ? "" : address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty() || colon + 1 == address.size()) {
    return Error{fmt::format("--meet: \"{}\" is no HOST:PORT", short_line(address))};
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (is_own ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
  if (status != 0) {
    return Error{fmt::format("--meet: {}: {}", short_line(address), gai_strerror(status))};
  }
  return Addresses(found, &freeaddrinfo);
}

}  // namespace

Result<UniqueFd> listen_at(const std::string& address) {
  auto found = resolve(address, true);
  if (!found) return found.error();
  const addrinfo& own = **found;
  UniqueFd fd(socket(own.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  constexpr int backlog = 64;
  const bool listens =
      fd && setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
      bind(fd.get(), own.ai_addr, own.ai_addrlen) == 0 && listen(fd.get(), backlog) == 0;
  if (!listens) {
    return Error{fmt::format("--meet: cannot listen at {}: {}", address, std::strerror(errno))};
  }
  return fd;
}

Result<UniqueFd> connect_to(const std::string& address, std::chrono::milliseconds limit) {
  auto found = resolve(address, false);
  if (!found) return found.error();
  const addrinfo& there = **found;
  const auto deadline = Clock::now() + limit;
  for (;;) {
    UniqueFd fd(socket(there.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // connect(2) waits for at most the time of this option.
    const timeval patience{limit.count() / 1'000, (limit.count() % 1'000) * 1'000};
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (fd && connect(fd.get(), there.ai_addr, there.ai_addrlen) == 0) return fd;
    const int number = errno;
    if (Clock::now() > deadline) {
      return Error{fmt::format("nobody listens at {}: {}", address, std::strerror(number))};
    }
    constexpr int pause_ms = 50;
    poll(nullptr, 0, pause_ms);
  }
}

std::string short_line(const std::string& text) {
  constexpr std::size_t bytes_max = 500;
  return one_line(std::string_view(text).substr(0, bytes_max));
}

}  // namespace tulle::ranks
