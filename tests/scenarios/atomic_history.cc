#include "tests/scenarios/atomic_history.h"

#include <algorithm>
#include <map>

namespace tulle::scenarios {
namespace {

// An operation with its place in the order of values: it found the word at `from` and left it at
// `to`.
struct Placed {
  Time posted;
  Time completed;
  std::uint64_t from;
  std::uint64_t to;
};

// Checks that an operation that completed before another was posted also comes before it in the
// order.
std::string check_real_time(const std::vector<Placed>& placed) {
  std::vector<const Placed*> by_post, by_completion;
  for (const Placed& each : placed) {
    by_post.push_back(&each);
    by_completion.push_back(&each);
  }
  std::sort(by_post.begin(), by_post.end(),
            [](const Placed* a, const Placed* b) { return a->posted < b->posted; });
  std::sort(by_completion.begin(), by_completion.end(),
            [](const Placed* a, const Placed* b) { return a->completed < b->completed; });
  std::uint64_t reached = 0;
  std::size_t done = 0;
  for (const Placed* each : by_post) {
    while (done < by_completion.size() && by_completion[done]->completed < each->posted) {
      reached = std::max(reached, by_completion[done++]->to);
    }
    if (each->from < reached) return "an atomic saw a value that one before it had replaced";
  }
  return {};
}

}  // namespace

std::string check_additions(std::uint64_t initial, std::uint64_t final,
                            const std::vector<AtomicEntry>& entries) {
  std::uint64_t unknown = 0;
  std::vector<AtomicEntry> known;
  for (const AtomicEntry& entry : entries) {
    if (entry.known()) {
      known.push_back(entry);
    } else {
      unknown += entry.operand;
    }
  }
  std::sort(known.begin(), known.end(),
            [](const AtomicEntry& a, const AtomicEntry& b) { return a.original < b.original; });
  std::vector<Placed> placed;
  std::uint64_t value = initial;
  const auto skip_to = [&](std::uint64_t next) {
    if (next < value || next - value > unknown) return false;
    unknown -= next - value;
    value = next;
    return true;
  };
  for (const AtomicEntry& entry : known) {
    if (!skip_to(entry.original)) {
      return "fetch-and-add returned " + std::to_string(entry.original) +
             " where the additions reach " + std::to_string(value);
    }
    value += entry.operand;
    placed.push_back({entry.posted, entry.completed, entry.original, value});
  }
  if (!skip_to(final)) {
    return "the word holds " + std::to_string(final) + " where the additions reach " +
           std::to_string(value);
  }
  return check_real_time(placed);
}

namespace {

// The word's history as a chain of values from the first to the last. Where the chain would end, an
// operation that may or may not have been executed can continue it. The search chooses one with
// which everything fits.
class SwapChain {
 public:
  SwapChain(std::uint64_t final, const std::vector<AtomicEntry>& entries)
      : final_(final), entries_(entries) {}

  // Returns false if two operations replaced the same value.
  bool read() {
    for (const AtomicEntry& entry : entries_) {
      if (!entry.known()) {
        perhaps_.emplace(entry.compare, entry.operand);
      } else if (entry.original == entry.compare &&
                 !successor_.emplace(entry.compare, entry.operand).second) {
        return false;
      }
    }
    return true;
  }

  bool leads_from(std::uint64_t value) {
    std::vector<std::uint64_t> added;
    const auto place = [&](std::uint64_t next) {
      const bool is_new = place_.emplace(next, place_.size()).second;
      if (is_new) added.push_back(next);
      return is_new;
    };
    bool fits = place(value);
    for (auto next = successor_.find(value); fits && next != successor_.end();
         next = successor_.find(value)) {
      value = next->second;
      fits = place(value);
    }
    if (fits && value == final_ && everything_fits()) return true;
    const auto [first, last] = perhaps_.equal_range(value);
    for (auto next = first; fits && next != last; ++next) {
      if (leads_from(next->second)) return true;
    }
    for (const std::uint64_t each : added) place_.erase(each);
    return false;
  }

  std::vector<Placed> placed() const {
    std::vector<Placed> out;
    for (const AtomicEntry& entry : entries_) {
      if (!entry.known()) continue;
      const std::uint64_t from = place_.at(entry.original);
      const bool swapped = entry.original == entry.compare;
      out.push_back({entry.posted, entry.completed, from, from + (swapped ? 1 : 0)});
    }
    return out;
  }

 private:
  bool everything_fits() const {
    return std::all_of(entries_.begin(), entries_.end(), [this](const AtomicEntry& entry) {
      return !entry.known() || place_.contains(entry.original);
    });
  }

  std::uint64_t final_;
  const std::vector<AtomicEntry>& entries_;
  std::map<std::uint64_t, std::uint64_t> successor_;
  std::multimap<std::uint64_t, std::uint64_t> perhaps_;
  std::map<std::uint64_t, std::uint64_t> place_;  // place of each value in the chain
};

}  // namespace

std::string check_swaps(std::uint64_t initial, std::uint64_t final,
                        const std::vector<AtomicEntry>& entries) {
  SwapChain chain(final, entries);
  if (!chain.read()) return "two compare-and-swaps replaced the same value";
  if (!chain.leads_from(initial)) {
    return "no order of the compare-and-swaps explains what they returned and what is left";
  }
  return check_real_time(chain.placed());
}

}  // namespace tulle::scenarios
