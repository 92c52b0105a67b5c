#include "cli/terminal.h"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/terminal_text.h"

namespace tulle::cli {
namespace {

// A signal's handler sets it, and the threads of all simulations poll it.
std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);
void handle_interrupt(int) { interrupted.store(true, std::memory_order_relaxed); }

// A full disk is noticed when the text is written out, not when it is printed.
Result<void> write_out(const std::string& text) {
  fmt::print("{}", text);
  if (std::fflush(stdout) == 0) return {};
  return Error{fmt::format("cannot write to standard output: {}", std::strerror(errno))};
}

}  // namespace

study::JoinedRanks& ranks() {
  static study::JoinedRanks all;
  return all;
}

Result<void> look_for_ranks() {
  if (auto looked = ranks().look(); !looked) return looked;
  if (!ranks().is_first() && std::freopen("/dev/null", "w", stdout) == nullptr) {
    return Error{"cannot open /dev/null"};
  }
  return {};
}

void catch_interrupts() { std::signal(SIGINT, handle_interrupt); }
bool is_interrupted() { return interrupted.load(std::memory_order_relaxed); }

Result<void> print(const std::string& text) { return write_out(terminal_text(text)); }
Result<void> print_json(const std::string& json) { return write_out(terminal_json(json)); }

void Terminal::ready() {
  ProgressLine::ready();
  catch_interrupts();
}

std::unique_ptr<Terminal::Run> Terminal::begin(const std::string& name) {
  catch_interrupts();
  return ProgressLine::begin(name);
}

}  // namespace tulle::cli
