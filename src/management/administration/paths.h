#pragma once

// PathRecords (IBTA 15.2.5.16): the paths between two ports, or of many, that a question asks for.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "management/administration/view.h"
#include "rdma/wire/sa.h"

namespace tulle::management::administration {

// Components of a PathRecord, as bits of the mask.
struct PathComponents {
  static constexpr std::uint64_t destination_gid = 1 << 2;
  static constexpr std::uint64_t source_gid = 1 << 3;
  static constexpr std::uint64_t destination_lid = 1 << 4;
  static constexpr std::uint64_t source_lid = 1 << 5;
  static constexpr std::uint64_t raw_traffic = 1 << 6;
  static constexpr std::uint64_t reversible = 1 << 11;
  static constexpr std::uint64_t paths = 1 << 12;
  static constexpr std::uint64_t pkey = 1 << 13;
  static constexpr std::uint64_t sl = 1 << 15;
  static constexpr std::uint64_t mtu_selector = 1 << 16;
  static constexpr std::uint64_t mtu = 1 << 17;
  static constexpr std::uint64_t rate_selector = 1 << 18;
  static constexpr std::uint64_t rate = 1 << 19;
  static constexpr std::uint64_t life_time_selector = 1 << 20;
  static constexpr std::uint64_t life_time = 1 << 21;
};

// A question for the path to a port that is usable in both directions, as the messages of a
// connection and the answers of a neighbour need it.
struct PathQuestion {
  wire::PathRecord record;
  std::uint64_t components = 0;
};
inline PathQuestion path_question(const wire::GidBytes& source, const wire::GidBytes& destination,
                                  std::uint16_t pkey) {
  PathQuestion question;
  question.record.source_gid = source;
  question.record.destination_gid = destination;
  question.record.reversible_and_paths = wire::PathRecord::reversible | 1;
  question.record.pkey = pkey;
  question.components = PathComponents::destination_gid | PathComponents::source_gid |
                        PathComponents::reversible | PathComponents::paths | PathComponents::pkey;
  return question;
}

// 4.096 us * 2^18 is a second, as a subnet's time-out is.
inline constexpr std::uint8_t path_life_time = 18;

enum class PathOutcome : std::uint8_t { ok, unknown_gid, bad_question, enough, unfinished };

// Where a search resumes: it may be for all pairs of a subnet.
struct PathCursor {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  bool has_begun = false;
};

// Hands each path to the caller, which returns false when it has enough. The search follows at most
// `budget` paths, which it lowers by what it has done. If that is too little, it resumes at the
// cursor when it is called again, with the same view and question.
using TakePath = std::function<bool(const wire::PathRecord&)>;
PathOutcome find_paths(const View& view, std::uint64_t mask, const wire::PathRecord& question,
                       PathCursor& cursor, std::size_t& budget, const TakePath& take);

// Returns true if a value has what a question's selector and value ask for. Values are compared by
// their rank.
using Rank = unsigned (*)(std::uint8_t code);
bool is_wanted(std::uint8_t value, std::uint8_t wanted, Rank rank);
// Returns the greatest value that is less than `limit` and not more than `most`; 0: there is none.
std::uint8_t greatest_below(std::uint8_t limit, std::uint8_t most, Rank rank);
// The rank of a value whose codes grow with it.
unsigned rank_of_code(std::uint8_t code);

}  // namespace tulle::management::administration
