// Reads any bytes as each header that has its own reader. What a reader accepts must be written
// again as bytes that mean the same. The first byte chooses the header.

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "rdma/wire/ddp.h"
#include "rdma/wire/ip_udp.h"
#include "rdma/wire/mpa.h"
#include "rdma/wire/packet.h"
#include "rdma/wire/path.h"
#include "rdma/wire/rdmap.h"
#include "rdma/wire/tcp.h"
#include "rdma/wire/vcrc.h"

namespace tulle::wire {
namespace {

using Bytes = std::vector<std::byte>;

// Returns the front of the bytes, with zeros where there are too few.
template <std::size_t n>
std::array<std::byte, n> front(const Bytes& in) {
  std::array<std::byte, n> out{};
  std::copy_n(in.begin(), std::min(n, in.size()), out.begin());
  return out;
}

// Returns headers that are mostly valid, with a payload behind them.
Bytes any_ip_udp(base::Script& script) {
  IpUdp ip;
  const bool is_ipv4 = script.below(2) == 0;
  ip.source = is_ipv4 ? Gid::from_ipv4(script.word()) : Gid{};
  ip.destination = is_ipv4 ? Gid::from_ipv4(script.word()) : Gid{};
  if (!is_ipv4) ip.source.bytes[0] = ip.destination.bytes[15] = script.byte();
  ip.source_port = script.half();
  ip.traffic_class = script.byte();
  ip.flow_label = is_ipv4 ? 0u : script.word() & 0xF'FFFF;
  ip.udp_checksum = script.half();
  const std::size_t payload_bytes = script.byte();
  Bytes out(ipv6_header_bytes + udp_header_bytes);
  out.resize(encode(ip, payload_bytes, out));
  for (unsigned i = script.below(3); i > 0; --i) {
    const std::size_t at = script.byte() % out.size();
    out[at] = static_cast<std::byte>(script.byte());
  }
  const Bytes payload = script.bytes(payload_bytes);
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

void check_ip_udp(const Bytes& in) {
  IpUdp headers;
  const DecodedIpUdp decoded = decode(in, headers);
  if (!decoded.ok) return;
  TULLE_CHECK(decoded.header_bytes + decoded.udp_payload_bytes <= in.size());
  TULLE_CHECK(decoded.udp_payload_bytes <= udp_payload_bytes_max(headers));
  std::array<std::byte, ipv6_header_bytes + udp_header_bytes> written;
  TULLE_CHECK(encode(headers, decoded.udp_payload_bytes, written) == decoded.header_bytes);
  Bytes again(written.begin(), written.begin() + static_cast<std::ptrdiff_t>(decoded.header_bytes));
  again.resize(decoded.header_bytes + decoded.udp_payload_bytes);
  IpUdp read;
  TULLE_CHECK(decode(again, read).ok && read == headers);
  encode_for_icrc(headers, decoded.udp_payload_bytes, written);
  const auto payload = std::span(in).subspan(decoded.header_bytes, decoded.udp_payload_bytes);
  const std::array<std::span<const std::byte>, 2> halves = {payload.first(payload.size() / 2),
                                                            payload.subspan(payload.size() / 2)};
  TULLE_CHECK(udp_checksum(headers, {&payload, 1}) == udp_checksum(headers, halves));
  std::array<std::byte, grh_bytes> grh;
  encode_grh(headers, decoded.udp_payload_bytes, grh);
}

void check_packet(const Bytes& in) {
  Packet packet;
  const Decoded decoded = decode(in, packet);
  if (decoded.status != DecodeStatus::ok) {
    TULLE_CHECK(packet == Packet{});
    return;
  }
  TULLE_CHECK(decoded.header_bytes == header_bytes(packet.opcode));
  TULLE_CHECK(peek_destination_qp(in) == packet.destination_qp);
  TULLE_CHECK(peek_pkey(in) == packet.pkey);
  std::array<std::byte, header_bytes_max> written;
  TULLE_CHECK(encode(packet, written) == decoded.header_bytes);
  Packet again;
  TULLE_CHECK(decode(std::span(written).first(decoded.header_bytes), again).status ==
              DecodeStatus::ok);
  TULLE_CHECK(again == packet);
  TULLE_CHECK(mark_fecn(written) == !packet.fecn && !mark_fecn(written));
}

void check_routes(const Bytes& in) {
  const auto lrh = front<lrh_bytes>(in);
  const LocalRoute local = decode_lrh(lrh);
  std::array<std::byte, lrh_bytes> written_lrh;
  encode(local, written_lrh);
  TULLE_CHECK(decode_lrh(written_lrh) == local);
  const auto grh = front<grh_bytes>(in);
  GlobalRoute route;
  const DecodedGrh decoded = decode_grh(grh, route);
  if (!decoded.ok) return;
  std::array<std::byte, grh_bytes> written;
  encode(route, decoded.bytes, written);
  TULLE_CHECK(written == grh);
  encode_for_icrc(route, decoded.bytes, written);
  for (Path path : {Path(LocalPath{local, true, route}), Path(EthernetPath{{}, {}, 0, route}),
                    Path(LocalPath{local, false, {}})}) {
    clear_ecn(path);
    TULLE_CHECK((traffic_class_of(path) & ecn_mask) == 0);
    TULLE_CHECK(!is_marked(path) && !is_ipv4(path));
    encode_grh(path, decoded.bytes, written);
    TULLE_CHECK(has_global_route(path) ||
                std::all_of(written.begin(), written.end(),
                            [](std::byte each) { return each == std::byte{}; }));
  }
}

void check_tcp(const Bytes& in) {
  Tcp tcp;
  const DecodedTcp decoded = decode(in, tcp);
  if (!decoded.ok) return;
  TULLE_CHECK(decoded.header_bytes <= in.size() && tcp.block_count <= Tcp::blocks_max);
  IpUdp ip;
  ip.source = Gid::from_ipv4(1);
  ip.destination = Gid::from_ipv4(2);
  const auto payload = std::span<const std::byte>(in).subspan(decoded.header_bytes);
  tcp.checksum = tcp_checksum(ip, tcp, {&payload, 1});
  Bytes segment(header_bytes(tcp));
  TULLE_CHECK(encode(tcp, segment) == segment.size());
  Tcp again;
  TULLE_CHECK(decode(segment, again).ok && again == tcp);
  segment.insert(segment.end(), payload.begin(), payload.end());
  TULLE_CHECK(tcp_checksum(ip, segment) == 0);
}

void check_iwarp(const Bytes& in) {
  const auto start = front<mpa::start_frame_bytes>(in);
  if (const auto frame = mpa::decode_start(start)) {
    std::array<std::byte, mpa::start_frame_bytes> written;
    mpa::encode(*frame, written);
    TULLE_CHECK(written == start);
  }
  const auto enhanced = front<mpa::enhanced_setup_bytes>(in);
  std::array<std::byte, mpa::enhanced_setup_bytes> written_setup;
  mpa::encode(mpa::decode_enhanced(enhanced), written_setup);
  TULLE_CHECK(written_setup == enhanced);
  ddp::Header header;
  if (ddp::decode(in, header)) {
    Bytes written(header.bytes());
    ddp::encode(header, written);
    TULLE_CHECK(std::equal(written.begin(), written.end(), in.begin()));
  }
  const auto request = front<rdmap::read_request_bytes>(in);
  std::array<std::byte, rdmap::read_request_bytes> written_request;
  rdmap::encode(rdmap::decode_read_request(request), written_request);
  TULLE_CHECK(written_request == request);
  std::size_t used = 0;
  if (const auto terminate = rdmap::decode_terminate(in, used)) {
    std::array<std::byte, rdmap::terminate_bytes_max> written;
    TULLE_CHECK(used <= in.size() && rdmap::encode(*terminate, written) == used);
    TULLE_CHECK(std::equal(written.begin(), written.begin() + static_cast<std::ptrdiff_t>(used),
                           in.begin()));
    static_cast<void>(rdmap::name(terminate->code));
  }
  if (!in.empty()) {
    const auto control = rdmap::Control::decoded(std::to_integer<std::uint8_t>(in[0]));
    TULLE_CHECK(control.encoded() == std::to_integer<std::uint8_t>(in[0]));
    const bool is_known = static_cast<std::size_t>(control.opcode) < rdmap::opcodes;
    TULLE_CHECK((rdmap::info(control.opcode) != nullptr) == is_known);
  }
  mpa::Crc whole, halves;
  whole.update(in);
  halves.update(std::span(in).first(in.size() / 2));
  halves.update(std::span(in).subspan(in.size() / 2));
  TULLE_CHECK(whole.value() == halves.value());
}

}  // namespace
}  // namespace tulle::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tulle::wire;
  tulle::base::Script script(data, size);
  const std::uint32_t choice = script.below(6);
  if (choice == 5) {
    check_ip_udp(any_ip_udp(script));
    return 0;
  }
  const Bytes bytes = script.bytes(70'000);
  if (choice == 0) check_ip_udp(bytes);
  if (choice == 1) check_packet(bytes);
  if (choice == 2) check_routes(bytes);
  if (choice == 3) check_tcp(bytes);
  if (choice == 4) check_iwarp(bytes);
  return 0;
}
