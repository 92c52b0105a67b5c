#include "study/experiment/flow_jobs.h"

#include <algorithm>
#include <cmath>

namespace tulle::experiment {
namespace {

double ps(Time time) { return static_cast<double>(time.ps); }

std::size_t connections_of(const workload::Flows& flows) {
  std::int32_t most = -1;
  for (const workload::Flow& flow : flows) most = std::max(most, flow.connection);
  return static_cast<std::size_t>(std::int64_t{most} + 1);
}

}  // namespace

FlowJobs::FlowJobs(const scenario::Setup& setup, const std::vector<Ideal>& ideals,
                   fluid::Traffic& traffic, fluid::Play& play)
    : setup_(setup),
      ideals_(ideals),
      traffic_(traffic),
      play_(play),
      connections_(connections_of(setup.flows)),
      results_(setup.flows.size()),
      jobs_(setup.jobs, *this, stage(), setup.only_job) {}

// Tasks ask for alarms alone: they never see an adapter.
workload::Stage FlowJobs::stage() {
  workload::Stage stage;
  stage.alarm = [this](Time at, std::uint32_t, std::uint32_t token) {
    set(at, What::alarm, token);
  };
  return stage;
}

void FlowJobs::run(const std::function<bool(std::uint64_t done)>& goes_on) {
  jobs_.begin();
  constexpr std::uint64_t events_between = 4'096;
  for (std::uint64_t count = 1; !jobs_.is_done(); ++count) {
    const double ends = play_.next_end();
    const double happens =
        events_.empty() ? std::numeric_limits<double>::infinity() : ps(events_.top().at);
    const double now = std::min(ends, happens);
    if (now > ps(setup_.stop_at)) return;  // infinity, too
    while (play_.next_end() <= now) end_first(now);
    // Handling an event may add another one for the same time.
    while (!events_.empty() && ps(events_.top().at) <= now) {
      const Event event = events_.top();
      events_.pop();
      handle(event);
    }
    play_.settle(now);
    if (count % events_between == 0 && !goes_on(done_)) return;
  }
}

void FlowJobs::handle(const Event& event) {
  switch (event.what) {
    case What::alarm:
      return jobs_.handle_alarm(event.at, event.subject);
    case What::post:
      return post(event.at, event.subject);
    case What::arrival:
      results_[event.subject].arrived = event.at;
      return jobs_.arrived(event.at, event.subject);
    case What::completion:
      results_[event.subject].end = event.at;
      ++done_;
      return jobs_.sent(event.at, event.subject);
  }
}

void FlowJobs::start(Time at, std::uint32_t flow) {
  results_[flow].start = at;
  set(at + setup_.player.post_delay_of(setup_.flows[flow].source), What::post, flow);
}

void FlowJobs::post(Time now, std::uint32_t flow) {
  const std::int32_t number = setup_.flows[flow].connection;
  if (number >= 0) {
    Connection& connection = connections_[static_cast<std::size_t>(number)];
    if (connection.is_busy) return connection.waiting.push_back(flow);
    connection.is_busy = true;
  }
  traffic_.flows[flow].start = ps(now);
  play_.begin(ps(now), flow);
}

// The delay of a flow that waited for its turn counts from the turn on.
void FlowJobs::end_first(double now) {
  const auto [flow, waits_back] = play_.end_first(now);
  const workload::Flow& message = setup_.flows[flow];
  const double begun = traffic_.flows[flow].start;
  const double there = begun + ps(ideals_[flow].one_way) + play_.delay(flow) - waits_back;
  const double back = begun + ps(ideals_[flow].whole) + play_.delay(flow);
  const workload::PlayerSettings& player = setup_.player;
  set(Time{std::llround(there)} + player.completion_delay_of(message.destination), What::arrival,
      flow);
  set(Time{std::llround(back)} + player.completion_delay_of(message.source), What::completion,
      flow);
  if (message.connection < 0) return;
  Connection& connection = connections_[static_cast<std::size_t>(message.connection)];
  connection.is_busy = false;
  if (connection.waiting.empty()) return;
  const std::uint32_t next = connection.waiting.front();
  connection.waiting.pop_front();
  connection.is_busy = true;
  traffic_.flows[next].start = now;
  play_.begin(now, next);
}

}  // namespace tulle::experiment
