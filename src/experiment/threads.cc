#include "experiment/threads.h"

#include "base/check.h"
#include "base/pause.h"

namespace tulle::experiment {

void MeetingPlace::meet(const std::function<void()>& before_all_go) {
  // A thread looks for about half a millisecond before it sleeps: waking one takes the kernel a
  // tenth of that, and a round of some hundred hosts takes no longer. Meanwhile it lets others run,
  // now and then, since those that it waits for may be among them.
  constexpr int looks_before_sleep = 20'000;
  constexpr int looks_between_yields = 200;
  const std::uint32_t meeting = meeting_.load(std::memory_order_relaxed);
  if (here_.fetch_add(1, std::memory_order_acq_rel) + 1 ==
      threads_.load(std::memory_order_relaxed)) {
    here_.store(0, std::memory_order_relaxed);
    before_all_go();
    meeting_.store(meeting + 1, std::memory_order_release);
    meeting_.notify_all();
    return;
  }
  for (int look = 0; look < looks_before_sleep; ++look) {
    if (meeting_.load(std::memory_order_acquire) != meeting) return;
    pause_processor();
    if (look % looks_between_yields == looks_between_yields - 1) std::this_thread::yield();
  }
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
