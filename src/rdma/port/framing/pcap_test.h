#pragma once

// Reads the RoCE v2 packets of a classic pcap file of Ethernet frames for tests. Examples are in
// tests/data/captures.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "places.h"
#include "rdma/wire/ip_udp.h"

namespace tulle::port {

struct Captured {
  std::size_t frame = 0;         // number of the frame in the file, from 1
  Time time;                     // time of day
  std::vector<std::byte> bytes;  // from the IP header to the ICRC
  wire::IpUdp ip;
  std::size_t header_bytes = 0;  // bytes of IP and UDP headers

  std::span<const std::byte> datagram() const { return std::span(bytes).subspan(header_bytes); }
};

inline std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

inline std::vector<Captured> roce_packets(const std::string& path) {
  constexpr std::size_t file_header = 24, record_header = 16, ethernet_header = 14;
  const std::vector<std::byte> file = read_file(path);
  std::vector<Captured> packets;
  std::size_t frame = 0;
  for (std::size_t at = file_header; at + record_header <= file.size();) {
    // All these files are little-endian and count microseconds.
    std::array<std::uint32_t, 3> record;
    std::memcpy(record.data(), file.data() + at, sizeof record);
    const auto [seconds, microseconds, captured] = record;
    at += record_header;
    const auto bytes = std::span(file).subspan(at + ethernet_header, captured - ethernet_header);
    at += captured;
    Captured packet;
    packet.frame = ++frame;
    // Picoseconds in 64 bits do not reach back to 1970, so the time of day must do.
    packet.time = Time::seconds(seconds % 86'400) + Time::microseconds(microseconds);
    const wire::DecodedIpUdp outer = wire::decode(bytes, packet.ip);
    if (!outer.ok || packet.ip.destination_port != wire::roce_v2_udp_port) continue;
    packet.header_bytes = outer.header_bytes;
    const auto whole = bytes.first(outer.header_bytes + outer.udp_payload_bytes);
    packet.bytes.assign(whole.begin(), whole.end());
    packets.push_back(std::move(packet));
  }
  return packets;
}

inline std::vector<std::filesystem::path> capture_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(TULLE_TEST_DATA "/captures")) {
    if (entry.path().extension() == ".pcap") files.push_back(entry.path());
  }
  return files;
}

}  // namespace tulle::port
