#include "live/fabric/host_networks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <string_view>
#include <utility>

#include "fabric/subnet.h"
#include "live/fabric/network_keeper.h"
#include "live/message/socket.h"
#include "live/system_error.h"

namespace tulle::live {
namespace {

constexpr std::array<std::uint8_t, 2> network_bytes = {10, 0};
constexpr int bridge_milliseconds = 10'000;
constexpr char keeper_has_ended[] = "the process that makes the hosts' networks has ended";

std::string_view text_of(const ReceivedMessage& message) {
  return {reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()};
}

Result<void> write_names(const std::string& path, std::uint32_t hosts) {
  std::string text = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n";
  for (std::uint32_t host = 0; host < hosts; ++host) {
    text += fmt::format("{}\t{}\n", host_address(host), fabric::host_name(host));
  }
  constexpr mode_t readable = 0644;
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, readable));
  if (file && write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) {
    return {};
  }
  return system_error("cannot write " + path);
}

}  // namespace

std::string host_address(std::uint32_t host) {
  return fmt::format("{}", fmt::join(host_address_bytes(host), "."));
}

std::array<std::uint8_t, 4> host_address_bytes(std::uint32_t host) {
  const std::uint32_t number = host + 1;
  return {network_bytes[0], network_bytes[1], static_cast<std::uint8_t>(number >> 8),
          static_cast<std::uint8_t>(number)};
}

std::optional<std::uint32_t> host_at_address(std::span<const std::uint8_t, 4> address) {
  const unsigned number = address[2] * 256u + address[3];
  const bool is_here = address[0] == network_bytes[0] && address[1] == network_bytes[1];
  if (!is_here || number == 0) return std::nullopt;
  return number - 1;
}

Result<HostNetworks> HostNetworks::start(const std::string& folder, std::uint32_t hosts) {
  const std::string file = folder + "/hosts";
  if (auto written = write_names(file, hosts); !written) return written.error();
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return system_error("cannot make a socket");
  }
  UniqueFd own(ends[0]), others(ends[1]);
  const pid_t process = fork();
  if (process == 0) {
    constexpr int kept = 3;
    if (dup2(others.get(), kept) < 0 || fcntl(kept, F_SETFD, FD_CLOEXEC) != 0) _exit(1);
    close_range(kept + 1, ~0u, 0);
    keep_networks(kept, file, hosts);
    _exit(0);
  }
  if (process < 0) return system_error("cannot start a process");
  HostNetworks networks(std::move(own), process, file);
  others.reset();
  auto first = await_message(networks.keeper_.get(), bridge_milliseconds);
  if (!first) return first.error();
  if (text_of(*first) != bridge_ready) return Error{std::string(text_of(*first))};
  networks.bridge_ = std::move(first->fds);
  return networks;
}

HostNetworks::~HostNetworks() {
  if (file_.empty()) return;  // moved from
  keeper_.reset();
  // It has nothing to lose, and may be stopped.
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  unlink(file_.c_str());
}

std::span<const UniqueFd> HostNetworks::find(std::uint32_t host) const {
  const auto found = made_.find(host);
  return found == made_.end() ? std::span<const UniqueFd>() : found->second;
}

Result<void> HostNetworks::ask(std::uint32_t host) {
  if (!keeper_) return Error{keeper_has_ended};
  if (asked_.contains(host)) return {};
  const std::string text = fmt::format("{}", host);
  if (auto sent = send_message(keeper_.get(), std::as_bytes(std::span(text))); !sent) return sent;
  asked_.insert(host);
  return {};
}

void HostNetworks::take_answers(const Answered& answered) {
  while (keeper_) {
    auto message = receive_message(keeper_.get());
    if (!message && message.error().error_number == EAGAIN) return;
    if (!message) break;
    const std::string_view text = text_of(*message);
    std::uint32_t host = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), host);
    if (read.ec != std::errc() || asked_.erase(host) == 0) continue;
    const auto digits = static_cast<std::size_t>(read.ptr - text.data());
    if (!message->fds.empty()) made_[host] = std::move(message->fds);
    answered(host, std::string(text.substr(std::min(digits + 1, text.size()))));
  }
  keeper_.reset();
  for (const std::uint32_t host : std::exchange(asked_, {})) answered(host, keeper_has_ended);
}

}  // namespace tulle::live
