#include "rsockets/protocol/stream_maps.h"

#include <algorithm>
#include <cstring>

namespace tulle::rsockets {

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

std::optional<TargetEntry> StreamMaps::find(std::uint64_t offset) const {
  for (std::size_t at = 0; at < entries_.size(); at += sizeof(MapEntry)) {
    // The peer may write the entry at any time: all that follows goes by one copy of it.
    MapEntry map;
    std::memcpy(&map, entries_.data() + at, sizeof map);
    const std::uint64_t into = offset - map.offset;
    if (offset < map.offset || into >= map.target.bytes) continue;
    return TargetEntry{map.target.address + into, map.target.key,
                       static_cast<std::uint32_t>(map.target.bytes - into)};
  }
  return std::nullopt;
}

}  // namespace tulle::rsockets
