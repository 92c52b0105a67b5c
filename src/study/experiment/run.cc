#include "study/experiment/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "study/experiment/collect.h"
#include "study/experiment/gather.h"

namespace tulle::experiment {
namespace {

constexpr Time slice = Time::microseconds(20);  // of virtual time, if nothing else interrupts

// A flow has two queue pairs, whose numbers are all different up to some 8 million flows (24 bits).
// With more, a host would not know the number of its peer's before that has made it.
constexpr std::size_t divided_flows_max = 8'000'000;

// Returns the threads that may move the share of each process of a setup; null if it is one.
std::unique_ptr<Threads> team_for(const scenario::Setup& setup, std::uint32_t threads,
                                  std::uint32_t processes) {
  const std::uint32_t most = std::min(setup.topology.hosts, sim::Nodes::parts_max) / processes;
  const std::uint32_t usable = std::min(threads, most);
  if (usable <= 1 || !Run::why_undivided(setup).empty()) return nullptr;
  return std::make_unique<Threads>(usable);
}

}  // namespace

Result<std::unique_ptr<Run>> Run::prepare(scenario::Setup setup, std::uint32_t threads,
                                          sim::Processes* processes) {
  auto run = prepare_alone(std::move(setup), threads, processes);
  if (processes == nullptr) return run;
  const Result<void> own = run ? Result<void>() : run.error();
  if (auto all = sim::agree(*processes, own); !all) return all.error();
  const Result<void> introduced = (*run)->introduce_hosts();
  if (auto all = sim::agree(*processes, introduced); !all) return all.error();
  return run;
}

// Tells the other processes what their hosts must know of those here.
Result<void> Run::introduce_hosts() {
  if (processes_ == nullptr) return {};
  Bytes own;
  Packer(own).add_list(player_.introductions());
  const std::vector<Bytes> to(processes_->count(), own);
  std::vector<Bytes> from(processes_->count());
  processes_->exchange(to, from);
  for (std::uint32_t process = 0; process < from.size(); ++process) {
    if (process == processes_->number()) continue;
    Unpacker unpacker(from[process]);
    std::vector<workload::Introduction> others;
    const bool is_whole = unpacker.take_list(others) && unpacker.is_empty();
    const auto is_of_process = [&](const workload::Introduction& other) {
      return other.host < network_.hosts() && network_.process_of(other.host) == process;
    };
    if (!is_whole || !std::ranges::all_of(others, is_of_process)) {
      return Error{sim::damaged_message(process)};
    }
    for (const workload::Introduction& other : others) player_.meet(other);
  }
  return {};
}

Result<std::unique_ptr<Run>> Run::prepare_alone(scenario::Setup setup, std::uint32_t threads,
                                                sim::Processes* processes) {
  auto routes = fabric::compute_routes(setup.topology, setup.routing);
  if (!routes) return routes.error();
  std::vector<fabric::Outage>& outages = setup.network.faults.outages;
  auto recovery = fabric::plan_recovery(setup.topology, setup.routing, setup.recovery, outages);
  if (!recovery) return recovery.error();
  outages = recovery->outages;
  try {
    return std::unique_ptr<Run>(
        new Run(std::move(setup), std::move(*routes), std::move(*recovery), threads, processes));
  } catch (const std::system_error& error) {
    return Error{fmt::format("cannot start {} threads: {}", threads, error.code().message())};
  }
}

Run::~Run() = default;

Run::Run(scenario::Setup setup, fabric::Routes routes, fabric::Recovery recovery,
         std::uint32_t threads, sim::Processes* processes)
    : setup_(std::move(setup)),
      routes_(std::move(routes)),
      recovery_(std::move(recovery)),
      wiring_(setup_.topology),
      processes_(processes != nullptr && processes->count() > 1 ? processes : nullptr),
      team_(team_for(setup_, threads, processes_ == nullptr ? 1 : processes_->count())),
      network_(setup_.topology, routes_, setup_.network, team_.get(), processes_),
      measured_(network_, setup_.topology),
      player_(setup_.flows, setup_.topology.hosts, setup_.player, stage()),
      sampler_(setup_.report, setup_.topology, wiring_) {
  const std::span<const workload::Flow> flows = setup_.flows_to_play();
  for (const workload::Flow& flow : flows) bytes_ += flow.bytes;
  if (setup_.timeline) timeline_ = TimelineSampler(setup_.topology, network_.round());
  network_.follow(recovery_);
  if (network_.threads() > 1 || processes_ != nullptr) player_.open_hosts();
  if (!setup_.jobs.empty()) {
    jobs_.emplace(setup_.jobs, player_, stage(), setup_.only_job);
    player_.follow(*jobs_);
    jobs_->begin();
  } else {
    player_.begin();
  }
}

workload::Stage Run::stage() {
  return {
      [this](std::uint32_t host) -> device::Adapter& { return network_.adapter(host); },
      [this](std::uint32_t host) { network_.attend(host); },
      [this](Time at, std::uint32_t host, std::uint32_t token) { network_.alarm(at, host, token); },
      [this](std::uint32_t host, std::uint8_t path_bits) {
        return sim::address_of(setup_.network, host, path_bits);
      },
      network_.lookahead(),
      [this](std::uint32_t from, std::uint32_t to, std::uint8_t qos_level, std::uint8_t path_bits) {
        return path(from, to, qos_level, path_bits);
      },
      [this](std::uint32_t host, std::uint32_t token, std::uint32_t note) {
        network_.request(host, token, note, *this);
      },
      [this](std::uint32_t host) { return network_.owns(host); }};
}

workload::PathRecord Run::path(std::uint32_t from, std::uint32_t to, std::uint8_t qos_level,
                               std::uint8_t path_bits) const {
  workload::PathRecord path{qos_level, pkey_index(from, to)};
  if (setup_.path_lanes) {
    const std::uint32_t leaf = routes_.leaf_node(routes_.leaf_of(from));
    path.service_level = setup_.path_lanes->service_level(routes_, leaf, to, qos_level, path_bits);
  }
  return path;
}

// Returns the index of the first partition in which the two hosts may talk to each other. If there
// is none, they try with index 0 all the same, like applications that were not told.
std::uint16_t Run::pkey_index(std::uint32_t from, std::uint32_t to) const {
  if (setup_.network.pkeys.empty()) return 0;
  const std::vector<Pkey>& own = setup_.network.pkeys[from];
  const auto found = std::ranges::find_if(own, [&](Pkey pkey) {
    return std::ranges::any_of(setup_.network.pkeys[to],
                               [pkey](Pkey other) { return wire::pkeys_match(pkey, other); });
  });
  return found == own.end() ? std::uint16_t{0} : static_cast<std::uint16_t>(found - own.begin());
}

void Run::show_to(Capture& capture) {
  show_to([&capture](const sim::Sending& sending) { capture.sends(sending); });
}

void Run::show_to(std::function<void(const sim::Sending&)> told) {
  network_.on_send(std::move(told));
}

// Counts flows only when all nodes have come to the same time.
bool Run::run(const OnProgress& on_progress) {
  on_progress_ = &on_progress;
  Time until = std::min(slice, setup_.stop_at);
  bool all_go_on = false;
  while (play_and_sample(until) && ask_others(on_progress(progress()))) {
    const Time next = network_.next_event();
    all_go_on = is_done() || player_.corruption() || next.is_never() || next > setup_.stop_at;
    if (all_go_on) break;
    until = std::min(next + slice, setup_.stop_at);
  }
  if (processes_ == nullptr) return all_go_on;
  collect(*processes_, {measured_, player_, jobs_ ? &*jobs_ : nullptr, sampler_, timeline_});
  elsewhere_ = {};
  return all_go_on;
}

Run::Tally Run::own_tally() const {
  return {player_.counts(), jobs_ ? jobs_->parts_done() : 0, network_.events(), 1};
}

// Learns what the other processes have done. Returns true if all of them continue.
bool Run::ask_others(bool goes_on) {
  if (processes_ == nullptr) return goes_on;
  Tally own = own_tally();
  own.goes_on = goes_on ? 1 : 0;
  std::vector<Bytes> to(processes_->count()), from(processes_->count());
  for (Bytes& bytes : to) Packer(bytes).add(own);
  processes_->exchange(to, from);
  elsewhere_ = {};
  for (std::uint32_t process = 0; process < from.size(); ++process) {
    if (process == processes_->number()) continue;
    Tally other;
    Unpacker unpacker(from[process]);
    if (!unpacker.take(other) || !unpacker.is_empty()) {
      throw std::runtime_error(sim::damaged_message(process));
    }
    elsewhere_.flows.finished += other.flows.finished;
    elsewhere_.flows.failed += other.flows.failed;
    elsewhere_.flows.bytes_done += other.flows.bytes_done;
    elsewhere_.task_parts += other.task_parts;
    elsewhere_.events += other.events;
    elsewhere_.goes_on &= other.goes_on;
  }
  return goes_on && elsewhere_.goes_on != 0;
}

// A job whose message has failed cannot continue. Its other messages end by themselves.
bool Run::is_done() const {
  const Tally own = own_tally();
  if (jobs_) return own.task_parts + elsewhere_.task_parts == jobs_->parts();
  const std::uint64_t here = own.flows.finished + own.flows.failed;
  return here + elsewhere_.flows.finished + elsewhere_.flows.failed == setup_.flows.size();
}

std::string Run::why_undivided(const scenario::Setup& setup) {
  if (setup.player.carries_bytes) {
    return "the bytes of a message are looked at from both of its ends at once";
  }
  if (sim::lookahead_of(setup.topology, setup.network) == Time::zero()) {
    return "a link without delay lets nothing happen at the same time";
  }
  if (setup.flows.size() > divided_flows_max) {
    return fmt::format("it has more than {} flows", divided_flows_max);
  }
  return "";
}

std::string Run::why_fewer_threads() const {
  std::string why = why_undivided(setup_);
  if (!why.empty()) return why;
  if (setup_.topology.hosts < sim::Nodes::parts_max) {
    return fmt::format("it has {} hosts", setup_.topology.hosts);
  }
  return fmt::format("at most {} parts of it move at the same time", sim::Nodes::parts_max);
}

void Run::handle_alarm(Time now, std::uint32_t /*host*/, std::uint32_t token) {
  if (jobs_ && workload::TaskPlayer::is_own(token)) {
    jobs_->handle_alarm(now, token);
  } else {
    player_.handle_alarm(now, token);
  }
}

bool Run::accepts_alarm(std::uint32_t host, std::uint32_t token) const {
  if (jobs_ && workload::TaskPlayer::is_own(token)) return jobs_->accepts_alarm(host, token);
  return player_.accepts_alarm(host, token);
}

bool Run::accepts_request(std::uint32_t host, std::uint32_t token, std::uint32_t note) const {
  return player_.accepts_request(host, token, note);
}

void Run::handle_completions(Time now, std::uint32_t host) {
  player_.handle_completions(now, host);
}

void Run::meet_request(std::uint32_t /*host*/, std::uint32_t token, std::uint32_t note) {
  player_.meet_request(token, note);
}

// Taking a sample does not check the flows, so that the run ends alike with and without samples.
bool Run::play_and_sample(Time until) {
  for (Time next; (next = std::min(sampler_.next(), timeline_.next())) <= until;) {
    if (!network_.play(next, *this)) return false;
    if (sampler_.next() == next) sampler_.take(network_);
    if (timeline_.next() == next) timeline_.take(network_);
  }
  return network_.play(until, *this);
}

Progress Run::progress() const {
  const Tally own = own_tally();
  const std::uint64_t bytes = own.flows.bytes_done + elsewhere_.flows.bytes_done;
  const std::uint64_t over =
      own.flows.finished + own.flows.failed + elsewhere_.flows.finished + elsewhere_.flows.failed;
  const double share = bytes_ == 0 ? 1 : static_cast<double>(bytes) / static_cast<double>(bytes_);
  return {network_.now(), own.events + elsewhere_.events, setup_.flows_to_play().size(), over,
          share};
}

report::Outcome Run::outcome() const {
  report::Outcome outcome =
      gather({setup_, wiring_, routes_, measured_, player_, jobs_ ? &*jobs_ : nullptr});
  outcome.samples = sampler_.samples();
  outcome.timeline = timeline_.timeline();
  if (setup_.timeline && jobs_) outcome.spans = spans_of(*jobs_);
  return outcome;
}

std::optional<Time> Run::time_of_job(std::size_t job) const {
  const workload::TaskPlayer& player = (*jobs_)[job];
  if (!player.is_done()) return {};
  return player.end() - player.job().arrival;
}

Result<void> Run::check_payloads() const {
  if (!player_.corruption()) return {};
  const auto& [part, difference] = *player_.corruption();
  const std::vector<std::uint32_t>& first = setup_.first_parts;
  const auto next = std::upper_bound(first.begin(), first.end(), part);
  const workload::Flow& flow = setup_.flows[part];
  return Error{fmt::format(
      "flow {} (host {} to host {}), queue pair {}: byte {} of {} is 0x{:02x}, but 0x{:02x} was "
      "sent",
      next - first.begin() - 1, flow.source, flow.destination, part - *(next - 1),
      difference.offset, flow.bytes, std::to_integer<unsigned>(difference.found),
      std::to_integer<unsigned>(difference.expected))};
}

}  // namespace tulle::experiment
