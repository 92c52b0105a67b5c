#include "live/fabric/network_keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "fabric/subnet.h"
#include "live/fabric/host_networks.h"
#include "live/fabric/namespaces.h"
#include "live/message/socket.h"
#include "live/system_error.h"
#include "live/unique_fd.h"

namespace tulle::live {
namespace {

constexpr int kinds = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS;
constexpr char names_file[] = "/etc/hosts";

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

// Runs iproute2's `ip` in this process's namespaces with these commands, one a line.
Result<void> run_ip(const std::string& commands) {
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
  std::string name = "ip", batch = "-batch", from = "-";
  char* arguments[] = {name.data(), batch.data(), from.data(), nullptr};
  pid_t process = 0;
  const int error = posix_spawnp(&process, "ip", &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
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
        fmt::format("this machine has no {}, in whose place the hosts have another", names_file)};
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
    if (auto kept = keep_capabilities(); !kept) return kept;  // for `ip`
  }
  // What the hosts mount is theirs alone.
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

// Makes this process one of a new host, whose cable ends at the bridge. `keeper` is in the bridge's
// namespaces.
Result<void> become_host(std::uint32_t host, const std::string& file, pid_t keeper) {
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
  auto made =
      run_ip(fmt::format("link set lo up\n"
                         "link add name eth0 type veth peer name {} netns {}\n"
                         "address add {}/16 dev eth0\n"
                         "link set eth0 up\n",
                         name, keeper, host_address(host)));
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
Result<void> send_namespaces(int socket, std::uint32_t host, bool has_users) {
  std::vector<UniqueFd> opened;
  std::vector<int> numbers;
  for (const char* kind : {"user", "net", "mnt", "uts"}) {
    if (!has_users && kind == std::string_view("user")) continue;
    auto one = open_namespace(kind);
    if (!one) return one.error();
    numbers.push_back(one->get());
    opened.push_back(std::move(*one));
  }
  const std::string number = fmt::format("{}", host);
  return send_message(socket, std::as_bytes(std::span(number)), numbers);
}

void send_text(int socket, const std::string& text) {
  static_cast<void>(send_message(socket, std::as_bytes(std::span(text))));
}

// Makes a host in a process of its own, since it does not stay in the bridge's namespaces. What has
// been made before something fails goes with the process.
void make_host(int socket, std::uint32_t host, const std::string& file, bool has_users) {
  const pid_t keeper = getpid();
  const pid_t maker = fork();
  if (maker == 0) {
    auto made = become_host(host, file, keeper);
    if (made) made = send_namespaces(socket, host, has_users);
    if (!made) send_text(socket, fmt::format("{} {}", host, made.error().message));
    _exit(0);
  }
  int status = 0;
  if (maker > 0) waitpid(maker, &status, 0);
  if (maker > 0 && status == 0) return;
  send_text(socket, fmt::format("{} the process that makes it has ended early", host));
}

}  // namespace

void keep_networks(int socket, const std::string& file, std::uint32_t hosts) {
  bool has_users = false;
  const auto bridge = make_bridge(has_users);
  if (!bridge) return send_text(socket, bridge.error().message);
  auto network = open_namespace("net");
  if (!network) return send_text(socket, network.error().message);
  const std::array<int, 1> fds = {network->get()};
  if (!send_message(socket, std::as_bytes(std::span(bridge_ready)), fds)) return;
  network->reset();
  for (;;) {
    pollfd request{socket, POLLIN, 0};
    if (poll(&request, 1, -1) < 0) continue;
    auto message = receive_message(socket);
    if (!message) return;
    const auto* text = reinterpret_cast<const char*>(message->bytes.data());
    std::uint32_t host = 0;
    const auto read = std::from_chars(text, text + message->bytes.size(), host);
    if (read.ec != std::errc() || host >= hosts) return;
    make_host(socket, host, file, has_users);
  }
}

}  // namespace tulle::live
