#include "live/path/memory/mappings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace tulle::live {
namespace {

std::string_view next_word(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const std::string_view word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(word.size());
  return word;
}

bool parse(std::string_view text, std::uint64_t& value, int base) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && rest == text.data() + text.size();
}

// A name ends at the line's end, and the kernel writes an end of line in a name as "\012".
std::string_view without_end_of_line(std::string_view line) {
  return line.substr(0, line.find('\n'));
}

constexpr std::string_view flags_label = "VmFlags:";

bool may_hold_pages(std::string_view name) {
  if (name.starts_with("/[aio]") || name.find("[io_uring]") != std::string_view::npos) return true;
  // Memory that a process shares with its children has the second name.
  const bool is_memory = name.starts_with("/dev/shm/") || name.starts_with("/dev/zero");
  return name.starts_with("/dev/") && !is_memory;
}

bool is_private_memory(const Mapping& mapping) {
  if (mapping.rights != "rw-p") return false;
  if (mapping.inode == 0) {
    return mapping.name.empty() || mapping.name == "[heap]" || mapping.name.starts_with("[anon:");
  }
  return mapping.name.starts_with(fmt::format("/memfd:{} ", region_file_name));
}

// The flags mean, in order: locked; not copied by fork(2); cleared in the child; of huge pages;
// device memory (three kinds); a stack that grows; watched with userfaultfd (two kinds); sealed.
bool is_special(std::string_view flags) {
  constexpr std::array<std::string_view, 11> special = {"lo", "dc", "wf", "ht", "io", "pf",
                                                        "mm", "gd", "um", "uw", "sl"};
  while (!flags.empty()) {
    if (std::ranges::find(special, next_word(flags)) != special.end()) return true;
  }
  return false;
}

}  // namespace

std::optional<Mapping> parse_mapping(std::string_view line) {
  line = without_end_of_line(line);
  const std::string_view range = next_word(line);
  const std::size_t dash = range.find('-');
  Mapping mapping;
  if (dash == std::string_view::npos || !parse(range.substr(0, dash), mapping.begin, 16) ||
      !parse(range.substr(dash + 1), mapping.end, 16) || mapping.begin >= mapping.end) {
    return {};
  }
  mapping.rights = next_word(line);
  if (mapping.rights.size() != 4 || !parse(next_word(line), mapping.file_at, 16)) return {};
  next_word(line);  // the device
  if (!parse(next_word(line), mapping.inode, 10)) return {};
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  mapping.name = line;
  return mapping;
}

bool for_each_mapping(Detail detail, const std::function<bool(const Mapping& mapping)>& see) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const char* const path = detail == Detail::maps ? "/proc/self/maps" : "/proc/self/smaps";
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path, "re"));
  if (file == nullptr) return false;
  struct Line {
    char* text = nullptr;
    std::size_t capacity = 0;
    ~Line() { std::free(text); }
  } line;
  std::string head;  // of the entry of smaps whose flags have not come yet
  for (ssize_t length; (length = getline(&line.text, &line.capacity, file.get())) >= 0;) {
    const std::string_view text(line.text, static_cast<std::size_t>(length));
    if (detail == Detail::maps) {
      const auto mapping = parse_mapping(text);
      if (mapping && !see(*mapping)) return true;
    } else if (text.starts_with(flags_label)) {
      auto mapping = parse_mapping(head);
      if (!mapping) continue;
      mapping->flags = without_end_of_line(text).substr(flags_label.size());
      if (!see(*mapping)) return true;
    } else if (parse_mapping(text)) {
      head = text;
    }
  }
  return true;
}

Obstacle obstacle_to_moving(std::uint64_t begin, std::uint64_t end) {
  Obstacle obstacle = Obstacle::none;
  const bool knows_names = for_each_mapping(Detail::maps, [&](const Mapping& mapping) {
    if (may_hold_pages(mapping.name)) obstacle = Obstacle::devices_write;
    return obstacle == Obstacle::none;
  });
  if (!knows_names) return Obstacle::unknown;
  if (obstacle != Obstacle::none) return obstacle;
  std::uint64_t seen = begin;
  const bool knows_flags = for_each_mapping(Detail::smaps, [&](const Mapping& mapping) {
    if (mapping.end <= begin) return true;
    if (mapping.begin > seen || !is_private_memory(mapping)) {
      obstacle = Obstacle::not_private;
    } else if (is_special(mapping.flags)) {
      obstacle = Obstacle::special;
    }
    seen = mapping.end;
    return obstacle == Obstacle::none && seen < end;
  });
  if (!knows_flags) return Obstacle::unknown;
  if (obstacle != Obstacle::none) return obstacle;
  return seen >= end ? Obstacle::none : Obstacle::not_private;
}

}  // namespace tulle::live
