#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <string>
#include <type_traits>

#include "scarce_memory.h"

namespace tulle::scarce_memory {

// Makes a call again and again, each time with a later allocation that fails, until none is left.
// A call that fails must say ENOMEM: in errno if it returns a pointer or -1, and in its result if
// it returns an errno.
class Probe {
 public:
  Probe() = default;  // lets nothing fail
  explicit Probe(Mode mode, Threads threads = Threads::this_one)
      : active_(true), mode_(mode), threads_(threads) {}

  template <typename Call>
  auto operator()(const char* name, Call call) {
    if (!active_) return call();
    // A call that made up for a failure goes on with the next allocation when it is made again.
    for (unsigned n = ++at_[name];; ++n) {
      errno = 0;
      fail_at(n, mode_, threads_);
      const auto result = call();
      const int error = errno;
      const bool failed = is_plenty();
      if (!failed) {
        EXPECT_TRUE(worked(result)) << name << ": " << error;
        at_[name] = 0;
        return result;
      }
      ++failures_;
      if (worked(result)) {
        ++unnoticed_;
        at_[name] = n;
        return result;
      }
      EXPECT_EQ(error, ENOMEM) << name << " at its allocation " << n;
      if (n > attempts_max) {
        ADD_FAILURE() << name << " never works";
        return result;
      }
    }
  }

  unsigned failures() const { return failures_; }
  // Failures that the call made up for. It worked all the same.
  unsigned unnoticed() const { return unnoticed_; }

 private:
  static constexpr unsigned attempts_max = 2000;

  template <typename Result>
  static bool worked(const Result& result) {
    if constexpr (std::is_pointer_v<Result>) {
      return result != nullptr;
    } else {
      return result >= 0 && result != ENOMEM;
    }
  }

  bool active_ = false;
  Mode mode_ = Mode::one_fails;
  Threads threads_ = Threads::this_one;
  std::map<std::string, unsigned> at_;
  unsigned failures_ = 0;
  unsigned unnoticed_ = 0;
};

}  // namespace tulle::scarce_memory
