#include "study/experiment/threads.h"

#include <algorithm>

#include "base/check.h"
#include "base/pause.h"

namespace tulle::experiment {
namespace {

// A thread looks at least and at most so often before it sleeps. The most takes about half a
// millisecond: waking a thread takes the kernel a tenth of that, and a round of some hundred hosts
// takes no longer. Where looking was in vain, since other programs have the processors, threads
// look less, and the kernel then prefers those that have slept.
constexpr int looks_max = 20'000;
constexpr int looks_min = 200;
// A thread lets others run now and then, since those that it waits for may be among them.
constexpr int looks_between_yields = 200;

}  // namespace

MeetingPlace::MeetingPlace(std::uint32_t threads) : threads_(threads), looks_(looks_max) {}

void MeetingPlace::meet(const std::function<void()>& before_all_go) {
  const std::uint32_t meeting = meeting_.load(std::memory_order_relaxed);
  if (here_.fetch_add(1, std::memory_order_acq_rel) + 1 ==
      threads_.load(std::memory_order_relaxed)) {
    here_.store(0, std::memory_order_relaxed);
    before_all_go();
    meeting_.store(meeting + 1, std::memory_order_release);
    meeting_.notify_all();
    return;
  }
  const int looks = looks_.load(std::memory_order_relaxed);
  for (int look = 0; look < looks; ++look) {
    if (meeting_.load(std::memory_order_acquire) != meeting) {
      looks_.store(std::min(looks + looks / 8, looks_max), std::memory_order_relaxed);
      return;
    }
    pause_processor();
    if (look % looks_between_yields == looks_between_yields - 1) std::this_thread::yield();
  }
  looks_.store(std::max(looks / 2, looks_min), std::memory_order_relaxed);
  meeting_.wait(meeting, std::memory_order_acquire);
}

Threads::Threads(std::uint32_t threads) : begin_(threads), between_(threads), end_(threads) {
  TULLE_CHECK(threads >= 1 && threads <= most);
  threads_.reserve(threads - 1);
  try {
    for (std::uint32_t number = 1; number < threads; ++number) {
      threads_.emplace_back([this, number] { serve(number); });
    }
  } catch (...) {
    begin_.expect(size());
    dismiss();
    throw;
  }
}

Threads::~Threads() { dismiss(); }

void Threads::dismiss() {
  function_ = nullptr;
  begin_.meet([] {});
  for (std::thread& thread : threads_) thread.join();
}

void Threads::work(const std::function<void(std::uint32_t)>& function) {
  function_ = &function;
  begin_.meet([] {});
  function(0);
  end_.meet([] {});
}

void Threads::serve(std::uint32_t number) {
  for (;;) {
    begin_.meet([] {});
    if (function_ == nullptr) return;
    (*function_)(number);
    end_.meet([] {});
  }
}

}  // namespace tulle::experiment
