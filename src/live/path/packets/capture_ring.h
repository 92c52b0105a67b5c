#pragma once

// Frames on their way from a process to `tulle capture`. The ring is in shared memory and has one
// writer and one reader, so that a capture costs the data path a copy and no system call. A full
// ring drops frames and counts them.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "os/unique_fd.h"

namespace tulle::live {

struct CapturedFrame {
  std::int64_t unix_nanoseconds = 0;
  std::uint32_t original_bytes = 0;
  bool outbound = false;
  // The frame is one of Ethernet, whole. False: it begins with its IP header, or is a fabric's.
  bool is_ethernet = false;
};

// Returns the time that a frame of now has.
std::int64_t unix_nanoseconds();

class CaptureRing {
 public:
  // The size is rounded up to a power of two of at least 1 MiB and at most 1 GiB.
  static Result<CaptureRing> create(std::uint32_t bytes);
  static Result<CaptureRing> map(UniqueFd fd);
  CaptureRing(CaptureRing&& other) noexcept;
  CaptureRing& operator=(CaptureRing&&) = delete;
  ~CaptureRing();

  int fd() const { return fd_.get(); }

  // Called by the writer. Returns true if a frame of that size fits.
  bool has_room(std::size_t frame_bytes) const;
  // Called by the writer. Keeps at most `snap_length` bytes of the pieces (0 means all). Returns
  // false if there is no room; the ring counts the loss.
  bool write(const CapturedFrame& frame, std::span<const std::span<const std::byte>> pieces,
             std::uint32_t snap_length);

  // Called by the reader. Takes the oldest frame and resizes `bytes` to the part that was kept.
  // Returns false if there is none, or if the writer has left something that is no frame, which is
  // skipped.
  bool read(CapturedFrame& frame, std::vector<std::byte>& bytes);
  std::uint64_t dropped() const { return header_->dropped.load(std::memory_order_relaxed); }
  // Returns the most bytes that can wait, with what the ring adds to each frame.
  std::uint64_t bytes_max() const { return data_bytes_; }
  // Returns the bytes that a frame takes, of which so many were kept.
  static std::uint64_t bytes_of(std::size_t kept_bytes) { return sizeof(Record) + kept_bytes; }

 private:
  struct Header {
    alignas(64) std::atomic<std::uint64_t> written{0};  // bytes since creation
    std::atomic<std::uint64_t> dropped{0};              // frames
    alignas(64) std::atomic<std::uint64_t> read{0};     // bytes since creation
  };
  struct Record {
    std::int64_t unix_nanoseconds = 0;
    std::uint32_t original_bytes = 0;
    std::uint8_t outbound = 0;  // any value here and below: the writer is another process
    std::uint8_t is_ethernet = 0;
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
