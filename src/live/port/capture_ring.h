#pragma once

// Frames on their way from a process to `tulle capture`: a ring in shared memory with one writer
// and one reader, so that a capture costs the data path a copy and no system call. A full ring
// drops and counts.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "live/unique_fd.h"

namespace tulle::live {

struct CapturedFrame {
  std::int64_t unix_nanoseconds = 0;
  std::uint32_t original_bytes = 0;
  bool outbound = false;
};

class CaptureRing {
 public:
  static Result<CaptureRing> create(
      std::uint32_t bytes);  // rounded up to a power of two of at least 1 MiB
  static Result<CaptureRing> map(UniqueFd fd);
  CaptureRing(CaptureRing&& other) noexcept;
  CaptureRing& operator=(CaptureRing&&) = delete;
  ~CaptureRing();

  int fd() const { return fd_.get(); }

  // The writer's.
  bool has_room(std::size_t frame_bytes) const;
  // Keeps at most `snap_length` bytes of the pieces (0: all). False: no room, which is counted.
  bool write(const CapturedFrame& frame, std::span<const std::span<const std::byte>> pieces,
             std::uint32_t snap_length);

  // The reader's: the oldest frame, if any. `bytes` is resized to what was kept.
  bool read(CapturedFrame& frame, std::vector<std::byte>& bytes);
  std::uint64_t dropped() const { return header_->dropped.load(std::memory_order_relaxed); }

 private:
  struct Header {
    alignas(64) std::atomic<std::uint64_t> written{0};  // bytes, ever
    std::atomic<std::uint64_t> dropped{0};              // frames
    alignas(64) std::atomic<std::uint64_t> read{0};     // bytes, ever
  };
  struct Record {
    CapturedFrame frame;
    std::uint32_t kept_bytes = 0;
  };
  CaptureRing() = default;
  void copy_in(std::uint64_t at, const void* from, std::size_t bytes);
  void copy_out(std::uint64_t at, void* to, std::size_t bytes) const;

  UniqueFd fd_;
  Header* header_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t data_bytes_ = 0;  // a power of two
  std::size_t mapped_bytes_ = 0;
};

}  // namespace tulle::live
