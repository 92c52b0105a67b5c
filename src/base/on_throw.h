#pragma once

#include <exception>
#include <utility>

namespace tulle {

// Undoes a step of a function if an exception leaves the scope. A function that makes several
// things, each of which may lack memory, then makes all or none.
template <typename Undo>
class OnThrow {
 public:
  explicit OnThrow(Undo undo) : undo_(std::move(undo)) {}
  ~OnThrow() {
    if (std::uncaught_exceptions() > before_) undo_();
  }
  OnThrow(const OnThrow&) = delete;
  OnThrow& operator=(const OnThrow&) = delete;

 private:
  Undo undo_;
  int before_ = std::uncaught_exceptions();
};

}  // namespace tulle
