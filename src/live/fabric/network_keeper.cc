#include "live/fabric/network_keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <linux/nsfs.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fabric/subnet.h"
#include "live/fabric/host_networks.h"
#include "live/fabric/namespaces.h"
#include "live/message/socket.h"
#include "os/codec.h"
#include "os/system_error.h"
#include "os/trusted_folder.h"
#include "os/unique_fd.h"
#include "os/users.h"

namespace tulle::live {
namespace {

constexpr int kinds = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS;
constexpr char names_file[] = "/etc/hosts";
constexpr char interfaces_file[] = "/dev/net/tun";
// A namespace that `ip` inherits. It could not open that of a process with other capabilities by
// the process's number, which iproute2 does from 6.13 on.
constexpr int other_descriptor = 3;
constexpr char other_network[] = "/proc/self/fd/3";

// The keeper's own state.
struct Keeper {
  const std::string& file;
  bool has_users = false;
};

// Writes the whole text, and returns false if the file does not take it.
bool write_file(const char* path, const std::string& text) {
  const UniqueFd file(open(path, O_WRONLY | O_CLOEXEC));
  return file && write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Some systems show these files and let nobody write to them. Without them, ping needs privileges,
// and an IPv6 address comes a second later.
void write_if_possible(const char* path, const std::string& text) {
  static_cast<void>(write_file(path, text));
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Runs iproute2's `ip` in this process's namespaces with these commands, one a line, which may name
// the network namespace `other` as other_network.
Result<void> run_ip(const std::string& commands, int other = -1) {
  std::array<int, 2> in{}, out{};
  if (pipe2(in.data(), O_CLOEXEC) != 0) return system_error("cannot make a pipe");
  UniqueFd in_read(in[0]), in_write(in[1]);
  if (pipe2(out.data(), O_CLOEXEC) != 0) return system_error("cannot make a pipe");
  UniqueFd out_read(out[0]), out_write(out[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in_read.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out_write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out_write.get(), STDERR_FILENO);
  if (other >= 0) posix_spawn_file_actions_adddup2(&actions, other, other_descriptor);
  std::string name = "ip", batch = "-batch", from = "-";
  char* arguments[] = {name.data(), batch.data(), from.data(), nullptr};
  pid_t process = 0;
  auto program = find_program("ip");
  const int error =
      program ? posix_spawn(&process, program->c_str(), &actions, nullptr, arguments, environ)
              : ENOENT;
  posix_spawn_file_actions_destroy(&actions);
  if (!program) {
    return Error{
        fmt::format("cannot run `ip`, which the package iproute2 has: {}", program.error().message),
        program.error().error_number};
  }
  if (error != 0) {
    return Error{
        fmt::format("cannot run `ip`, which the package iproute2 has: {}", std::strerror(error)),
        error};
  }
  in_read.reset();
  out_write.reset();
  // The commands are fewer than what a pipe holds.
  const ssize_t written = write(in_write.get(), commands.data(), commands.size());
  in_write.reset();
  std::string said;
  std::array<char, 512> some{};
  ssize_t count = 0;
  while ((count = read(out_read.get(), some.data(), some.size())) > 0) {
    said.append(some.data(), static_cast<std::size_t>(count));
  }
  int status = 0;
  waitpid(process, &status, 0);
  if (status == 0 && written == static_cast<ssize_t>(commands.size())) return {};
  return Error{fmt::format("`ip` failed: {}", first_line(said))};
}

// The namespaces of the bridge, in which the keeper lives.
Result<void> make_bridge(bool& has_users) {
  if (access(names_file, F_OK) != 0) {
    return Error{
        fmt::format("this machine has no {0}, in whose place the hosts have another; `touch {0}` "
                    "before `tulle fabric up` gives them a network",
                    names_file)};
  }
  const uid_t user = geteuid();
  const gid_t group = getegid();
  has_users = unshare(kinds) != 0;
  if (has_users) {
    if (unshare(CLONE_NEWUSER | kinds) != 0) return system_error("cannot make namespaces");
    // The kernel asks for this before it takes a group.
    write_if_possible("/proc/self/setgroups", "deny");
    if (!write_file("/proc/self/uid_map", fmt::format("{} {} 1", user, user)) ||
        !write_file("/proc/self/gid_map", fmt::format("{} {} 1", group, group))) {
      return system_error("cannot map this user into a user namespace");
    }
    if (!is_known_user(user)) {
      return Error{
          fmt::format(
              "user {} may be any user in a user namespace: start the fabric as another one", user),
          EPERM};
    }
    if (auto kept = keep_capabilities(); !kept) return kept;  // for `ip`
  }
  // The hosts' mounts are theirs alone.
  if (mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) {
    return system_error("cannot keep mounts to a namespace");
  }
  return run_ip("link add name fabric type bridge forward_delay 0\nlink set fabric up\n");
}

Result<UniqueFd> open_namespace(const char* kind) {
  UniqueFd opened(open(fmt::format("/proc/self/ns/{}", kind).c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened) return system_error("cannot open a namespace");
  return opened;
}

// Makes this process, which is in the bridge's namespaces, one of a new host, whose cable ends at
// the bridge.
Result<void> become_host(std::uint32_t host, const std::string& file) {
  const std::string name = fabric::host_name(host);
  auto bridge = open_namespace("net");
  if (!bridge) return bridge.error();
  if (unshare(kinds) != 0) return system_error("cannot make namespaces");
  if (sethostname(name.data(), name.size()) != 0) return system_error("cannot name the host");
  if (mount(file.c_str(), names_file, nullptr, MS_BIND, nullptr) != 0) {
    return system_error("cannot show the hosts' names");
  }
  // Programs may ping, and listen at any port, without privileges. Addresses are taken at once,
  // since no other host has them.
  write_if_possible("/proc/sys/net/ipv4/ping_group_range",
                    fmt::format("{} {}", getegid(), getegid()));
  write_if_possible("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
  write_if_possible("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
  auto made = run_ip(fmt::format("link set lo up\n"
                                 "link add name eth0 type veth peer name {} netns {}\n"
                                 "address add {}/16 dev eth0\n"
                                 "link set eth0 up\n",
                                 name, other_network, host_address(host)),
                     bridge->get());
  if (!made) return made;
  auto own = open_namespace("net");
  if (!own) return own.error();
  if (setns(bridge->get(), CLONE_NEWNET) != 0) return system_error("cannot go to the bridge");
  made = run_ip(fmt::format("link set {} master fabric up\n", name));
  if (!made) return made;
  if (setns(own->get(), CLONE_NEWNET) != 0) return system_error("cannot go to the host");
  return {};
}

// Tells of the namespaces that this process is in.
Result<void> send_namespaces(int socket, const KeeperAnswer& answer, bool has_users) {
  std::vector<UniqueFd> opened;
  std::vector<int> numbers;
  for (const char* kind : {"user", "net", "mnt", "uts"}) {
    if (!has_users && kind == std::string_view("user")) continue;
    auto one = open_namespace(kind);
    if (!one) return one.error();
    numbers.push_back(one->get());
    opened.push_back(std::move(*one));
  }
  return send_message(socket, fields_of(answer), numbers);
}

// --- IP over InfiniBand ---

// Makes an interface without a link below IP (TUN), whose packets this process has.
Result<UniqueFd> open_interface(const std::string& name) {
  UniqueFd opened(open(interfaces_file, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!opened) return system_error(fmt::format("cannot open {}", interfaces_file));
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  if (ioctl(opened.get(), TUNSETIFF, &request) != 0) {
    return system_error("cannot make the interface " + name);
  }
  return opened;
}

// Makes a socket that tells of all changes of addresses.
Result<UniqueFd> open_address_socket() {
  UniqueFd opened(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (!opened || bind(opened.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return system_error("cannot make a socket for address notifications");
  }
  return opened;
}

KeeperAnswer answer_to(const KeeperRequest& request, std::string fault = {}) {
  return {request.kind, request.host, request.name, 0, std::move(fault)};
}

void send_fault(int socket, const KeeperRequest& request, std::string fault) {
  static_cast<void>(send_message(socket, fields_of(answer_to(request, std::move(fault)))));
}

Result<void> make_interface(int socket, const KeeperRequest& request) {
  const std::string& name = request.name;
  auto interface = open_interface(name);
  if (!interface) return interface.error();
  auto addresses = open_address_socket();
  if (!addresses) return addresses.error();
  std::string commands = fmt::format("link set dev {} mtu {}\n", name, request.mtu);
  // The interface's IPv6 address is made of the port's GUID, and not by the kernel.
  std::string ipv6_commands = fmt::format("link set dev {} addrgenmode none\n", name);
  for (const std::string& address : request.addresses) {
    const bool is_ipv4 = address.find(':') == std::string::npos;
    std::string& to = is_ipv4 ? commands : ipv6_commands;
    to += fmt::format("address add {} {} dev {}\n", address, is_ipv4 ? "broadcast +" : "", name);
  }
  commands += fmt::format("link set {} up\n", name);
  // Some machines have no IPv6.
  static_cast<void>(run_ip(ipv6_commands));
  if (auto made = run_ip(commands); !made) return made;
  const unsigned index = if_nametoindex(name.c_str());
  const std::array<int, 2> fds = {interface->get(), addresses->get()};
  KeeperAnswer answer = answer_to(request);
  answer.index = index;
  return send_message(socket, fields_of(answer), fds);
}

Result<void> change_interface(const KeeperRequest& request) {
  return run_ip(fmt::format("link set dev {} mtu {}\n", request.name, request.mtu));
}

// Goes to the network of a host, of whose namespaces there are these descriptors.
Result<void> go_to_host(std::span<const UniqueFd> namespaces) {
  for (const UniqueFd& one : namespaces) {
    if (ioctl(one.get(), NS_GET_NSTYPE) != CLONE_NEWNET) continue;
    if (setns(one.get(), CLONE_NEWNET) != 0) return system_error("cannot go to the host");
    return {};
  }
  return Error{"the host has no network"};
}

// --- requests ---

Result<void> carry_out(int socket, const KeeperRequest& request,
                       std::span<const UniqueFd> namespaces, const Keeper& keeper) {
  if (request.kind == KeeperRequest::Kind::host) {
    auto made = become_host(request.host, keeper.file);
    return made ? send_namespaces(socket, answer_to(request), keeper.has_users) : made;
  }
  if (auto gone = go_to_host(namespaces); !gone) return gone;
  if (request.kind == KeeperRequest::Kind::interface) return make_interface(socket, request);
  return change_interface(request);
}

// Carries a request out in a separate process, since it does not stay in the bridge's namespaces.
// What has been made before something fails goes with the process.
void handle(int socket, const KeeperRequest& request, std::span<const UniqueFd> namespaces,
            const Keeper& keeper) {
  const pid_t maker = fork();
  if (maker == 0) {
    const auto done = carry_out(socket, request, namespaces, keeper);
    if (!done) send_fault(socket, request, done.error().message);
    _exit(0);
  }
  int status = 0;
  if (maker > 0) waitpid(maker, &status, 0);
  if (maker > 0 && status == 0) return;
  send_fault(socket, request, "the process that makes it has ended early");
}

// Returns true for what may be a word of a command of `ip`.
bool is_word(const std::string& text) {
  return !text.empty() && text.find_first_of(" \t\n\\\"'#") == std::string::npos;
}

bool is_right(const KeeperRequest& request, std::uint32_t hosts) {
  using Kind = KeeperRequest::Kind;
  if (request.kind > Kind::mtu || request.host >= hosts) return false;
  return request.kind == Kind::host ||
         (is_word(request.name) && std::ranges::all_of(request.addresses, is_word));
}

}  // namespace

void keep_networks(int socket, const std::string& file, std::uint32_t hosts) {
  Keeper keeper{file, false};
  const auto bridge = make_bridge(keeper.has_users);
  auto network = bridge ? open_namespace("net") : Result<UniqueFd>(bridge.error());
  KeeperReady ready;
  if (!network) {
    ready.fault = network.error().message;
    static_cast<void>(send_message(socket, fields_of(ready)));
    return;
  }
  if (access(interfaces_file, R_OK | W_OK) != 0) {
    ready.no_interfaces = fmt::format("{}: {}", interfaces_file, std::strerror(errno));
  }
  const std::array<int, 1> fds = {network->get()};
  if (!send_message(socket, fields_of(ready), fds)) return;
  network->reset();
  for (;;) {
    pollfd wanted{socket, POLLIN, 0};
    if (poll(&wanted, 1, -1) < 0) continue;
    auto message = receive_message(socket);
    if (!message) return;
    const auto request = from_fields<KeeperRequest>(message->bytes);
    if (!request || !is_right(*request, hosts)) return;
    handle(socket, *request, message->fds, keeper);
  }
}

}  // namespace tulle::live
