#include "study/joined_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/quoted.h"
#include "base/write_best_effort.h"
#include "sim/mpi/launch.h"
#include "sim/nodes.h"
#include "study/digest.h"
#include "study/ranks.h"

namespace tulle::study {
namespace {

// A signal's handler prints it.
std::array<char, 1'024> last_words;
volatile std::sig_atomic_t last_words_length = 0;

void handle_end(int signal) {
  write_best_effort(STDERR_FILENO, last_words.data(), static_cast<std::size_t>(last_words_length));
  _exit(128 + signal);
}

// mpirun may end all ranks when one has failed. Gives rank 0 the time to say what has.
void wait_for_first() { sleep(1); }

// Returns what all ranks must have alike. The name of the program may differ.
std::string command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  return all.substr(std::min(all.find('\0'), all.size()));
}

Result<void> compare_ranks(mpi::Ranks& joined) {
  const auto versions = sim::ask_all(joined, build_version());
  if (const auto other = other_than_first(versions)) {
    return Error{fmt::format(
        "rank {} runs another build of Tulle ({}) than rank 0 ({}): start one build everywhere",
        *other, versions[*other], versions.front())};
  }
  if (const auto other = other_than_first(sim::ask_all(joined, digest_of(command_line())))) {
    return Error{fmt::format(
        "rank {} was given another command line than rank 0: all ranks simulate one scenario "
        "together; for separate simulations, set TULLE_MPI=none",
        *other)};
  }
  return {};
}

// The seconds for which a rank waits for the others in silence.
constexpr unsigned silent_seconds = 10;

void handle_long_wait(int) {
  constexpr char text[] =
      "tulle: not all ranks of mpirun have come yet; if they are not to simulate together, set "
      "TULLE_MPI=none\n";
  write_best_effort(STDERR_FILENO, text, sizeof text - 1);
}

std::string line_of_silence(std::span<const std::uint32_t> ranks) {
  constexpr std::size_t named_max = 8;
  const auto named = ranks.first(std::min(ranks.size(), named_max));
  const std::string more =
      ranks.size() > named_max ? fmt::format(" and {} more", ranks.size() - named_max) : "";
  return fmt::format("tulle: {} {}{} {} sent nothing for {} s; still waiting\n",
                     ranks.size() == 1 ? "rank" : "ranks", fmt::join(named, ", "), more,
                     ranks.size() == 1 ? "has" : "have", silent_seconds);
}

// The first line is enough: rounds may take long, and then each would have one. Ranks that wait for
// a silent one are silent, too. No exception may pass through the library, which is written in C.
void handle_silence(const std::uint32_t* ranks, std::uint32_t count) {
  static bool is_known = false;
  if (std::exchange(is_known, true)) return;
  try {
    std::fputs(line_of_silence({ranks, count}).c_str(), stderr);
  } catch (const std::bad_alloc&) {
    std::fputs("tulle: ranks have sent nothing for a while; still waiting\n", stderr);
  }
}

}  // namespace

Result<void> JoinedRanks::look() {
  auto found = mpi::launch_of([](const char* name) { return secure_getenv(name); });
  if (!found) return found.error();
  launch_ = *found;
  return {};
}

Result<void> JoinedRanks::join(const std::string& library_folder) {
  if (!launch_) return {};
  if (launch_->size > sim::Nodes::parts_max) {
    return as_misuse({fmt::format("{} ranks are too many: at most {} simulate together",
                                  launch_->size, sim::Nodes::parts_max)});
  }
  if (library_folder.empty()) {
    return Error{"cannot find Tulle's libraries; is the installation complete?"};
  }
  // su keeps these variables, and others by which an MPI library loads any file.
  if (geteuid() == 0 && !mpi::is_below_launcher()) {
    return Error{
        "the environment says that an MPI job has started this process, but no launcher of root's "
        "has: set TULLE_MPI=none, or start it by mpirun"};
  }
  // One rank of each host says that others are missing, since rank 0 may be one of them.
  if (launch_->is_first_on_host) std::signal(SIGALRM, handle_long_wait);
  if (launch_->is_first_on_host) alarm(silent_seconds);
  auto ranks = mpi::Ranks::join(library_folder, *launch_);
  if (!ranks) {
    // A library may be missing on this host alone, where rank 0 does not see it.
    if (!is_first() && launch_->is_first_on_host) {
      wait_for_first();
      std::fprintf(stderr, "tulle: rank %u: %s\n", launch_->rank,
                   one_line(ranks.error().message).c_str());
    }
    return ranks.error();
  }
  joined_ = std::move(*ranks);
  auto compared = compare_ranks(*joined_);
  alarm(0);
  if (is_first()) joined_->watch(silent_seconds, handle_silence);
  return compared;
}

void JoinedRanks::print_when_ended(const std::string& line) const {
  if (joined_ == nullptr || !is_first()) return;
  std::signal(SIGTERM, SIG_DFL);
  const std::string text = fmt::format("tulle: {}\n", line);
  last_words_length = static_cast<int>(std::min(text.size(), last_words.size()));
  std::copy_n(text.data(), last_words_length, last_words.data());
  std::signal(SIGTERM, handle_end);
}

int JoinedRanks::leave(int status) {
  std::signal(SIGTERM, SIG_DFL);
  const bool has_joined = joined_ != nullptr;
  joined_.reset();
  if (is_first() || status == 0) return status;
  if (has_joined) return 0;  // as mpirun ends all ranks when one has failed, rank 0 comes first
  wait_for_first();
  return status;
}

void JoinedRanks::abort(const std::string& message) {
  if (joined_ == nullptr) return;
  if (joined_->number() == 0) {
    std::fprintf(stderr, "tulle: %s\n", one_line(message).c_str());
  } else {
    std::fprintf(stderr, "tulle: rank %u: %s\n", joined_->number(), one_line(message).c_str());
  }
  joined_->abort(1);
}

}  // namespace tulle::study
