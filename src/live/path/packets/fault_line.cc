#include "live/path/packets/fault_line.h"

#include <algorithm>

#include "base/check.h"

namespace tulle::live {

namespace {
constexpr std::uint32_t held_max = 2'048;  // about 9 MiB, touched only as used
}  // namespace

FaultLine::FaultLine(const fabric::FaultSettings& settings)
    : faults_(settings), held_(std::make_unique_for_overwrite<Held[]>(held_max)) {
  due_.reserve(held_max);
  free_.reserve(held_max);
  for (std::uint32_t slot = held_max; slot > 0; --slot) free_.push_back(slot - 1);
}

void FaultLine::offer(Time now, const wire::IpUdp& ip,
                      std::span<const std::span<const std::byte>> udp_payload) {
  const fabric::Faults::Copies copies = faults_.draw();
  for (std::size_t i = 0; i < copies.count; ++i) {
    if (free_.empty()) {
      ++overflows_;
      return;
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    Held& held = held_[slot];
    held.ip = ip;
    held.size = 0;
    for (const auto& piece : udp_payload) {
      TULLE_CHECK(held.size + piece.size() <= held.bytes.size());
      std::copy(piece.begin(), piece.end(), held.bytes.begin() + held.size);
      held.size += piece.size();
    }
    if (copies.copies[i].damaged) {
      held.size = faults_.damage(std::span(held.bytes).first(held.size));
    }
    due_.push_back({now + copies.copies[i].held_up, next_order_++, slot});
    std::push_heap(due_.begin(), due_.end(), later);
  }
}

std::uint32_t FaultLine::take_first() {
  std::pop_heap(due_.begin(), due_.end(), later);
  const std::uint32_t slot = due_.back().slot;
  due_.pop_back();
  return slot;
}

}  // namespace tulle::live
