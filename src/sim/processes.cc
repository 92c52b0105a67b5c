#include "sim/processes.h"

#include <algorithm>
#include <stdexcept>

namespace tulle::sim {

void Processes::exchange(const std::vector<Bytes>& to, std::vector<Bytes>& from) {
  std::vector<Pieces> pieces(to.size());
  for (std::size_t process = 0; process < to.size(); ++process) {
    pieces[process] = {std::span(to[process])};
  }
  exchange_pieces(pieces, from);
}

std::vector<std::string> ask_all(Processes& processes, const std::string& says) {
  Bytes own;
  Packer(own).add_all(std::span(says.data(), says.size()));
  const std::vector<Bytes> to(processes.count(), own);
  std::vector<Bytes> from(processes.count());
  processes.exchange(to, from);
  std::vector<std::string> all;
  for (std::uint32_t process = 0; process < from.size(); ++process) {
    const Bytes& bytes = process == processes.number() ? own : from[process];
    all.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return all;
}

// A text without a failure is empty, and one with a failure is not.
Result<void> agree(Processes& processes, const Result<void>& own) {
  const auto mark = [](const Error& error) { return error.is_misuse ? '?' : '!'; };
  const auto said = ask_all(processes, own ? "" : mark(own.error()) + own.error().message);
  const auto found = std::ranges::find_if(said, [](const auto& text) { return !text.empty(); });
  if (found == said.end()) return {};
  Error error{found->substr(1)};
  error.is_misuse = found->front() == '?';
  if (found == said.begin()) return error;
  error.message = "rank " + std::to_string(found - said.begin()) + ": " + error.message;
  return error;
}

std::string damaged_message(std::uint32_t process) {
  return "rank " + std::to_string(process) + " has sent a damaged message";
}

void fail_at(std::uint32_t process) { throw std::runtime_error(damaged_message(process)); }

}  // namespace tulle::sim
