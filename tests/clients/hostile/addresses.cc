// The agent's address, the host's UDP port, and datagrams from the host's own addresses.

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "attack.h"
#include "rdma/wire/icrc.h"
#include "rdma/wire/ip_udp.h"

namespace hostile {

using namespace tulle::live;

namespace {

constexpr std::uint16_t port = tulle::wire::roce_v2_udp_port;

// --- names ---

int bind_name(const std::string& name, UniqueFd& fd, int type = SOCK_SEQPACKET) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  std::memcpy(un.sun_path, name.data(), name.size());
  fd.reset(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return bind(fd.get(), reinterpret_cast<sockaddr*>(&un), size) == 0 ? 0 : errno;
}

void bind_the_agents_name(Context& context, int) {
  const std::string own("\0tulle", 6);
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM, SOCK_DGRAM}) {
    UniqueFd fd;
    const int error = bind_name(own, fd, type);
    context.expect(type != SOCK_SEQPACKET || error == EADDRINUSE, "the agent's name is free");
    context.did();
  }
}
void bind_similar_names(Context& context, int) {
  const std::string names[] = {std::string("\0tulle\0", 7), std::string("\0tulle ", 7),
                               std::string("\0TULLE", 6),   std::string("\0tull", 5),
                               std::string(1, '\0'),        std::string("\0\0tulle", 7)};
  std::vector<UniqueFd> held;
  for (const std::string& name : names) {
    UniqueFd fd;
    if (bind_name(name, fd) == 0 && listen(fd.get(), 8) == 0) held.push_back(std::move(fd));
    context.did();
  }
  context.hold();  // programs that open devices now must not come here
  for (const UniqueFd& fd : held) {
    const UniqueFd come(accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    context.expect(!come, "a program connects to a similar name");
  }
}

// --- the port ---

struct BindRow {
  const char* name;
  bool is_ipv6;
  const char* address;
  bool reuses_port;
  bool reuses_address;
  bool is_of_device;
};
const BindRow bind_rows[] = {
    {"wildcard", false, "0.0.0.0", true, false, false},
    {"wildcard_ipv6", true, "::", true, false, false},
    {"one_address", false, "127.0.0.1", true, false, false},
    {"one_address_ipv6", true, "::1", true, false, false},
    {"mapped_address", true, "::ffff:127.0.0.1", true, false, false},
    {"reuse_address", false, "127.0.0.1", true, true, false},
    {"reuse_address_alone", false, "127.0.0.1", false, true, false},
    {"multicast_group", false, "224.1.2.3", true, true, false},
    {"one_interface", false, "127.0.0.1", true, true, true},
    {"one_interface_ipv6", true, "::", true, true, true},
};

// A socket that is bound more exactly than the port's group would get its datagrams.
void bind_the_port(Context& context, int number) {
  const BindRow& row = bind_rows[number];
  const UniqueFd fd(socket(row.is_ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (row.reuses_port) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
  if (row.reuses_address) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (row.is_of_device) setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, "lo", 3);
  sockaddr_storage name{};
  socklen_t size = sizeof(sockaddr_in);
  if (row.is_ipv6) {
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&name);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    inet_pton(AF_INET6, row.address, &in6->sin6_addr);
    size = sizeof(sockaddr_in6);
  } else {
    auto* in = reinterpret_cast<sockaddr_in*>(&name);
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    inet_pton(AF_INET, row.address, &in->sin_addr);
  }
  context.did();
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&name), size) != 0) return;
  context.expect(false, "a stranger's socket is bound to the port");
  Bytes buffer(70'000);
  for (int i = 0; i < 100; ++i) {
    const ssize_t bytes = recv(fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (bytes > 0) context.scan(std::span(buffer).first(static_cast<std::size_t>(bytes)));
    usleep(1'000);
  }
}

// --- datagrams ---

class Forger {
 public:
  explicit Forger(Context& context) : context_(context) {
    fd_.reset(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int keep_whole = IP_PMTUDISC_DO;
    setsockopt(fd_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &keep_whole, sizeof(keep_whole));
    sockaddr_in own = at(0);
    socklen_t size = sizeof(own);
    context.expect(bind(fd_.get(), reinterpret_cast<sockaddr*>(&own), size) == 0,
                   "no port is free");
    getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&own), &size);
    headers_.source = headers_.destination = Gid::from_ipv4(INADDR_LOOPBACK);
    headers_.source_port = ntohs(own.sin_port);
    find_queue_pairs();
  }

  // Sends BTH and the rest with a right ICRC, so that the receiver takes it for a packet.
  void send(std::uint8_t opcode, std::uint32_t qp, std::uint32_t psn,
            std::span<const std::byte> rest) {
    Bytes packet(12 + rest.size() + 4);
    const std::uint8_t bth[12] = {opcode,
                                  0,
                                  0xFF,
                                  0xFF,
                                  0,
                                  static_cast<std::uint8_t>(qp >> 16),
                                  static_cast<std::uint8_t>(qp >> 8),
                                  static_cast<std::uint8_t>(qp),
                                  0x80,
                                  static_cast<std::uint8_t>(psn >> 16),
                                  static_cast<std::uint8_t>(psn >> 8),
                                  static_cast<std::uint8_t>(psn)};
    std::memcpy(packet.data(), bth, sizeof(bth));
    std::copy(rest.begin(), rest.end(), packet.begin() + 12);
    std::byte ip[48];
    const std::size_t ip_bytes = tulle::wire::encode_for_icrc(headers_, packet.size(), ip);
    tulle::wire::Icrc icrc;
    icrc.update(std::span(ip).first(ip_bytes));
    std::byte head[12];
    std::memcpy(head, bth, sizeof(head));
    tulle::wire::mask_bth(head);
    icrc.update(head);
    icrc.update(rest);
    tulle::wire::put_icrc(icrc.value(), std::span<std::byte, 4>(packet.end() - 4, packet.end()));
    send_bytes(packet);
  }
  void send_bytes(std::span<const std::byte> bytes) {
    const sockaddr_in to = at(port);
    sendto(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&to), sizeof(to));
    context_.did();
  }
  int socket_number() const { return fd_.get(); }
  // A queue pair that a victim has, has had or may have soon.
  std::uint32_t a_queue_pair() {
    if (first_qps_.empty()) return 2;
    const auto drawn = context_.random.next();
    return first_qps_[drawn % first_qps_.size()] + static_cast<std::uint32_t>(drawn >> 32) % 64;
  }

 private:
  static sockaddr_in at(std::uint16_t number) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(number);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return in;
  }
  // Any user may ask for the status, which tells these numbers.
  void find_queue_pairs() {
    const UniqueFd connection = to_agent();
    send_raw(connection.get(), encode(hello(Purpose::status)));
    for (int i = 0; i < 130; ++i) {
      const auto message = next(context_, connection.get(), 500);
      ProcessStatus process;
      if (!message) break;
      if (decode(message->bytes, process)) first_qps_.push_back(process.first_qp);
    }
  }

  Context& context_;
  UniqueFd fd_;
  tulle::wire::IpUdp headers_;
  std::vector<std::uint32_t> first_qps_;
};

struct PacketRow {
  const char* name;
  std::uint8_t opcode;
  std::size_t rest;  // bytes behind the BTH
};
const PacketRow packet_rows[] = {
    {"rc_send", 0x04, 1'024},         {"rc_send_first", 0x00, 4'096},
    {"rc_write", 0x0A, 16 + 256},     {"rc_write_first", 0x06, 16 + 4'096},
    {"rc_read_request", 0x0C, 16},    {"rc_read_response", 0x10, 4 + 4'096},
    {"rc_acknowledgement", 0x11, 4},  {"rc_atomic", 0x13, 28},
    {"rc_atomic_response", 0x12, 12}, {"rc_send_with_invalidate", 0x17, 4 + 64},
    {"uc_write", 0x2A, 16 + 256},     {"ud_send", 0x64, 8 + 256},
    {"xrc_send", 0xA4, 4 + 256},      {"congestion_notification", 0x81, 16},
    {"unknown_opcode", 0xFF, 64}};

// A flood takes the receivers' processors. A trickle does not, and must not slow them down either,
// as it would if a forged packet made them send again or send less.
constexpr int trickles = 0x100;

void forge_packets(Context& context, int argument) {
  const PacketRow& row = packet_rows[argument & ~trickles];
  const bool is_trickle = (argument & trickles) != 0;
  Forger forger(context);
  Bytes rest(row.rest);
  for (int i = 0; i < (is_trickle ? 100 : 1'000); ++i) {
    for (std::size_t n = 0; n < std::min<std::size_t>(rest.size(), 40); ++n) {
      rest[n] = static_cast<std::byte>(context.random.next());
    }
    forger.send(row.opcode, forger.a_queue_pair(),
                static_cast<std::uint32_t>(context.random.next()) & 0xFF'FFFF, rest);
    if (is_trickle || i % 32 == 31) usleep(is_trickle ? 1'000 : 200);
  }
}
// CM messages (IBTA 12.6) to QP1, as from the host itself.
void forge_management(Context& context, int attribute) {
  Forger forger(context);
  Bytes rest(8 + 256);
  for (int i = 0; i < 500; ++i) {
    for (std::byte& byte : rest) byte = static_cast<std::byte>(context.random.next());
    const std::uint8_t front[8] = {0x80, 0x01, 0, 0, 0, 0, 0, 1};  // DETH: the Q_Key of QP1
    const std::uint8_t mad[4] = {1, static_cast<std::uint8_t>(attribute == 0 ? 4 : 7), 2, 3};
    std::memcpy(rest.data(), front, sizeof(front));
    std::memcpy(rest.data() + 8, mad, sizeof(mad));
    rest[8 + 16] = std::byte{0};
    rest[8 + 17] = static_cast<std::byte>(attribute);
    forger.send(0x64, i % 16 == 0 ? 0 : 1, static_cast<std::uint32_t>(i), rest);
    if (i % 32 == 31) usleep(200);
  }
}
void send_garbage(Context& context, int) {
  Forger forger(context);
  for (const std::size_t size : {0u, 1u, 11u, 12u, 15u, 16u, 100u, 1'500u, 9'000u, 65'507u}) {
    Bytes bytes(size);
    for (int i = 0; i < 50; ++i) {
      for (std::size_t n = 0; n < std::min<std::size_t>(size, 40); ++n) {
        bytes[n] = static_cast<std::byte>(context.random.next());
      }
      if (size > 8) bytes[5] = static_cast<std::byte>(forger.a_queue_pair() >> 16);
      forger.send_bytes(bytes);
    }
  }
}
void send_segments(Context& context, int) {
  Forger forger(context);
  const int segment = 13;
  setsockopt(forger.socket_number(), IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment));
  Bytes bytes(13 * 60);
  for (int i = 0; i < 200; ++i) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(context.random.next());
    forger.send_bytes(bytes);
  }
}

}  // namespace

std::vector<Attack> address_attacks() {
  std::vector<Attack> attacks = {{"address.agents_name", bind_the_agents_name},
                                 {"address.similar_names", bind_similar_names},
                                 {"datagram.garbage", send_garbage, 0, true},
                                 {"datagram.joined_segments", send_segments, 0, true}};
  for (int row = 0; row < static_cast<int>(std::size(bind_rows)); ++row) {
    attacks.push_back({std::string("port.") + bind_rows[row].name, bind_the_port, row});
  }
  for (int row = 0; row < static_cast<int>(std::size(packet_rows)); ++row) {
    attacks.push_back({std::string("datagram.") + packet_rows[row].name, forge_packets, row, true});
    attacks.push_back(
        {std::string("trickle.") + packet_rows[row].name, forge_packets, row | trickles});
  }
  const std::pair<const char*, int> messages[] = {
      {"performance", 0},         {"request", 0x10},
      {"reject", 0x12},           {"reply", 0x13},
      {"ready_to_use", 0x14},     {"disconnect_request", 0x15},
      {"disconnect_reply", 0x16}, {"service_request", 0x17}};
  for (const auto& [name, attribute] : messages) {
    attacks.push_back({std::string("management.") + name, forge_management, attribute, true});
  }
  return attacks;
}

}  // namespace hostile
