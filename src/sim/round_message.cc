#include "sim/round_message.h"

#include <array>
#include <cstdint>

namespace tulle::sim {
namespace {

// Everything in a message begins at a multiple of this, so that frames need not be copied to be
// read.
constexpr std::size_t line = alignof(port::Frame);
static_assert(static_cast<std::size_t>(LineAllocator<std::byte>::line) == line);
// Lists of fewer bytes are copied into the message: they cost less than another piece.
constexpr std::size_t lent_bytes_min = 16'384;
// There may be a piece of copied bytes before, between and behind those that are lent.
constexpr std::size_t lent_max = (Processes::pieces_max - 1) / 2;

// Precedes a part's share, and gives the numbers of what is in it.
struct ShareHead {
  std::uint64_t part = 0;
  std::uint64_t frames = 0;  // and their arrivals
  std::uint64_t payload_bytes = 0;
  std::uint64_t notices = 0;
  std::uint64_t events = 0;
  std::uint64_t requests = 0;
  std::array<std::uint64_t, 2> unused{};
};
static_assert(sizeof(ShareHead) == line);

constexpr std::size_t padding_behind(std::size_t bytes) { return (line - bytes % line) % line; }

// Takes what is in a message. Each function returns false if it is not there.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> left) : left_(left) {}

  bool is_empty() const { return left_.empty(); }
  template <Packable Value>
  [[nodiscard]] bool take(Value& value) {
    std::span<const Value> one;
    if (!take_list(1, one)) return false;
    value = one.front();
    return true;
  }
  template <Packable Value>
  [[nodiscard]] bool take_list(std::uint64_t count, std::span<const Value>& values) {
    static_assert(line % alignof(Value) == 0);
    if (count > left_.size() / sizeof(Value)) return false;
    const std::size_t bytes = count * sizeof(Value);
    if (left_.size() - bytes < padding_behind(bytes)) return false;
    values = {reinterpret_cast<const Value*>(left_.data()), count};
    left_ = left_.subspan(bytes + padding_behind(bytes));
    return true;
  }

 private:
  std::span<const std::byte> left_;
};

bool take_share(Reader& reader, Share& share) {
  ShareHead head;
  if (!reader.take(head) || head.part > 0xFFFF'FFFF) return false;
  share.part = static_cast<std::uint32_t>(head.part);
  CrossingView& crossing = share.crossing;
  return reader.take_list(head.frames, crossing.frames) &&
         reader.take_list(head.frames, crossing.arrivals) &&
         reader.take_list(head.payload_bytes, crossing.payloads) &&
         reader.take_list(head.notices, crossing.notices) &&
         reader.take_list(head.events, crossing.events) &&
         reader.take_list(head.requests, crossing.requests);
}

}  // namespace

void OutgoingMessage::begin(const RoundReport& report) {
  copied_.clear();
  lent_.clear();
  add_list(std::as_bytes(std::span(&report, 1)));
}

void OutgoingMessage::add(std::uint32_t part, const Crossing& crossing) {
  if (crossing.is_empty()) return;
  const ShareHead head{part,
                       crossing.frames.size(),
                       crossing.payloads.size(),
                       crossing.notices.size(),
                       crossing.events.size(),
                       crossing.requests.size()};
  add_list(std::as_bytes(std::span(&head, 1)));
  add_list(std::as_bytes(std::span(crossing.frames)));
  add_list(std::as_bytes(std::span(crossing.arrivals)));
  add_list(std::as_bytes(std::span(crossing.payloads)));
  add_list(std::as_bytes(std::span(crossing.notices)));
  add_list(std::as_bytes(std::span(crossing.events)));
  add_list(std::as_bytes(std::span(crossing.requests)));
}

void OutgoingMessage::add_list(std::span<const std::byte> bytes) {
  if (bytes.size() >= lent_bytes_min && lent_.size() < lent_max) {
    lent_.push_back({copied_.size(), bytes});
  } else {
    Packer(copied_).add_all(bytes);
  }
  copied_.resize(copied_.size() + padding_behind(bytes.size()), std::byte{});
}

Pieces OutgoingMessage::pieces() const {
  Pieces pieces;
  std::size_t copied = 0;
  const auto add_copied = [&](std::size_t until) {
    if (until > copied) pieces.push_back(std::span(copied_).subspan(copied, until - copied));
    copied = until;
  };
  for (const Lent& lent : lent_) {
    add_copied(lent.before);
    pieces.push_back(lent.bytes);
  }
  add_copied(copied_.size());
  return pieces;
}

std::optional<RoundMessage> read_message(const Bytes& message) {
  RoundMessage read;
  Reader reader(message);
  if (!reader.take(read.report)) return {};
  while (!reader.is_empty()) {
    if (!take_share(reader, read.shares.emplace_back())) return {};
  }
  return read;
}

}  // namespace tulle::sim
