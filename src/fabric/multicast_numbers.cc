#include "fabric/multicast_numbers.h"

#include <cstring>
#include <utility>

namespace tulle::fabric {

void MulticastNumbers::number(port::Frame& frame) {
  constexpr std::uint32_t own_bits = 0x00FF'FFFF;
  set_number(frame, next_);
  next_ = (next_ & ~own_bits) | ((next_ + 1) & own_bits);
}

std::uint32_t MulticastNumbers::number_of(const port::Frame& frame) {
  std::uint32_t number = 0;
  std::memcpy(&number, frame.header.data() + number_at, sizeof number);
  return number;
}

void MulticastNumbers::set_number(port::Frame& frame, std::uint32_t number) {
  std::memcpy(frame.header.data() + number_at, &number, sizeof number);
}

bool MulticastNumbers::comes_again(std::uint32_t node, const port::Frame& frame) {
  const std::uint32_t number = number_of(frame);
  std::vector<std::uint32_t>& numbers = forwarded_[node];
  if (numbers.empty()) numbers.resize(forwarded_max);
  return std::exchange(numbers[number % forwarded_max], number) == number;
}

}  // namespace tulle::fabric
