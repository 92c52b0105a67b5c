#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace tulle {

// An error of the machine, in the drivers. The message is one line for a person: what is wrong,
// where, and what to do.
struct Error {
  std::string message;
  int error_number = 0;  // an errno where the system gave one
  // What was asked for cannot be done, as a name, a value or a file is wrong. Nothing has failed.
  bool is_misuse = false;
};

// Returns the error as one of what was asked for.
inline Error as_misuse(Error error) {
  error.is_misuse = true;
  return error;
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : outcome_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : outcome_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const { return outcome_.index() == 0; }
  T& value() {
    TULLE_CHECK(outcome_.index() == 0);
    return std::get<0>(outcome_);
  }
  T& operator*() { return value(); }
  T* operator->() { return &value(); }
  const Error& error() const {
    TULLE_CHECK(outcome_.index() == 1);
    return std::get<1>(outcome_);
  }

 private:
  std::variant<T, Error> outcome_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error)  // NOLINT(google-explicit-constructor)
      : error_(std::move(error)), failed_(true) {}

  explicit operator bool() const { return !failed_; }
  const Error& error() const {
    TULLE_CHECK(failed_);
    return error_;
  }

 private:
  Error error_;
  bool failed_ = false;
};

}  // namespace tulle
