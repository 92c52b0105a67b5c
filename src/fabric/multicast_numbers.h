#pragma once

// The numbers by which switches recognize a multicast packet that they have forwarded. A tree
// brings a packet to a switch once. Tables with circles would make copies of copies without end.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rdma/port/frame.h"
#include "rdma/wire/bth.h"

namespace tulle::fabric {

class MulticastNumbers {
 public:
  // A switch remembers so many packets.
  static constexpr std::size_t forwarded_max = 4'096;

  explicit MulticastNumbers(std::uint32_t nodes) : forwarded_(nodes) {}

  // The numbers continue from `first`, whose upper 8 bits they keep.
  void begin_at(std::uint32_t first) { next_ = first; }
  // Gives a packet the next number.
  void number(port::Frame& frame);
  static std::uint32_t number_of(const port::Frame& frame);
  static void set_number(port::Frame& frame, std::uint32_t number);
  // Notes that a switch forwards a packet. Returns true if it did so before.
  bool comes_again(std::uint32_t node, const port::Frame& frame);

 private:
  // The number is stored behind BTH in a frame's header bytes, which nothing else uses here.
  static constexpr std::size_t number_at = sizeof(wire::Bth);

  std::vector<std::vector<std::uint32_t>> forwarded_;  // by switch: the last numbers
  std::uint32_t next_ = 1;
};

}  // namespace tulle::fabric
