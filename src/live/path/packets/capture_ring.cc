#include "live/path/packets/capture_ring.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "os/shared_memory.h"

namespace tulle::live {
namespace {

constexpr std::size_t header_bytes = 4096;
constexpr std::uint32_t data_bytes_min = 1u << 20;
constexpr std::uint32_t data_bytes_max = 1u << 30;
constexpr std::uint32_t frame_bytes_max = 16 * 1024;  // no frame of this device is longer

}  // namespace

std::int64_t unix_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Result<CaptureRing> CaptureRing::create(std::uint32_t bytes) {
  const std::uint64_t data = std::bit_ceil(std::clamp(bytes, data_bytes_min, data_bytes_max));
  auto fd = make_shared_memory("tulle-capture", header_bytes + data);
  if (!fd) return fd.error();
  return map(std::move(*fd));
}

Result<CaptureRing> CaptureRing::map(UniqueFd fd) {
  auto size = size_of_shared_memory(fd.get());
  if (!size) return size.error();
  const std::size_t bytes = *size;
  if (bytes < header_bytes + data_bytes_min || bytes > header_bytes + data_bytes_max ||
      !std::has_single_bit(bytes - header_bytes)) {
    return Error{"the capture ring has a wrong size", EINVAL};
  }
  auto memory = map_shared_memory(fd.get(), bytes);
  if (!memory) return memory.error();
  CaptureRing ring;
  ring.fd_ = std::move(fd);
  ring.header_ = static_cast<Header*>(*memory);  // zero bytes are its initial state
  ring.data_ = static_cast<std::byte*>(*memory) + header_bytes;
  ring.data_bytes_ = bytes - header_bytes;
  ring.mapped_bytes_ = bytes;
  return ring;
}

CaptureRing::CaptureRing(CaptureRing&& other) noexcept
    : fd_(std::move(other.fd_)),
      header_(std::exchange(other.header_, nullptr)),
      data_(other.data_),
      data_bytes_(other.data_bytes_),
      mapped_bytes_(other.mapped_bytes_) {}

CaptureRing::~CaptureRing() {
  if (header_ != nullptr) munmap(header_, mapped_bytes_);
}

bool CaptureRing::has_room(std::size_t frame_bytes) const {
  const std::uint64_t used = header_->written.load(std::memory_order_relaxed) -
                             header_->read.load(std::memory_order_acquire);
  return used + sizeof(Record) + frame_bytes <= data_bytes_;
}

bool CaptureRing::write(const CapturedFrame& frame,
                        std::span<const std::span<const std::byte>> pieces,
                        std::uint32_t snap_length) {
  std::uint64_t total = 0;
  for (const auto& piece : pieces) total += piece.size();
  const std::uint64_t limit = snap_length == 0 ? frame_bytes_max : snap_length;
  Record record{
      frame.unix_nanoseconds, frame.original_bytes, std::uint8_t{frame.outbound},
      std::uint8_t{frame.is_ethernet},
      static_cast<std::uint32_t>(std::min({total, limit, std::uint64_t{frame_bytes_max}}))};
  const std::uint64_t at = header_->written.load(std::memory_order_relaxed);
  const std::uint64_t used = at - header_->read.load(std::memory_order_acquire);
  if (used + sizeof(record) + record.kept_bytes > data_bytes_) {
    header_->dropped.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  copy_in(at, &record, sizeof(record));
  std::uint64_t to = at + sizeof(record);
  std::size_t left = record.kept_bytes;
  for (const auto& piece : pieces) {
    const std::size_t bytes = std::min(piece.size(), left);
    copy_in(to, piece.data(), bytes);
    to += bytes;
    left -= bytes;
  }
  header_->written.store(to, std::memory_order_release);
  return true;
}

bool CaptureRing::read(CapturedFrame& frame, std::vector<std::byte>& bytes) {
  const std::uint64_t at = header_->read.load(std::memory_order_relaxed);
  const std::uint64_t end = header_->written.load(std::memory_order_acquire);
  Record record;
  if (end - at < sizeof(record)) return false;
  copy_out(at, &record, sizeof(record));
  // The writer is another process, which may have written anything.
  if (end - at > data_bytes_ || record.kept_bytes > frame_bytes_max ||
      end - at < sizeof(record) + record.kept_bytes) {
    header_->read.store(end, std::memory_order_release);
    return false;
  }
  frame = {record.unix_nanoseconds, record.original_bytes, record.outbound != 0,
           record.is_ethernet != 0};
  bytes.resize(record.kept_bytes);
  copy_out(at + sizeof(record), bytes.data(), bytes.size());
  header_->read.store(at + sizeof(record) + record.kept_bytes, std::memory_order_release);
  return true;
}

void CaptureRing::copy_in(std::uint64_t at, const void* from, std::size_t bytes) {
  const std::uint64_t offset = at & (data_bytes_ - 1);
  const std::size_t first = std::min<std::uint64_t>(bytes, data_bytes_ - offset);
  if (first > 0) std::memcpy(data_ + offset, from, first);
  if (bytes > first) std::memcpy(data_, static_cast<const std::byte*>(from) + first, bytes - first);
}

void CaptureRing::copy_out(std::uint64_t at, void* to, std::size_t bytes) const {
  const std::uint64_t offset = at & (data_bytes_ - 1);
  const std::size_t first = std::min<std::uint64_t>(bytes, data_bytes_ - offset);
  if (first > 0) std::memcpy(to, data_ + offset, first);
  if (bytes > first) std::memcpy(static_cast<std::byte*>(to) + first, data_, bytes - first);
}

}  // namespace tulle::live
