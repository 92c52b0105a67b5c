// Measures what plain sockets do on this machine, to set beside RDMA's figures: the half round trip
// of a small message between two processes, over UDP or TCP, polling or blocking; and how long a
// TCP connection takes to set up. Over UDP the two may be started apart, in different namespaces:
// first the one without an address, which answers, then the one that is told the other's address.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  bool tcp = false;
  bool poll = false;
  std::string peer;  // empty: both processes are of this program, unless there is a port
  std::uint16_t port = 0;
  std::size_t size = 8;
  int iterations = 20'000;
};

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

sockaddr_in loopback() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Returns a socket on a port of the kernel's choice, and stores its address.
int bound_socket(int type, sockaddr_in& address) {
  const int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
  address = loopback();
  socklen_t length = sizeof address;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    die("bind");
  }
  return fd;
}

void connect_to(int fd, const sockaddr_in& address) {
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) die("connect");
}

void prepare(int fd, const Options& options) {
  const int yes = 1;
  if (options.tcp) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (options.poll) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

// Returns two connected ends. The second is for the child.
std::array<int, 2> connected_pair(const Options& options) {
  std::array<int, 2> ends{};
  sockaddr_in first{}, second{};
  if (options.tcp) {
    const int listener = bound_socket(SOCK_STREAM, first);
    if (listen(listener, 1) != 0) die("listen");
    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    connect_to(ends[0], first);
    ends[1] = accept(listener, nullptr, nullptr);
    close(listener);
  } else {
    ends = {bound_socket(SOCK_DGRAM, first), bound_socket(SOCK_DGRAM, second)};
    connect_to(ends[0], second);
    connect_to(ends[1], first);
  }
  for (const int fd : ends) prepare(fd, options);
  return ends;
}

// Returns false if the peer is gone.
bool receive(int fd, std::vector<char>& buffer) {
  for (std::size_t received = 0; received < buffer.size();) {
    const ssize_t n = recv(fd, buffer.data() + received, buffer.size() - received, 0);
    if (n > 0) {
      received += static_cast<std::size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    }
  }
  return true;
}

void echo_for_ever(int fd, std::size_t size) {
  std::vector<char> buffer(size);
  while (receive(fd, buffer)) send(fd, buffer.data(), buffer.size(), MSG_NOSIGNAL);
}

double percentile(const std::vector<double>& sorted, double part) {
  return sorted[static_cast<std::size_t>(static_cast<double>(sorted.size() - 1) * part)];
}

void measure(int fd, const Options& options) {
  std::vector<char> buffer(options.size);
  std::vector<double> microseconds;
  const int warm_up = options.iterations / 10;
  for (int i = -warm_up; i < options.iterations; ++i) {
    const auto start = Clock::now();
    send(fd, buffer.data(), buffer.size(), 0);
    if (!receive(fd, buffer)) die("recv");
    const std::chrono::duration<double, std::micro> round_trip = Clock::now() - start;
    if (i >= 0) microseconds.push_back(round_trip.count() / 2);
  }
  std::sort(microseconds.begin(), microseconds.end());
  std::printf("{\"median_us\": %.3f, \"p99_us\": %.3f}\n", percentile(microseconds, 0.5),
              percentile(microseconds, 0.99));
}

int pingpong(const Options& options) {
  const auto ends = connected_pair(options);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    echo_for_ever(ends[1], options.size);
    _exit(0);
  }
  close(ends[1]);
  measure(ends[0], options);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return 0;
}

// Answers the first peer that sends, until an empty datagram comes from it.
int answer(const Options& options) {
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_port = htons(options.port);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0) die("bind");
  sockaddr_in peer{};
  socklen_t length = sizeof peer;
  std::vector<char> first(options.size);
  const ssize_t n =
      recvfrom(fd, first.data(), first.size(), 0, reinterpret_cast<sockaddr*>(&peer), &length);
  if (n < 0) die("recvfrom");
  connect_to(fd, peer);
  prepare(fd, options);
  send(fd, first.data(), first.size(), MSG_NOSIGNAL);
  echo_for_ever(fd, options.size);
  return 0;
}

int ask(const Options& options) {
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(options.port);
  if (inet_pton(AF_INET, options.peer.c_str(), &peer.sin_addr) != 1) {
    std::fprintf(stderr, "socket_pingpong: %s is no IPv4 address\n", options.peer.c_str());
    return 2;
  }
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  connect_to(fd, peer);
  prepare(fd, options);
  measure(fd, options);
  send(fd, nullptr, 0, 0);
  return 0;
}

int connection_setup(int count) {
  sockaddr_in address{};
  const int listener = bound_socket(SOCK_STREAM, address);
  if (listen(listener, 64) != 0) die("listen");
  const auto start = Clock::now();
  for (int i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    connect_to(fd, address);
    const int accepted = accept(listener, nullptr, nullptr);
    if (accepted < 0) die("accept");
    close(fd);
    close(accepted);
  }
  const std::chrono::duration<double, std::micro> all = Clock::now() - start;
  std::printf("{\"mean_us\": %.3f}\n", all.count() / count);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Measures plain sockets between two processes of this machine. Prints JSON.");
  Options options;
  bool connect_only = false;
  bool udp = false;
  bool block = false;
  auto* const kind = app.add_option_group("kind");
  kind->add_flag("--udp", udp, "half a round trip over UDP");
  auto* const tcp = kind->add_flag("--tcp", options.tcp, "half a round trip over TCP");
  kind->add_flag("--connect", connect_only, "the set-up of TCP connections");
  kind->require_option(1);
  auto* const poll = app.add_flag("--poll", options.poll, "both sides poll");
  app.add_flag("--block", block, "both sides sleep")->excludes(poll);
  app.add_option("--size", options.size, "bytes of a message (8)")->check(CLI::Range(1, 65'000));
  app.add_option("--iterations", options.iterations, "round trips, or connections (20000)")
      ->check(CLI::Range(10, 100'000'000));
  auto* const port = app.add_option("-p", options.port, "UDP port: the two are started apart");
  app.add_option("peer", options.peer, "IPv4 address of the one that answers")->needs(port);
  port->excludes(tcp);
  CLI11_PARSE(app, argc, argv);
  if (connect_only) return connection_setup(options.iterations);
  if (options.port == 0) return pingpong(options);
  return options.peer.empty() ? answer(options) : ask(options);
} catch (const std::exception& error) {
  std::fprintf(stderr, "socket_pingpong: %s\n", error.what());
  return 1;
}
