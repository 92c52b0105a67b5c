#pragma once

#include <stdexcept>
#include <string>

namespace tulle::scenarios {

// A promise that was not kept. Throwing it ends the scenario.
class Broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void promise(bool kept, const std::string& what) {
  if (!kept) throw Broken(what);
}

}  // namespace tulle::scenarios
