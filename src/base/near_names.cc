#include "base/near_names.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <utility>

namespace tulle {
namespace {

// A longer text is no slip of the fingers.
constexpr std::size_t length_max = 64;
constexpr std::size_t suggestions_max = 3;

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Returns how many characters have to be inserted, removed, replaced or exchanged with their
// neighbour to make one text of the other (optimal string alignment), regardless of case.
std::size_t distance(std::string_view one, std::string_view other) {
  std::vector<std::size_t> before_last, last(other.size() + 1), row(other.size() + 1);
  for (std::size_t j = 0; j <= other.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= one.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= other.size(); ++j) {
      const bool is_same = lower(one[i - 1]) == lower(other[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (is_same ? 0 : 1)});
      const bool is_exchanged = i > 1 && j > 1 && lower(one[i - 1]) == lower(other[j - 2]) &&
                                lower(one[i - 2]) == lower(other[j - 1]);
      if (is_exchanged) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = std::exchange(last, row);
  }
  return last[other.size()];
}

}  // namespace

std::vector<std::string_view> near_names(std::string_view typed,
                                         std::span<const std::string_view> names) {
  if (typed.empty() || typed.size() > length_max) return {};
  std::vector<std::pair<std::size_t, std::string_view>> found;
  // One mistake in three characters: of three letters one may be wrong, of nine three.
  const std::size_t most = std::max<std::size_t>(1, typed.size() / 3);
  for (const std::string_view name : names) {
    if (name.size() > length_max || name.size() < 2) continue;
    const std::size_t mistakes = distance(typed, name);
    if (mistakes <= most && mistakes < name.size()) found.emplace_back(mistakes, name);
  }
  constexpr std::size_t abbreviation_min = 3;
  if (found.empty() && typed.size() >= abbreviation_min) {
    for (const std::string_view name : names) {
      if (name.find(typed) != std::string_view::npos) found.emplace_back(name.size(), name);
    }
  }
  std::ranges::stable_sort(found, {}, [](const auto& each) { return each.first; });
  // Where one name is much nearer than the others, those would only distract.
  std::vector<std::string_view> nearest;
  for (const auto& [mistakes, name] : found) {
    const bool is_there = std::ranges::find(nearest, name) != nearest.end();
    if (is_there || nearest.size() == suggestions_max) continue;
    if (mistakes <= most && mistakes > found.front().first + 1) continue;
    nearest.push_back(name);
  }
  return nearest;
}

std::string did_you_mean(std::string_view typed, std::span<const std::string_view> names) {
  const auto nearest = near_names(typed, names);
  if (nearest.empty()) return "";
  std::string text = "; did you mean ";
  for (std::size_t i = 0; i < nearest.size(); ++i) {
    if (i > 0) text += i + 1 == nearest.size() ? " or " : ", ";
    text += nearest[i];
  }
  return text + "?";
}

std::string did_you_mean(std::string_view typed, std::span<const std::string_view> names,
                         std::string_view more) {
  const std::string meant = did_you_mean(typed, names);
  if (meant.empty() || more.empty()) return more.empty() ? meant : "; " + std::string(more);
  std::string sentence(more);
  sentence.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(sentence.front())));
  return meant + " " + sentence;
}

}  // namespace tulle
