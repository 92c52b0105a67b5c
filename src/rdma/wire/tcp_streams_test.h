#pragma once

// Test support: the byte streams of the TCP connections in a classic pcap file of Ethernet frames.
// They are reassembled from segments that may be lost, damaged or out of order.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "places.h"

namespace tulle::wire {

// One direction of a connection. Streams are listed in the order in which their first segments were
// captured.
struct TcpStream {
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::vector<std::byte> bytes;
  bool complete = true;  // no hole is left
};

namespace tcp_streams {

using Bytes = std::span<const std::byte>;

inline std::uint32_t number(Bytes bytes, std::size_t at, std::size_t count) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < count; ++i) {
    value = value << 8 | std::to_integer<std::uint32_t>(bytes[at + i]);
  }
  return value;
}

// Returns the checksum of the pseudo-header and the segment (RFC 9293 3.1): 0 if nothing is
// damaged.
inline std::uint16_t checksum(Bytes addresses, Bytes segment) {
  std::uint32_t sum = 6 + static_cast<std::uint32_t>(segment.size());
  for (const Bytes part : {addresses, segment}) {
    for (std::size_t i = 0; i < part.size(); ++i) {
      sum += std::to_integer<std::uint32_t>(part[i]) << (i % 2 == 0 ? 8 : 0);
    }
  }
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

struct Assembly {
  TcpStream stream;
  std::uint32_t first = 0;                                   // sequence number of its first byte
  std::map<std::uint32_t, std::vector<std::byte>> segments;  // by distance from `first`
};

inline TcpStream assemble(Assembly& from) {
  TcpStream& stream = from.stream;
  for (const auto& [at, bytes] : from.segments) {
    if (at > stream.bytes.size()) stream.complete = false;
    if (at > stream.bytes.size() || at + bytes.size() <= stream.bytes.size()) continue;
    const auto known = static_cast<std::ptrdiff_t>(stream.bytes.size() - at);
    stream.bytes.insert(stream.bytes.end(), bytes.begin() + known, bytes.end());
  }
  return stream;
}

}  // namespace tcp_streams

inline std::vector<TcpStream> tcp_streams_of(const std::filesystem::path& path) {
  using namespace tcp_streams;
  std::ifstream input(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(input)), {});
  const Bytes file = std::as_bytes(std::span(text));
  constexpr std::size_t file_header = 24, record_header = 16, ethernet_header = 14;
  std::vector<Assembly> all;
  for (std::size_t at = file_header; at + record_header <= file.size();) {
    std::uint32_t captured;  // little-endian, as all these files are
    std::memcpy(&captured, file.data() + at + 8, sizeof captured);
    const Bytes ip = file.subspan(at + record_header + ethernet_header, captured - ethernet_header);
    at += record_header + captured;
    const bool is_v4 = number(ip, 0, 1) >> 4 == 4;
    const std::size_t ip_header = is_v4 ? 4 * (number(ip, 0, 1) & 0xF) : 40;
    if (number(ip, is_v4 ? 9 : 6, 1) != 6) continue;
    const std::size_t end = is_v4 ? number(ip, 2, 2) : 40 + number(ip, 4, 2);
    const Bytes segment = ip.subspan(ip_header, end - ip_header);
    if (checksum(is_v4 ? ip.subspan(12, 8) : ip.subspan(8, 32), segment) != 0) continue;
    const auto from = static_cast<std::uint16_t>(number(segment, 0, 2));
    const auto to = static_cast<std::uint16_t>(number(segment, 2, 2));
    const std::uint32_t sequence = number(segment, 4, 4);
    const bool is_first = (number(segment, 13, 1) & 2) != 0;  // SYN
    auto found = all.begin();
    while (found != all.end() && std::tie(found->stream.source_port,
                                          found->stream.destination_port) != std::tie(from, to)) {
      ++found;
    }
    if (found == all.end()) found = all.insert(all.end(), {{from, to, {}}, sequence, {}});
    if (is_first) found->first = sequence + 1;
    const Bytes payload = segment.subspan(4 * (number(segment, 12, 1) >> 4));
    if (payload.empty()) continue;
    auto& kept = found->segments[sequence - found->first];
    if (payload.size() > kept.size()) kept.assign(payload.begin(), payload.end());
  }
  std::vector<TcpStream> streams;
  streams.reserve(all.size());
  for (Assembly& assembly : all) streams.push_back(assemble(assembly));
  return streams;
}

// The streams of the two ends of an iWARP connection, which begin with MPA's keys.
struct IwarpConnection {
  TcpStream request;
  TcpStream reply;
};

inline std::vector<IwarpConnection> iwarp_connections_of(const std::filesystem::path& path) {
  const auto begins = [](const TcpStream& stream, std::string_view key) {
    return stream.bytes.size() >= key.size() &&
           std::memcmp(stream.bytes.data(), key.data(), key.size()) == 0;
  };
  const std::vector<TcpStream> streams = tcp_streams_of(path);
  std::vector<IwarpConnection> connections;
  for (const TcpStream& request : streams) {
    if (!begins(request, "MPA ID Req Frame")) continue;
    for (const TcpStream& reply : streams) {
      if (begins(reply, "MPA ID Rep Frame") && reply.source_port == request.destination_port &&
          reply.destination_port == request.source_port) {
        connections.push_back({request, reply});
      }
    }
  }
  return connections;
}

inline std::vector<std::filesystem::path> iwarp_captures() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(TULLE_TEST_DATA "/captures")) {
    if (entry.path().filename().string().starts_with("iwarp_")) files.push_back(entry.path());
  }
  return files;
}

}  // namespace tulle::wire
