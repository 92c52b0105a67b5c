#pragma once

// What a part of a network exchanges with the other parts between two rounds, of this process or of
// others: frames, notices, events and the application's requests (sim/crossing.h).

#include <array>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "fabric/switch.h"
#include "sim/admission.h"
#include "sim/application.h"
#include "sim/calendar.h"
#include "sim/crossing.h"
#include "sim/event.h"
#include "sim/frame_store.h"
#include "sim/nodes.h"

namespace tulle::sim {

class Crossings {
 public:
  // The part has that number, and what it has must outlive it.
  Crossings(const Nodes& nodes, std::uint32_t part, Calendar& calendar, FrameStore& frames,
            fabric::Switch::Notices& notices);

  std::uint32_t part() const { return part_; }

  // --- in a round ---

  // `parity` tells two rounds in succession apart.
  void begin_round(unsigned parity) { parity_ = parity; }
  // Sends an event to a node of another part, with the frame or the notice that it names.
  void send(std::uint32_t part, Event event);
  // Asks the application for something at a host of another part.
  void request(std::uint32_t host, std::uint32_t token, std::uint32_t note);
  // Returns the time of the earliest event sent in this round. Time::never() means that there is
  // none.
  Time earliest() const;

  // --- between two rounds ---

  // Takes what another part of this process has sent to it in the round of that parity.
  void take_from(Crossings& other, unsigned parity, Application& application);
  // Returns what it has sent to a part of another process in its last round.
  const Crossing& sent_to(std::uint32_t part) const { return outboxes_[parity_][part]; }
  // Forgets what it has sent to parts of other processes. This process has `own` parts from the
  // first one on.
  void forget_sent(std::uint32_t first, std::uint32_t own);
  // Takes what a part of another process has sent to it. Returns false if it is damaged, or has
  // events before `earliest`, the start of the next round.
  [[nodiscard]] bool take_sent(std::uint32_t process, const CrossingView& crossing, Time earliest,
                               Application& application);

 private:
  void take(const CrossingView& box, Application& application);
  void add(Event event);

  const Nodes& nodes_;
  std::uint32_t part_;
  Calendar& calendar_;
  FrameStore& frames_;
  fabric::Switch::Notices& notices_;
  Admission admission_;
  // By parity of the round and part: what is sent there. A part takes what was sent to it while
  // the next round's crossings are written.
  std::array<std::vector<Crossing>, 2> outboxes_;
  unsigned parity_ = 0;
};

}  // namespace tulle::sim
