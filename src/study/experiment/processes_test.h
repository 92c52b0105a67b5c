#pragma once

// Processes that are threads of the test, so that tests of several processes need no MPI.

#include <barrier>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sim/processes.h"
#include "sim/round_message_test.h"
#include "study/experiment/outcome_test.h"

namespace tulle::experiment {

// The place where the messages of all processes lie.
class MeetingRoom {
 public:
  // Called with each message before it arrives, and may change it.
  using Tamper = std::function<void(std::uint32_t from, std::uint32_t to, Bytes& message)>;

  explicit MeetingRoom(std::uint32_t count, Tamper tamper = {})
      : letters(count, std::vector<Bytes>(count)), barrier(count), tamper(std::move(tamper)) {}

  std::vector<std::vector<Bytes>> letters;  // by sender and receiver
  std::barrier<> barrier;
  Tamper tamper;
};

class ProcessOfTest final : public sim::Processes {
 public:
  ProcessOfTest(MeetingRoom& room, std::uint32_t number) : room_(room), number_(number) {}

  std::uint32_t number() const override { return number_; }
  std::uint32_t count() const override { return static_cast<std::uint32_t>(room_.letters.size()); }
  void exchange_pieces(const std::vector<sim::Pieces>& to, std::vector<Bytes>& from) override {
    ++exchanges;
    for (std::uint32_t other = 0; other < count(); ++other) {
      Bytes& letter = room_.letters[number_][other];
      letter = sim::joined(to[other]);
      if (room_.tamper && other != number_) room_.tamper(number_, other, letter);
    }
    room_.barrier.arrive_and_wait();
    for (std::uint32_t other = 0; other < count(); ++other) {
      if (other != number_) from[other] = room_.letters[other][number_];
    }
    room_.barrier.arrive_and_wait();
  }

  std::uint64_t exchanges = 0;

 private:
  MeetingRoom& room_;
  std::uint32_t number_;
};

// Calls a function in each of so many processes, and returns when all calls have returned.
inline void in_processes(std::uint32_t count, const std::function<void(ProcessOfTest&)>& function,
                         MeetingRoom::Tamper tamper = {}) {
  MeetingRoom room(count, std::move(tamper));
  std::vector<std::jthread> threads;
  for (std::uint32_t number = 0; number < count; ++number) {
    threads.emplace_back([&room, &function, number] {
      ProcessOfTest process(room, number);
      function(process);
      room.barrier.arrive_and_drop();  // the others do not wait for one that has failed
    });
  }
}

// Returns the outcome of the first variant of a scenario's text, simulated by so many processes of
// so many threads.
inline report::Outcome outcome_of_processes(const std::string& text, std::uint32_t processes,
                                            std::uint32_t threads = 1, bool timeline = false) {
  report::Outcome outcome;
  in_processes(processes, [&](ProcessOfTest& process) {
    auto setup = setup_of(text, "", {});
    if (!setup) return;
    setup->timeline = timeline;
    auto run = Run::prepare(std::move(*setup), threads, &process);
    (*run)->run([](const Progress&) { return true; });
    EXPECT_GT(process.exchanges, 3u);
    if (process.number() == 0) outcome = (*run)->outcome();
  });
  return outcome;
}

}  // namespace tulle::experiment
