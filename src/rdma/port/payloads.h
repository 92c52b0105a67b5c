#pragma once

// The payloads of frames, for simulations that carry their bytes. Each frame of a pool has room of
// the same size, found by the frame's index in the pool. Memory is allocated as the pool grows, and
// touched only where a frame has a payload.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "rdma/port/frame.h"

namespace tulle::port {

class Payloads {
 public:
  explicit Payloads(std::uint32_t bytes_each) : bytes_each_(bytes_each) {}

  std::byte* of(FrameRef ref) {
    while (ref / block_frames >= blocks_.size()) {
      blocks_.push_back(
          std::make_unique_for_overwrite<std::byte[]>(std::size_t{block_frames} * bytes_each_));
    }
    return blocks_[ref / block_frames].get() + std::size_t{ref % block_frames} * bytes_each_;
  }
  std::uint32_t bytes_each() const { return bytes_each_; }

 private:
  static constexpr std::uint32_t block_frames = 256;  // 1 MiB at 4,096 bytes each

  std::uint32_t bytes_each_;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

}  // namespace tulle::port
