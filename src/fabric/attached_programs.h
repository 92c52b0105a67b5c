#pragma once

// The programs that have a slot of a host, and those for which packets have come.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace tulle::fabric {

struct AttachedProgram {
  std::uint32_t host = 0;
  std::uint32_t slot = 0;  // from 1 on
  bool operator==(const AttachedProgram&) const = default;
};

class AttachedPrograms {
 public:
  static constexpr std::uint32_t slots_max = 127;

  explicit AttachedPrograms(std::uint32_t hosts) : attached_(hosts) {}

  void attach(AttachedProgram program) {
    auto& slots = attached_[program.host];
    slots.resize(slots_max + 1);
    slots[program.slot] = true;
  }
  void detach(AttachedProgram program) {
    attached_[program.host][program.slot] = false;
    std::erase(ready_, program);
  }
  bool has(std::uint32_t host, std::uint32_t slot) const {
    const auto& slots = attached_[host];
    return slot >= 1 && slot < slots.size() && slots[slot];
  }

  // Notes that packets have come for a program.
  void note_ready(AttachedProgram program) {
    if (std::ranges::find(ready_, program) == ready_.end()) ready_.push_back(program);
  }
  // Returns a program for which that was noted, once.
  std::optional<AttachedProgram> take_ready() {
    if (ready_.empty()) return std::nullopt;
    const AttachedProgram program = ready_.back();
    ready_.pop_back();
    return program;
  }

 private:
  std::vector<std::vector<bool>> attached_;  // by host and slot
  std::vector<AttachedProgram> ready_;
};

}  // namespace tulle::fabric
