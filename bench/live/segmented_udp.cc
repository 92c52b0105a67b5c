// Measures how much plain UDP carries with segments: each call hands the kernel a piece of up to
// 62 KiB, which it cuts into datagrams and joins again at the other end. The two are started
// apart, in different namespaces: first the one without an address, which receives.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
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

constexpr std::size_t piece_bytes = 62 << 10;
constexpr int socket_bytes = 4 << 20;

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

void set(int fd, int level, int option, int value) {
  if (setsockopt(fd, level, option, &value, sizeof value) != 0) die("setsockopt");
}

sockaddr_in address_of(std::uint32_t host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = host;
  address.sin_port = htons(port);
  return address;
}

// Receives until nothing comes for a while, and tells the sender the rate.
int receive(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const sockaddr_in own = address_of(INADDR_ANY, port);
  if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0) die("bind");
  set(fd, IPPROTO_UDP, UDP_GRO, 1);
  set(fd, SOL_SOCKET, SO_RCVBUF, socket_bytes);
  std::vector<char> room(64 << 10);
  sockaddr_in peer{};
  socklen_t length = sizeof peer;
  auto* const from = reinterpret_cast<sockaddr*>(&peer);
  if (recvfrom(fd, room.data(), room.size(), 0, from, &length) < 0) die("recvfrom");
  const auto start = Clock::now();
  auto last = start;
  std::uint64_t bytes = 0;
  pollfd waiting{fd, POLLIN, 0};
  while (poll(&waiting, 1, 300) == 1) {
    const ssize_t n = recv(fd, room.data(), room.size(), 0);
    if (n < 0) die("recv");
    bytes += static_cast<std::uint64_t>(n);
    last = Clock::now();
  }
  const double seconds = std::chrono::duration<double>(last - start).count();
  const double rate = static_cast<double>(bytes) / seconds / 1e9;
  if (sendto(fd, &rate, sizeof rate, 0, from, length) != sizeof rate) die("sendto");
  return 0;
}

int send_to(const std::string& peer, std::uint16_t port, int segment_bytes, double seconds) {
  in_addr host{};
  if (inet_pton(AF_INET, peer.c_str(), &host) != 1) {
    std::fprintf(stderr, "segmented_udp: %s is no IPv4 address\n", peer.c_str());
    return 2;
  }
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const sockaddr_in to = address_of(host.s_addr, port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) die("connect");
  set(fd, IPPROTO_UDP, UDP_SEGMENT, segment_bytes);
  set(fd, SOL_SOCKET, SO_SNDBUF, socket_bytes);
  const std::vector<char> piece(piece_bytes / static_cast<std::size_t>(segment_bytes) *
                                static_cast<std::size_t>(segment_bytes));
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < until) {
    if (send(fd, piece.data(), piece.size(), 0) < 0 && errno != ENOBUFS) die("send");
  }
  pollfd waiting{fd, POLLIN, 0};
  double rate = 0;
  if (poll(&waiting, 1, 5'000) != 1 || recv(fd, &rate, sizeof rate, 0) != sizeof rate) {
    std::fprintf(stderr, "segmented_udp: %s does not tell its rate\n", peer.c_str());
    return 1;
  }
  std::printf("{\"gb_per_second\": %.3f}\n", rate);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Measures UDP with segments between two processes. Prints JSON.");
  std::uint16_t port = 0;
  std::string peer;
  int segment_bytes = 1472;
  double seconds = 2;
  app.add_option("-p", port, "UDP port")->required()->check(CLI::Range(1, 65'535));
  app.add_option("--segment", segment_bytes, "bytes of a datagram's payload (1472)")
      ->check(CLI::Range(64, 32'000));
  app.add_option("--seconds", seconds, "how long to send (2)")->check(CLI::Range(0.1, 600.0));
  app.add_option("peer", peer, "IPv4 address of the one that receives");
  CLI11_PARSE(app, argc, argv);
  return peer.empty() ? receive(port) : send_to(peer, port, segment_bytes, seconds);
} catch (const std::exception& error) {
  std::fprintf(stderr, "segmented_udp: %s\n", error.what());
  return 1;
}
