// Measures what plain sockets do on this machine, to set beside RDMA's figures: the half round trip
// of a small message between two processes, over UDP or TCP, polling or blocking; and how long a
// TCP connection takes to set up.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  bool tcp = false;
  bool poll = false;
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

int pingpong(const Options& options) {
  const auto ends = connected_pair(options);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    echo_for_ever(ends[1], options.size);
    _exit(0);
  }
  close(ends[1]);
  std::vector<char> buffer(options.size);
  std::vector<double> microseconds;
  const int warm_up = options.iterations / 10;
  for (int i = -warm_up; i < options.iterations; ++i) {
    const auto start = Clock::now();
    send(ends[0], buffer.data(), buffer.size(), 0);
    if (!receive(ends[0], buffer)) die("recv");
    const std::chrono::duration<double, std::micro> round_trip = Clock::now() - start;
    if (i >= 0) microseconds.push_back(round_trip.count() / 2);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::sort(microseconds.begin(), microseconds.end());
  std::printf("{\"median_us\": %.3f, \"p99_us\": %.3f}\n", percentile(microseconds, 0.5),
              percentile(microseconds, 0.99));
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

int main(int argc, char** argv) {
  Options options;
  bool connect_only = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument(argv[i]);
    if (argument == "--udp") {
      options.tcp = false;
    } else if (argument == "--tcp") {
      options.tcp = true;
    } else if (argument == "--poll") {
      options.poll = true;
    } else if (argument == "--block") {
      options.poll = false;
    } else if (argument == "--connect") {
      connect_only = true;
    } else if (argument == "--size" && i + 1 < argc) {
      options.size = std::strtoul(argv[++i], nullptr, 10);
    } else if (argument == "--iterations" && i + 1 < argc) {
      options.iterations = std::atoi(argv[++i]);
    } else {
      std::fprintf(
          stderr,
          "usage: socket_pingpong --udp|--tcp --poll|--block [--size BYTES] [--iterations N]\n"
          "       socket_pingpong --connect [--iterations N]\n");
      return 2;
    }
  }
  if (options.size == 0 || options.iterations < 10) {
    std::fprintf(stderr, "socket_pingpong: at least 1 byte and 10 iterations\n");
    return 2;
  }
  return connect_only ? connection_setup(options.iterations) : pingpong(options);
}
