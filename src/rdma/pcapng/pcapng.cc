#include "rdma/pcapng/pcapng.h"

#include <type_traits>

#include "base/check.h"

// A block is its type, its length, a body in units of four bytes, and its length once more. An
// option is code, length, value, padded to four bytes; a list of options ends with code 0.
// Everything is little-endian here, which the section header's magic number tells the reader.

namespace tulle::pcapng {
namespace {

using Buffer = Writer::Buffer;

enum class BlockType : std::uint32_t {
  interface_description = 1,
  interface_statistics = 5,
  enhanced_packet = 6,
  section_header = 0x0A0D'0D0A,
};

// Each kind of block has its own option codes, except for the end.
constexpr std::uint16_t option_end = 0;
constexpr std::uint16_t shb_application = 4;
constexpr std::uint16_t if_name = 2, if_description = 3, if_speed = 8, if_timestamp_resolution = 9;
constexpr std::uint16_t epb_flags = 2;
constexpr std::uint32_t epb_crc_error = 1u << 24;
constexpr std::uint16_t isb_received = 4, isb_dropped = 5;

template <typename Integer>
void append(Buffer& out, Integer value) {
  const auto bits = static_cast<std::make_unsigned_t<Integer>>(value);
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    out.push_back(static_cast<std::byte>(bits >> (8 * i)));
  }
}

void append_bytes(Buffer& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

std::size_t padding(std::size_t bytes) { return -bytes & 3; }

void append_option(Buffer& out, std::uint16_t code, std::span<const std::byte> value) {
  append(out, code);
  append(out, static_cast<std::uint16_t>(value.size()));
  append_bytes(out, value);
  out.insert(out.end(), padding(value.size()), std::byte{0});
}

void append_text_option(Buffer& out, std::uint16_t code, std::string_view text) {
  if (text.empty()) return;
  append_option(out, code, std::as_bytes(std::span(text.substr(0, 0xFFFF))));
}

template <typename Integer>
void append_number_option(Buffer& out, std::uint16_t code, Integer value) {
  append(out, code);
  append(out, static_cast<std::uint16_t>(sizeof(Integer)));
  append(out, value);
  out.insert(out.end(), padding(sizeof(Integer)), std::byte{0});
}

void append_end_of_options(Buffer& out) {
  append(out, option_end);
  append(out, std::uint16_t{0});
}

// Appends two halves, the upper first. Only here is the format not little-endian.
void append_timestamp(Buffer& out, std::int64_t nanoseconds) {
  append(out, static_cast<std::uint32_t>(nanoseconds >> 32));
  append(out, static_cast<std::uint32_t>(nanoseconds));
}

// Opens a block in the constructor. The destructor closes it, when its length is known.
class Block {
 public:
  Block(Buffer& out, BlockType type) : out_(out), start_(out.size()) {
    append(out_, static_cast<std::uint32_t>(type));
    append(out_, std::uint32_t{0});
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    const auto bytes = static_cast<std::uint32_t>(out_.size() - start_ + sizeof(std::uint32_t));
    for (std::size_t i = 0; i < sizeof bytes; ++i) {
      out_[start_ + sizeof(std::uint32_t) + i] = static_cast<std::byte>(bytes >> (8 * i));
    }
    append(out_, bytes);
  }

 private:
  Buffer& out_;
  std::size_t start_;
};

}  // namespace

void Writer::section_header(Buffer& out, std::string_view application) {
  constexpr std::uint32_t byte_order_magic = 0x1A2B'3C4D;
  constexpr std::int64_t length_not_given = -1;
  interfaces_ = 0;
  const Block block(out, BlockType::section_header);
  append(out, byte_order_magic);
  append(out, std::uint16_t{1});  // version 1.0
  append(out, std::uint16_t{0});
  append(out, length_not_given);
  append_text_option(out, shb_application, application);
  append_end_of_options(out);
}

std::uint32_t Writer::interface(Buffer& out, const CaptureInterface& interface) {
  constexpr std::uint8_t nanoseconds = 9;  // the negative power of ten
  const Block block(out, BlockType::interface_description);
  append(out, static_cast<std::uint16_t>(interface.link_type));
  append(out, std::uint16_t{0});
  append(out, interface.snap_length);
  append_text_option(out, if_name, interface.name);
  append_text_option(out, if_description, interface.description);
  if (interface.bits_per_second > 0) {
    append_number_option(out, if_speed, interface.bits_per_second);
  }
  append_number_option(out, if_timestamp_resolution, nanoseconds);
  append_end_of_options(out);
  return interfaces_++;
}

void Writer::packet(Buffer& out, Time when, Direction direction, std::uint32_t interface,
                    std::span<const std::span<const std::byte>> pieces,
                    std::uint32_t original_bytes, bool damaged) {
  TULLE_CHECK(interface < interfaces_);
  std::size_t captured_bytes = 0;
  for (const auto& piece : pieces) captured_bytes += piece.size();
  TULLE_CHECK(captured_bytes <= original_bytes);

  const Block block(out, BlockType::enhanced_packet);
  append(out, interface);
  append_timestamp(out, epoch_nanoseconds_ + when.to_nanoseconds());
  append(out, static_cast<std::uint32_t>(captured_bytes));
  append(out, original_bytes);
  for (const auto& piece : pieces) append_bytes(out, piece);
  out.insert(out.end(), padding(captured_bytes), std::byte{0});
  append_number_option(out, epb_flags,
                       static_cast<std::uint32_t>(direction) | (damaged ? epb_crc_error : 0));
  append_end_of_options(out);
}

void Writer::packet(Buffer& out, Time when, Direction direction, std::uint32_t interface,
                    std::span<const std::byte> bytes) {
  packet(out, when, direction, interface, std::span(&bytes, 1),
         static_cast<std::uint32_t>(bytes.size()));
}

void Writer::statistics(Buffer& out, Time when, std::uint32_t interface, std::uint64_t received,
                        std::uint64_t dropped) {
  TULLE_CHECK(interface < interfaces_);
  const Block block(out, BlockType::interface_statistics);
  append(out, interface);
  append_timestamp(out, epoch_nanoseconds_ + when.to_nanoseconds());
  append_number_option(out, isb_received, received);
  append_number_option(out, isb_dropped, dropped);
  append_end_of_options(out);
}

}  // namespace tulle::pcapng
