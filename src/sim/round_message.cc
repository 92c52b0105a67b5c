#include "sim/round_message.h"

namespace tulle::sim {
namespace {

// The head of a part's share.
struct ShareHead {
  std::uint64_t bytes = 0;  // that follow it
  std::uint64_t part = 0;
};

// The numbers of what is in a share, which stand before it.
struct Counts {
  std::uint64_t requests = 0;
  std::uint64_t frames = 0;  // and their arrivals
  std::uint64_t payload_bytes = 0;
  std::uint64_t notices = 0;
  std::uint64_t events = 0;
};

template <typename Value>
std::size_t bytes_of(const std::vector<Value>& values) {
  return values.size() * sizeof(Value);
}

}  // namespace

void begin_message(const RoundReport& report, Bytes& message) {
  message.clear();
  Packer(message).add(report);
}

void add_crossing(std::uint32_t part, const Crossing& crossing, Bytes& message) {
  if (crossing.is_empty()) return;
  const ShareHead head{sizeof(Counts) + bytes_of(crossing.requests) + bytes_of(crossing.frames) +
                           bytes_of(crossing.arrivals) + bytes_of(crossing.payloads) +
                           bytes_of(crossing.notices) + bytes_of(crossing.events),
                       part};
  message.reserve(message.size() + sizeof head + head.bytes);
  Packer packer(message);
  packer.add(head);
  packer.add(Counts{crossing.requests.size(), crossing.frames.size(), crossing.payloads.size(),
                    crossing.notices.size(), crossing.events.size()});
  packer.add_all(std::span(crossing.requests));
  packer.add_all(std::span(crossing.frames));
  packer.add_all(std::span(crossing.arrivals));
  packer.add_all(std::span(crossing.payloads));
  packer.add_all(std::span(crossing.notices));
  packer.add_all(std::span(crossing.events));
}

std::optional<RoundMessage> read_message(std::span<const std::byte> message) {
  RoundMessage read;
  Unpacker unpacker(message);
  if (!unpacker.take(read.report)) return {};
  while (!unpacker.is_empty()) {
    ShareHead head;
    std::span<const std::byte> bytes;
    if (!unpacker.take(head) || !unpacker.take_bytes(head.bytes, bytes)) return {};
    if (head.part > 0xFFFF'FFFF) return {};
    read.crossings.push_back({static_cast<std::uint32_t>(head.part), bytes});
  }
  return read;
}

bool read_crossing(std::span<const std::byte> bytes, Crossing& crossing) {
  crossing.clear();
  Unpacker unpacker(bytes);
  Counts counts;
  return unpacker.take(counts) && unpacker.take_all(counts.requests, crossing.requests) &&
         unpacker.take_all(counts.frames, crossing.frames) &&
         unpacker.take_all(counts.frames, crossing.arrivals) &&
         unpacker.take_all(counts.payload_bytes, crossing.payloads) &&
         unpacker.take_all(counts.notices, crossing.notices) &&
         unpacker.take_all(counts.events, crossing.events) && unpacker.is_empty();
}

}  // namespace tulle::sim
