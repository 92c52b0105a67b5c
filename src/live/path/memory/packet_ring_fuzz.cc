// Owns one end of a ring of packets, and may write any bytes there at any time: the ring's memory
// if it is the writer, the count of what has been read if it is the reader. The other end must
// touch no memory outside of the ring, and give room only inside of it.

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "live/path/memory/packet_ring.h"

namespace tulle::live {
namespace {

using base::Script;

// The ring and nothing else: AddressSanitizer sees each byte next to it.
struct alignas(PacketRing::line_bytes) Memory {
  std::byte bytes[PacketRing::ring_bytes];
};

class Run {
 public:
  explicit Run(Script& script) : script_(script) {
    // One memory serves all runs. Only its words matter, and each run leaves them at 0.
    static const auto memory = std::make_unique<Memory>();
    memory_ = memory->bytes;
    writer_ = RingWriter(memory_, progress_);
    reader_ = RingReader(memory_, progress_);
  }
  ~Run() { std::memset(memory_, 0, PacketRing::ring_bytes); }

  void go() {
    while (!script_.is_over()) step();
  }

 private:
  void step() {
    switch (script_.below(8)) {
      case 0:
      case 1:
      case 2:
        return write();
      case 3:
      case 4:
        return read(1 + script_.below(8));
      case 5:
        reader_.tell();
        return;
      case 6:
        return scribble();
      default:
        progress_.taken = script_.one_in(2) ? script_.number() : script_.word();
    }
  }

  void write() {
    const std::size_t bytes = script_.half() % (PacketRing::content_bytes_max + 1);
    std::byte* const room = writer_.reserve(bytes);
    if (room == nullptr) return;
    TULLE_CHECK(room >= memory_ && room + bytes <= memory_ + PacketRing::ring_bytes);
    std::memset(room, script_.byte(), bytes);
    if (script_.one_in(8)) return;
    writer_.publish(bytes, (script_.one_in(2) ? PacketRing::has_path : 0) |
                               (script_.one_in(2) ? PacketRing::has_reference : 0));
  }

  void read(std::uint32_t records) {
    for (std::uint32_t i = 0; i < records; ++i) {
      const auto record = reader_.take();
      TULLE_CHECK(!record || !reader_.is_broken());
      if (!record) return;
      TULLE_CHECK(record->content.size() <= PacketRing::content_bytes_max);
      for (const std::byte byte : record->content) sum_ += static_cast<unsigned>(byte);
    }
  }

  void scribble() {
    const auto values = script_.bytes(1 + script_.below(8));
    const std::size_t lines = PacketRing::ring_bytes / PacketRing::line_bytes;
    std::size_t at = script_.one_in(2) ? script_.below(16) : script_.half() % lines;
    at *= PacketRing::line_bytes;
    std::copy(values.begin(), values.end(), memory_ + at);
  }

  Script& script_;
  std::byte* memory_ = nullptr;
  RingProgress progress_;
  RingWriter writer_;
  RingReader reader_;
  unsigned sum_ = 0;
};

}  // namespace
}  // namespace tulle::live

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tulle::base::Script script(data, size);
  tulle::live::Run(script).go();
  return 0;
}
