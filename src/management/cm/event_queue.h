#pragma once

// The events of a connection manager that its driver has not taken yet. A connection that its owner
// has released reports nothing.

#include <deque>
#include <optional>

#include "management/cm/connection.h"
#include "management/cm/types.h"

namespace tulle::management::cm {

class EventQueue {
 public:
  // Returns the new event, for the caller to complete, or null if the owner wants none.
  Event* add(const Connection& connection, Event::Kind kind) {
    if (connection.is_released) return nullptr;
    Event& event = events_.emplace_back();
    event.kind = kind;
    event.id = connection.id;
    return &event;
  }
  std::optional<Event> pull() {
    if (events_.empty()) return std::nullopt;
    std::optional<Event> event(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::deque<Event> events_;
};

}  // namespace tulle::management::cm
