#pragma once

// Suggestions for a name that does not exist.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tulle {

// Returns the names that a person may have meant by `typed`, the nearest first, three at most:
// those that differ in few characters, or else those that `typed` abbreviates.
std::vector<std::string_view> near_names(std::string_view typed,
                                         std::span<const std::string_view> names);

// Returns the end of an error message about `typed`: "; did you mean incast?", or nothing if no
// name is near.
std::string did_you_mean(std::string_view typed, std::span<const std::string_view> names);
// Returns the same and then `more`, a sentence that begins with a small letter and has no full
// stop: "; did you mean incast? The others are …" or "; the others are …".
std::string did_you_mean(std::string_view typed, std::span<const std::string_view> names,
                         std::string_view more);

// Returns names for the functions above. They refer to the strings of `names`.
template <typename Names>
std::vector<std::string_view> views_of(const Names& names) {
  return {names.begin(), names.end()};
}
template <typename Names>
std::string did_you_mean(std::string_view typed, const Names& names) {
  return did_you_mean(typed, std::span<const std::string_view>(views_of(names)));
}
template <typename Names>
std::string did_you_mean(std::string_view typed, const Names& names, std::string_view more) {
  return did_you_mean(typed, std::span<const std::string_view>(views_of(names)), more);
}

}  // namespace tulle
