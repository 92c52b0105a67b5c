#include "study/experiment/capture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/check.h"
#include "rdma/pcapng/erf.h"
#include "rdma/port/framing/infiniband.h"
#include "rdma/port/framing/roce_v1.h"
#include "rdma/port/framing/roce_v2.h"
#include "rdma/wire/ethernet.h"
#include "rdma/wire/header.h"
#include "rdma/wire/tcp.h"

namespace tulle::experiment {
namespace {

constexpr std::size_t flush_bytes = 1 << 20;
constexpr std::size_t ethernet_bytes = sizeof(wire::Ethernet);

std::array<std::byte, ethernet_bytes> ethernet_header(const port::Frame& frame) {
  std::array<std::byte, ethernet_bytes> header;
  const wire::Ethernet ethernet{sim::mac_of(frame.destination), sim::mac_of(frame.source),
                                wire::ether_type_ipv4};
  std::span<std::byte> rest(header);
  wire::put(ethernet, rest);
  return header;
}

wire::Packet packet_of(const port::Frame& frame) {
  wire::Packet packet;
  const wire::Decoded decoded =
      wire::decode(std::span(frame.header).first(frame.header_bytes), packet);
  TULLE_CHECK(decoded.status == wire::DecodeStatus::ok);
  return packet;
}

// True if bit errors damaged the frame and this is the receiving end. The sender of a frame does
// not know that bits of it will be wrong at the receiver.
bool is_found_damaged(const port::Frame& frame, pcapng::Direction direction) {
  return frame.damaged != 0 && direction == pcapng::Direction::inbound;
}

// Returns zeros, which represent the payload of a ghost.
std::span<const std::byte> zeros(std::uint32_t bytes) {
  static constexpr std::array<std::byte, 9'216> all{};
  return std::span(all).first(bytes);
}

std::span<const std::byte> payload_of(const sim::Sending& sending) {
  if (sending.payload != nullptr) return {sending.payload, sending.frame->payload_bytes};
  return zeros(sending.frame->payload_bytes);
}

// Returns the bytes of the payload that are in memory, and zeros for the rest, which is a ghost.
std::array<std::span<const std::byte>, 2> payload_pieces_of(const sim::Sending& sending) {
  if (sending.payload == nullptr) return {payload_of(sending)};
  const std::uint32_t there = sending.frame->payload_bytes - sending.ghost_bytes;
  return {std::span(sending.payload, there), zeros(sending.ghost_bytes)};
}

// Opening a FIFO without a reader would wait for one without end.
Result<void> open_output(const std::string& path, std::ofstream& out) {
  struct stat its {};
  const bool is_fifo = stat(path.c_str(), &its) == 0 && S_ISFIFO(its.st_mode);
  const int fifo = is_fifo ? open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC) : -1;
  if (is_fifo && fifo < 0 && errno == ENXIO) {
    return Error{fmt::format("{}: nobody reads from this FIFO; start its reader first", path),
                 ENXIO};
  }
  out.open(path, std::ios::binary | std::ios::trunc);
  const int number = errno;
  if (fifo >= 0) close(fifo);
  if (!out) return Error{fmt::format("{}: {}", path, std::strerror(number)), number};
  return {};
}

}  // namespace

Result<std::unique_ptr<Capture>> Capture::open(const std::string& path,
                                               const std::vector<std::string>& nodes,
                                               const fabric::Topology& topology,
                                               const sim::NetworkSettings& network) {
  std::unique_ptr<Capture> capture(new Capture(topology, network));
  capture->path_ = path;
  if (auto opened = open_output(path, capture->out_); !opened) return opened.error();
  capture->pcapng_.section_header(capture->buffer_, "tulle sim");
  capture->interface_of_.resize(topology.nodes());
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
    capture->interface_of_[node].assign(topology.ports[node], none);
  }
  for (const std::string& wanted : nodes) {
    const auto found = topology.find(wanted);
    if (!found) {
      return Error{
          fmt::format("--capture-at: there is no \"{}\" here; nodes are called \"{}\" to "
                      "\"{}\"",
                      wanted, topology.name(0), topology.name(topology.nodes() - 1))};
    }
    const std::uint32_t node = *found;
    for (std::uint16_t port = 0; port < topology.ports[node]; ++port) {
      const auto& peer = capture->wiring_.peer(node, port);
      if (peer.link == fabric::Wiring::no_link) continue;
      capture->add_interface(fmt::format("{} port {}", wanted, port), node, port,
                             topology.links[peer.link].bits_per_second);
    }
  }
  return capture;
}

void Capture::add_interface(const std::string& name, std::uint32_t node, std::uint16_t port,
                            std::int64_t rate) {
  pcapng::CaptureInterface interface;
  interface.name = name;
  interface.link_type =
      link_layer_ == sim::LinkLayer::ethernet ? pcapng::LinkType::ethernet : pcapng::LinkType::erf;
  interface.bits_per_second = static_cast<std::uint64_t>(rate);
  interface_of_[node][port] = pcapng_.interface(buffer_, interface);
}

void Capture::sends(const sim::Sending& sending) {
  if (sending.frame == nullptr) return;
  const std::uint32_t out = interface_of_[sending.node][sending.port];
  if (out != none) write(out, pcapng::Direction::outbound, sending);
  if (sending.lost) return;
  const auto& peer = wiring_.peer(sending.node, sending.port);
  const std::uint32_t in = interface_of_[peer.node][peer.port];
  if (in != none) write(in, pcapng::Direction::inbound, sending);
}

void Capture::write(std::uint32_t interface, pcapng::Direction direction,
                    const sim::Sending& sending) {
  if (sending.frame->is_tcp()) {
    write_tcp(interface, direction, sending);
  } else if (is_roce_v1_) {
    write_roce_v1(interface, direction, sending);
  } else if (link_layer_ == sim::LinkLayer::ethernet) {
    write_roce(interface, direction, sending);
  } else {
    write_infiniband(interface, direction, sending);
  }
  ++frames_;
  if (buffer_.size() >= flush_bytes) flush();
}

void Capture::write_roce(std::uint32_t interface, pcapng::Direction direction,
                         const sim::Sending& sending) {
  const port::Frame& frame = *sending.frame;
  const std::span<const std::byte> payload = payload_of(sending);
  wire::IpUdp ip = sim::ip_of(frame);
  port::FrameBytes framed;
  port::encode(ip, packet_of(frame), {&payload, 1}, framed);

  const std::array<std::byte, ethernet_bytes> ethernet = ethernet_header(frame);
  const std::size_t udp_payload = framed.head_bytes + payload.size() + framed.tail_bytes;
  const std::array<std::span<const std::byte>, 3> datagram = {
      std::span(framed.head).first(framed.head_bytes), payload,
      std::span(framed.tail).first(framed.tail_bytes)};
  ip.udp_checksum = wire::udp_checksum(ip, datagram);
  std::array<std::byte, wire::ipv6_header_bytes + wire::udp_header_bytes> headers;
  const std::size_t headers_bytes = wire::encode(ip, udp_payload, headers);
  const std::array<std::span<const std::byte>, 5> pieces = {
      ethernet, std::span(headers).first(headers_bytes), datagram[0], datagram[1], datagram[2]};
  write_pieces(interface, direction, sending, pieces);
}

void Capture::write_roce_v1(std::uint32_t interface, pcapng::Direction direction,
                            const sim::Sending& sending) {
  const port::Frame& frame = *sending.frame;
  const std::span<const std::byte> payload = payload_of(sending);
  port::FrameBytes framed;
  port::roce_v1.encode(sim::ethernet_path_of(frame), packet_of(frame), {&payload, 1}, framed);
  const std::array<std::span<const std::byte>, 3> pieces = {
      std::span(framed.head).first(framed.head_bytes), payload,
      std::span(framed.tail).first(framed.tail_bytes)};
  write_pieces(interface, direction, sending, pieces);
}

void Capture::write_tcp(std::uint32_t interface, pcapng::Direction direction,
                        const sim::Sending& sending) {
  const port::Frame& frame = *sending.frame;
  const auto payload = payload_pieces_of(sending);
  wire::Tcp tcp;
  const wire::DecodedTcp decoded =
      wire::decode(std::span(frame.header).first(frame.header_bytes), tcp);
  TULLE_CHECK(decoded.ok);
  const wire::IpUdp ip = sim::ip_of(frame);
  tcp.checksum = wire::tcp_checksum(ip, tcp, payload);
  std::array<std::byte, wire::ipv4_header_bytes + wire::tcp_header_bytes_max> headers;
  std::size_t bytes =
      wire::encode_ipv4_tcp(ip, decoded.header_bytes + frame.payload_bytes, headers);
  bytes += wire::encode(tcp, std::span(headers).subspan(bytes));
  const std::array<std::byte, ethernet_bytes> ethernet = ethernet_header(frame);
  const std::array<std::span<const std::byte>, 4> pieces = {
      ethernet, std::span(headers).first(bytes), payload[0], payload[1]};
  write_pieces(interface, direction, sending, pieces);
}

void Capture::write_infiniband(std::uint32_t interface, pcapng::Direction direction,
                               const sim::Sending& sending) {
  const port::Frame& frame = *sending.frame;
  const std::span<const std::byte> payload = payload_of(sending);
  port::FrameBytes framed;
  wire::LocalPath path;
  path.local = sim::local_route_of(frame, lmc_);
  port::encode(path, packet_of(frame), {&payload, 1}, framed);
  const std::size_t bytes = framed.head_bytes + payload.size() + framed.tail_bytes;
  const auto record =
      pcapng::erf_header(sending.now, pcapng::ErfType::infiniband,
                         static_cast<std::uint32_t>(bytes), is_found_damaged(frame, direction));
  const std::array<std::span<const std::byte>, 4> pieces = {
      record, std::span(framed.head).first(framed.head_bytes), payload,
      std::span(framed.tail).first(framed.tail_bytes)};
  write_pieces(interface, direction, sending, pieces);
}

void Capture::write_pieces(std::uint32_t interface, pcapng::Direction direction,
                           const sim::Sending& sending,
                           std::span<const std::span<const std::byte>> pieces) {
  std::size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  pcapng_.packet(buffer_, sending.now, direction, interface, pieces,
                 static_cast<std::uint32_t>(bytes), is_found_damaged(*sending.frame, direction));
}

void Capture::flush() {
  out_.write(reinterpret_cast<const char*>(buffer_.data()),
             static_cast<std::streamsize>(buffer_.size()));
  remember_failure();
  buffer_.clear();
}

// Keeps the error of the first failure, while errno still names it.
void Capture::remember_failure() {
  if (!out_ && error_ == 0) error_ = errno;
}

Result<void> Capture::finish() {
  flush();
  out_.close();
  remember_failure();
  if (error_ != 0) return Error{fmt::format("{}: {}", path_, std::strerror(error_)), error_};
  return {};
}

}  // namespace tulle::experiment
