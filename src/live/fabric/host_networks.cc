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
#include <climits>
#include <csignal>
#include <utility>

#include "fabric/subnet.h"
#include "live/fabric/network_keeper.h"
#include "live/message/socket.h"
#include "os/codec.h"
#include "os/service_process.h"
#include "os/system_error.h"

namespace tulle::live {
namespace {

constexpr std::array<std::uint8_t, 2> network_bytes = {10, 0};
constexpr std::uint8_t infiniband_network = 1;  // in place of the second byte
constexpr int bridge_milliseconds = 10'000;
constexpr char keeper_has_ended[] = "the process that makes the hosts' networks has ended";

Result<void> write_names(const std::string& path, const std::vector<bool>& is_elsewhere) {
  std::string text = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n";
  for (std::uint32_t host = 0; host < is_elsewhere.size(); ++host) {
    const std::string name = fabric::host_name(host);
    const std::string infiniband = infiniband_address(host);
    text +=
        fmt::format("{}\t{}\n{}\t{}-ib0\n", is_elsewhere[host] ? infiniband : host_address(host),
                    name, infiniband, name);
  }
  constexpr mode_t readable = 0644;
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, readable));
  const ssize_t written = file ? write(file.get(), text.data(), text.size()) : -1;
  if (written == static_cast<ssize_t>(text.size())) return {};
  if (written >= 0) errno = ENOSPC;  // no room for the rest
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

std::array<std::uint8_t, 4> infiniband_address_bytes(std::uint32_t host) {
  auto bytes = host_address_bytes(host);
  bytes[1] = infiniband_network;
  return bytes;
}

std::string infiniband_address(std::uint32_t host) {
  return fmt::format("{}", fmt::join(infiniband_address_bytes(host), "."));
}

std::optional<std::uint32_t> host_at_address(std::span<const std::uint8_t, 4> address) {
  const unsigned number = address[2] * 256u + address[3];
  const bool is_here = address[0] == network_bytes[0] &&
                       (address[1] == network_bytes[1] || address[1] == infiniband_network);
  if (!is_here || number == 0) return std::nullopt;
  return number - 1;
}

Result<HostNetworks> HostNetworks::start(const std::string& folder,
                                         const std::vector<bool>& is_elsewhere) {
  const std::string file = folder + "/hosts";
  if (auto written = write_names(file, is_elsewhere); !written) return written.error();
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return system_error("cannot make a socket");
  }
  UniqueFd own(ends[0]), others(ends[1]);
  const pid_t process = fork();
  if (process == 0) {
    constexpr int kept = 3;
    if (dup2(others.get(), kept) < 0 || fcntl(kept, F_SETFD, FD_CLOEXEC) != 0) _exit(1);
    close_range(kept + 1, UINT_MAX, 0);
    drop_standard_descriptors();
    keep_networks(kept, file, static_cast<std::uint32_t>(is_elsewhere.size()));
    _exit(0);
  }
  if (process < 0) return system_error("cannot start a process");
  HostNetworks networks(std::move(own), process, file, is_elsewhere);
  others.reset();
  auto first = await_message(networks.keeper_.get(), bridge_milliseconds);
  if (!first) return first.error();
  auto ready = from_fields<KeeperReady>(first->bytes);
  if (!ready) return Error{keeper_has_ended};
  if (first->fds.empty()) return Error{std::move(ready->fault)};
  networks.no_interfaces_ = std::move(ready->no_interfaces);
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

bool HostNetworks::is_made(std::uint32_t host) const {
  const auto asked = asked_.lower_bound({host, {}});
  return made_.contains(host) && (asked == asked_.end() || asked->first != host);
}

// Sends a request, with a host's namespaces as far as they have been made.
Result<void> HostNetworks::send(const KeeperRequest& request) {
  std::vector<int> namespaces;
  for (const UniqueFd& one : find(request.host)) namespaces.push_back(one.get());
  return send_message(keeper_.get(), fields_of(request), namespaces);
}

// Asks the keeper for something that it answers.
Result<void> HostNetworks::ask(const KeeperRequest& request) {
  if (!keeper_) return Error{keeper_has_ended};
  if (asked_.contains({request.host, request.name})) return {};
  auto sent = send(request);
  if (sent) asked_.insert({request.host, request.name});
  return sent;
}

Result<void> HostNetworks::ask(std::uint32_t host) { return ask(KeeperRequest{.host = host}); }

void HostNetworks::ask_for_all() {
  constexpr std::ptrdiff_t made_at_once_max = 64;
  if (std::count(is_elsewhere_.begin(), is_elsewhere_.end(), false) > made_at_once_max) return;
  for (std::uint32_t host = 0; host < is_elsewhere_.size(); ++host) {
    if (!is_elsewhere_[host] && find(host).empty()) static_cast<void>(ask(host));
  }
}

Result<void> HostNetworks::ask_for_interface(std::uint32_t host, const std::string& name,
                                             std::size_t mtu,
                                             std::span<const std::string> addresses) {
  return ask({KeeperRequest::Kind::interface,
              host,
              name,
              static_cast<std::uint32_t>(mtu),
              {addresses.begin(), addresses.end()}});
}

void HostNetworks::set_mtu(std::uint32_t host, const std::string& name, std::size_t mtu) {
  static_cast<void>(
      send({KeeperRequest::Kind::mtu, host, name, static_cast<std::uint32_t>(mtu), {}}));
}

// The keeper is a process of this fabric, and answers what it was asked.
HostNetworks::Answer HostNetworks::read_answer(ReceivedMessage& message) {
  auto said = from_fields<KeeperAnswer>(message.bytes);
  if (!said) return {};
  Answer answer;
  answer.host = said->host;
  answer.interface = std::move(said->name);
  if (message.fds.empty()) {
    answer.reason = std::move(said->fault);
    if (answer.reason.empty()) answer.reason = "the process that makes networks does not answer";
  } else if (said->kind == KeeperRequest::Kind::host) {
    made_[answer.host] = std::move(message.fds);
  } else {
    constexpr std::size_t descriptors = 2;
    answer.index = static_cast<int>(said->index);
    if (message.fds.size() != descriptors) return {};
    answer.packets = std::move(message.fds[0]);
    answer.addresses = std::move(message.fds[1]);
  }
  return answer;
}

void HostNetworks::take_answers(const Answered& answered) {
  while (keeper_) {
    auto message = receive_message(keeper_.get());
    if (!message && message.error().error_number == EAGAIN) return;
    if (!message) break;
    Answer answer = read_answer(*message);
    if (asked_.erase({answer.host, answer.interface}) == 0) continue;
    answered(std::move(answer));
  }
  keeper_.reset();
  for (const auto& [host, interface] : std::exchange(asked_, {})) {
    answered({host, interface, keeper_has_ended});
  }
}

}  // namespace tulle::live
