// Owns the bytes of a capture ring, as the process at its other end does, and changes them between
// the calls of a reader and a writer, and also during them. Each end must stay inside the ring,
// hand out only frames that a ring can hold, and come to an end.

#include <fcntl.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "live/path/packets/capture_ring.h"

namespace tulle::live {
namespace {

using base::Script;

constexpr std::size_t header_bytes = 4096, data_bytes = 1 << 20;
constexpr std::size_t frame_bytes_max = 16 * 1024;
constexpr std::size_t record_bytes_min = 24;
// Words of the header: what was written, dropped and read.
constexpr std::size_t written_word = 0, dropped_word = 1, read_word = 8;

class Run {
 public:
  explicit Run(Script& script)
      : script_(script),
        writer_(std::move(*CaptureRing::create(data_bytes))),
        reader_(std::move(*CaptureRing::map(UniqueFd(fcntl(writer_.fd(), F_DUPFD_CLOEXEC, 0))))) {
    void* memory = mmap(nullptr, header_bytes + data_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                        writer_.fd(), 0);
    TULLE_CHECK(memory != MAP_FAILED);
    words_ = static_cast<std::atomic<std::uint64_t>*>(memory);
    data_ = static_cast<std::byte*>(memory) + header_bytes;
  }
  ~Run() { munmap(words_, header_bytes + data_bytes); }

  void go() {
    while (!script_.is_over()) step();
    // The bytes behind the header's words are nobody's.
    const std::byte* rest = data_ - header_bytes + 192;
    TULLE_CHECK(std::all_of(rest, static_cast<const std::byte*>(data_),
                            [](std::byte each) { return each == std::byte{}; }));
  }

 private:
  void step() {
    switch (script_.below(8)) {
      case 0:
      case 1:
        return write(script_.half() % 20'000u, script_.byte() * 100u);
      case 2:
        return read_all();
      case 3:
        words_[std::array{written_word, dropped_word, read_word}[script_.below(3)]] = position();
        return;
      case 4: {
        // Changes the next record that is read.
        const auto bytes = script_.bytes(script_.below(40));
        for (std::size_t i = 0; i < bytes.size(); ++i) data_[at(words_[read_word] + i)] = bytes[i];
        return;
      }
      case 5: {
        const std::uint64_t start = position();
        const std::byte value{script_.byte()};
        for (std::size_t i = 0; i < 256; ++i) data_[at(start + i)] = value;
        return;
      }
      case 6:
        if (script_.one_in(8)) disturb();
        return;
      default:
        read();
    }
  }

  static std::size_t at(std::uint64_t position) { return position & (data_bytes - 1); }
  // Returns a position near those of the header, or any.
  std::uint64_t position() {
    const std::uint64_t near = words_[script_.below(2) == 0 ? written_word : read_word];
    switch (script_.below(4)) {
      case 0:
        return near + script_.byte();
      case 1:
        return near - script_.byte();
      case 2:
        return near + script_.word() % (2 * data_bytes);
      default:
        return script_.number();
    }
  }

  void write(std::size_t bytes, std::uint32_t snap_length) {
    const std::vector<std::byte> frame(bytes, std::byte{0x5A});
    const std::array<std::span<const std::byte>, 2> pieces = {std::span(frame).first(bytes / 3),
                                                              std::span(frame).subspan(bytes / 3)};
    const std::uint64_t before = words_[written_word];
    const bool is_alone = !is_disturbed_;
    const CapturedFrame captured{static_cast<std::int64_t>(script_.number()),
                                 static_cast<std::uint32_t>(bytes), script_.below(2) == 0};
    const bool is_written = writer_.write(captured, pieces, snap_length);
    const std::uint64_t moved = words_[written_word] - before;
    if (is_alone) TULLE_CHECK(is_written ? moved <= frame_bytes_max + 64 : moved == 0);
    static_cast<void>(writer_.has_room(bytes));
  }

  bool read() {
    CapturedFrame frame;
    std::vector<std::byte> bytes;
    if (!reader_.read(frame, bytes)) return false;
    TULLE_CHECK(bytes.size() <= frame_bytes_max);
    // A value that is no boolean would be noticed here.
    directions_[frame.outbound ? 1 : 0] += 1;
    return true;
  }
  // Whatever the ring's other end wrote, there are no more frames than fit.
  void read_all() {
    std::size_t frames = 0;
    while (read()) TULLE_CHECK(++frames <= data_bytes / record_bytes_min);
  }

  // Changes the ring from a second thread while both ends work.
  void disturb() {
    const std::uint64_t seed = script_.number();
    std::atomic<bool> is_over = false;
    is_disturbed_ = true;
    std::thread other([&] {
      for (std::uint64_t x = seed | 1; !is_over; x = x * 6'364'136'223'846'793'005u + 1) {
        const std::uint64_t value = x >> 20;
        switch (x >> 61) {
          case 0:
            words_[written_word] = words_[read_word] + value % (2 * data_bytes);
            break;
          case 1:
            words_[read_word] = words_[written_word] - value % (2 * data_bytes);
            break;
          case 2:
            words_[written_word] = value;
            break;
          default:
            data_[at(words_[read_word] + value % 40)] = static_cast<std::byte>(value >> 8);
        }
      }
    });
    for (int i = 0; i < 200; ++i) {
      read();
      if (i % 4 == 0) write(script_.byte() * 8u, 0);
    }
    is_over = true;
    other.join();
    is_disturbed_ = false;
  }

  Script& script_;
  CaptureRing writer_, reader_;
  std::atomic<std::uint64_t>* words_ = nullptr;
  std::byte* data_ = nullptr;
  std::array<std::uint64_t, 2> directions_{};
  bool is_disturbed_ = false;  // another thread changes the ring
};

}  // namespace
}  // namespace tulle::live

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tulle::base::Script script(data, size);
  tulle::live::Run(script).go();
  return 0;
}
