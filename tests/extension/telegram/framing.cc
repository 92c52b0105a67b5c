#include "telegram/framing.h"

#include <cstring>

#include "rdma/wire/header.h"

namespace tulle::telegram {
namespace {

struct Header {
  be16 source;
  be16 destination;
};
struct Trailer {
  be32 sum;
};

std::uint32_t added(std::uint32_t sum, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) sum = sum * 31 + std::to_integer<std::uint32_t>(byte);
  return sum;
}

void set_path(const port::Route& route, wire::Path& path) {
  auto& local = path.emplace<wire::LocalPath>().local;
  local.source = route.source_lid;
  local.destination = route.destination.lid;
}

void encode(const wire::Path& path, const wire::Packet& packet, port::Pieces pieces,
            port::FrameBytes& frame) {
  const wire::LocalRoute& local = std::get<wire::LocalPath>(path).local;
  std::span<std::byte> rest(frame.head);
  wire::put(Header{local.source.value, local.destination.value}, rest);
  frame.head_bytes = static_cast<std::uint8_t>(sizeof(Header) + wire::encode(packet, rest));
  frame.tail = {};
  frame.tail_bytes = static_cast<std::uint8_t>(packet.pad_count + sizeof(Trailer));
  std::span<std::byte> tail(frame.tail);
  std::uint32_t sum = added(0, std::span(frame.head).first(frame.head_bytes));
  for (const auto& piece : pieces) sum = added(sum, piece);
  sum = added(sum, tail.first(packet.pad_count));
  tail = tail.subspan(packet.pad_count);
  wire::put(Trailer{sum}, tail);
}

port::Verdict decode(std::span<const std::byte> bytes, port::Arrival& arrival, wire::Packet& packet,
                     std::span<const std::byte>& payload) {
  if (bytes.size() < sizeof(Header) + sizeof(Trailer)) return port::Verdict::truncated;
  const auto covered = bytes.first(bytes.size() - sizeof(Trailer));
  auto last = bytes.subspan(covered.size());
  if (wire::take<Trailer>(last).sum != added(0, covered)) return port::Verdict::bad_icrc;
  auto rest = covered;
  const auto header = wire::take<Header>(rest);
  auto& local = arrival.path.emplace<wire::LocalPath>().local;
  local.source = Lid(header.source);
  local.destination = Lid(header.destination);
  return port::decode_transport(rest, packet, payload);
}

}  // namespace

const port::Framing framing = {
    .name = "telegram",
    .link_layer = port::LinkLayer::infiniband,
    .overhead = {sizeof(Header) + sizeof(Trailer), 0, 0},
    .set_path = set_path,
    .encode = encode,
    .decode = decode,
};

}  // namespace tulle::telegram
