#include "shim/rsockets/protocol/stream_maps.h"

#include <algorithm>
#include <cstring>

namespace tulle::rsockets {

void StreamMaps::start(std::span<const std::byte> entries) {
  entries_ = entries;
  known_.resize(entries.size() / sizeof(MapEntry));
}

std::uint32_t StreamMaps::free_index() const {
  const auto is_taken = [this](std::uint32_t index) {
    return std::any_of(maps_.begin(), maps_.end(),
                       [index](const Map& each) { return each.index == index; });
  };
  std::uint32_t index = 0;
  while (is_taken(index)) ++index;
  return index;
}

void StreamMaps::add(std::uint64_t offset, const TargetEntry& memory, bool is_writable) {
  Map map;
  map.offset = offset;
  map.memory = memory;
  if (is_writable) map.index = free_index();
  map.is_told = !is_writable;
  maps_.push_back(map);
}

void StreamMaps::remove(std::uint32_t key) {
  maps_.remove_if([key](const Map& each) { return each.memory.key == key; });
}

bool StreamMaps::has_news() const {
  return std::any_of(maps_.begin(), maps_.end(), [](const Map& each) { return !each.is_told; });
}

StreamMaps::News StreamMaps::take_news() {
  const auto map =
      std::find_if(maps_.begin(), maps_.end(), [](const Map& each) { return !each.is_told; });
  map->is_told = true;
  return {{map->offset, map->memory},
          *map->index,
          peer_.address + std::uint64_t{*map->index} * sizeof(MapEntry),
          peer_.key};
}

bool StreamMaps::learn(std::uint32_t index) {
  if (index >= known_.size()) return false;
  std::memcpy(&known_[index], entries_.data() + index * sizeof(MapEntry), sizeof(MapEntry));
  return true;
}

std::optional<TargetEntry> StreamMaps::find(std::uint64_t offset) const {
  const auto map = std::find_if(known_.begin(), known_.end(), [offset](const MapEntry& each) {
    return offset >= each.offset && offset - each.offset < each.target.bytes;
  });
  if (map == known_.end()) return std::nullopt;
  const std::uint64_t into = offset - map->offset;
  return TargetEntry{map->target.address + into, map->target.key,
                     static_cast<std::uint32_t>(map->target.bytes - into)};
}

}  // namespace tulle::rsockets
