// The device's clock stamps completions as they are queued, in nanoseconds of CLOCK_MONOTONIC.
// Programs may also read the same moment as wall-clock time.

#include <time.h>

#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

std::uint64_t nanoseconds_of(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(t.tv_nsec);
}

class MonotonicClock : public verbs::CompletionClock {
 public:
  std::uint64_t nanoseconds() const override { return nanoseconds_of(CLOCK_MONOTONIC); }
};

std::uint64_t read_time(ibv_cq_ex* cq) { return Cq::of(cq).queue->nanoseconds_of_last(); }

// The difference of the two clocks is taken now, so that the result agrees with the wall clock as
// it is now, whatever has set it since the completion.
std::uint64_t read_wall_time(ibv_cq_ex* cq) {
  return read_time(cq) + (nanoseconds_of(CLOCK_REALTIME) - nanoseconds_of(CLOCK_MONOTONIC));
}

// NICs give their count of ticks in the field of the nanoseconds, whatever a tick is, and programs
// read it there.
int query_rt_values(ibv_context* ibv, ibv_values_ex* values) {
  if (ibv == nullptr || values == nullptr) return report(EINVAL);
  if ((values->comp_mask & ~static_cast<std::uint32_t>(IBV_VALUES_MASK_RAW_CLOCK)) != 0) {
    return report(EINVAL);
  }
  if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0) {
    values->raw_clock.tv_sec = 0;
    values->raw_clock.tv_nsec = static_cast<long>(nanoseconds_of(CLOCK_MONOTONIC));
  }
  return 0;
}

}  // namespace

const verbs::CompletionClock& completion_clock() {
  static const MonotonicClock clock;
  return clock;
}

void serve_times(Cq& cq) {
  cq.read_completion_ts = read_time;
  cq.read_completion_wallclock_ns = read_wall_time;
  const auto guard = Context::of(cq.context).lock();
  cq.queue->keep_times(completion_clock());
}

void serve_clock(Context& context) { context.query_rt_values = query_rt_values; }

}  // namespace tulle::shim
