#include "ranks/rank.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

#include "ranks/values.h"

namespace tulle::ranks {
namespace {

// A notice tells that a chunk of that task has come; or, with this bit, that so many chunks were
// taken. A graph has fewer tasks than that.
constexpr std::uint32_t credit_bit = 1u << 31;
static_assert(workload::TaskGraph::tasks_max <= credit_bit);

// The kinds of a request's number, above the number of its link and that of its task.
enum class Request : std::uint64_t { receive, chunk, last_chunk, credit };
constexpr std::uint64_t number_of(Request kind, std::uint32_t link, std::uint32_t task = 0) {
  return static_cast<std::uint64_t>(kind) << 62 | std::uint64_t{link} << 32 | task;
}
constexpr Request kind_of(std::uint64_t number) { return static_cast<Request>(number >> 62); }
constexpr std::uint32_t link_of(std::uint64_t number) {
  return static_cast<std::uint32_t>(number >> 32 & 0x3FFF'FFFF);
}

constexpr std::chrono::seconds life_period{1};

// Returns the processor time of this process so far.
std::uint64_t processor_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

Rank::Rank(const Plan& plan, const Group& group, std::uint32_t rank, FrameSocket leader)
    : plan_(plan), group_(group), rank_(rank), leader_(std::move(leader)) {}

void Rank::report(const Error& error) {
  (void)leader_.send_text(FrameKind::failed, error.message, group_.timeout);
}

Result<void> Rank::run() {
  auto verbs = VerbsLibrary::load(group_.library);
  if (!verbs) return verbs.error();
  auto endpoint = Endpoint::open(*verbs, plan_, rank_, group_.timeout);
  if (!endpoint) return endpoint.error();
  endpoint_ = std::move(*endpoint);
  index_tasks();
  if (auto met = meet(); !met) return met.error();
  for (std::uint32_t i = 0; i < plan_.warm_up + plan_.iterations; ++i) {
    if (auto done = iterate(i); !done) return done.error();
  }
  if (auto told = tell(FrameKind::ready, wrong_); !told) return told.error();
  auto end = hear(FrameKind::end);
  return end ? Result<void>() : end.error();
}

Result<void> Rank::meet() {
  const auto sent = leader_.send(FrameKind::addresses, endpoint_.addresses(), group_.timeout);
  if (auto told = unless_over(sent); !told) return told.error();
  auto frame = hear(FrameKind::addresses);
  if (!frame) return frame.error();
  const auto remote = frame->as<std::vector<Address>>();
  if (!remote) return Error{"rank 0 says nonsense"};
  if (auto connected = endpoint_.connect(*remote); !connected) return connected.error();
  for (const Link& link : endpoint_.links()) {
    Flow& flow = flows_.emplace_back();
    flow.credits = link.remote.slots;
  }
  return {};
}

Result<void> Rank::iterate(std::uint32_t iteration) {
  const std::uint64_t bytes = plan_.buffer_bytes;
  const std::span<Value> buffer = endpoint_.memory().values(0, bytes);
  const std::span<Value> second =
      plan_.has_second_buffer ? endpoint_.memory().values(bytes, bytes) : std::span<Value>();
  if (plan_.collective || iteration == 0) fill(buffer, second, rank_, iteration);
  reset();
  if (auto told = tell(FrameKind::ready, wrong_); !told) return told.error();
  if (auto go = hear(FrameKind::go); !go) return go.error();
  const std::uint64_t worked = processor_nanoseconds();
  const Clock::time_point begin = Clock::now();
  if (auto played = play(); !played) return played.error();
  const std::chrono::nanoseconds took = Clock::now() - begin;
  const Done done{static_cast<std::uint64_t>(took.count()), processor_nanoseconds() - worked};
  const auto sent = leader_.send(FrameKind::done, done, group_.timeout);
  if (auto told = unless_over(sent); !told) return told.error();
  // The results are looked at when no rank needs the processor for the collective any more.
  if (auto go = hear(FrameKind::go); !go) return go.error();
  wrong_ += count_wrong(plan_, buffer, second, rank_, iteration);
  return {};
}

// Keeps, for each task that this rank knows of, which tasks of this rank wait for it.
void Rank::index_tasks() {
  const workload::TaskGraph& graph = plan_.graph;
  first_dependent_.assign(graph.size() + 1, 0);
  for (Index i = 0; i < graph.size(); ++i) {
    if (graph[i].peer == rank_) ++incoming_;
    if (graph[i].rank != rank_) continue;
    own_.push_back(i);
    for (const Index before : graph.waits_for(i)) ++first_dependent_[before + 1];
  }
  for (std::size_t i = 0; i < graph.size(); ++i) first_dependent_[i + 1] += first_dependent_[i];
  dependents_.resize(first_dependent_.back());
  std::vector<std::uint32_t> next(first_dependent_.begin(), first_dependent_.end() - 1);
  for (const Index i : own_) {
    for (const Index before : graph.waits_for(i)) dependents_[next[before]++] = i;
  }
}

void Rank::reset() {
  awaited_.assign(plan_.graph.size(), 0);
  received_.assign(plan_.graph.size(), 0);
  for (const Index i : own_) {
    awaited_[i] = static_cast<std::uint32_t>(plan_.graph.waits_for(i).size());
  }
  left_ = own_.size() + incoming_;
}

Result<void> Rank::play() {
  progress_ = Clock::now();
  for (const Index i : own_) {
    if (plan_.graph.waits_for(i).empty()) {
      if (auto started = start(i); !started) return started;
    }
  }
  while (left_ > 0) {
    auto completions = endpoint_.poll();
    if (!completions) return completions.error();
    for (const ibv_wc& completion : *completions) {
      if (auto handled = handle(completion); !handled) return handled;
    }
    if (completions->empty() && left_ > 0) {
      if (auto slept = sleep(); !slept) return slept;
    }
    show_life(FrameKind::alive);
  }
  return {};
}

Result<void> Rank::start(Index task) {
  const workload::Task& message = plan_.graph[task];
  const std::uint32_t link = endpoint_.link_to(message.peer, message.channel);
  flows_[link].waiting.push_back({task});
  return pump(link);
}

// Sends as many chunks as the peer has room for.
Result<void> Rank::pump(std::uint32_t number) {
  Flow& flow = flows_[number];
  const Link& link = endpoint_.links()[number];
  while (!flow.waiting.empty() && flow.credits > 0) {
    Sending& sending = flow.waiting.front();
    const workload::Task& task = plan_.graph[sending.task];
    const workload::Piece& piece = plan_.pieces.of[sending.task];
    const auto bytes = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(plan_.chunk_bytes, task.bytes - sending.bytes));
    const bool is_last = sending.bytes + bytes == task.bytes;
    const std::uint64_t address =
        task.reduces ? link.remote.staging + flow.sent % link.remote.slots * plan_.chunk_bytes
                     : link.remote.target + piece.target + sending.bytes;
    const std::uint32_t key = task.reduces ? link.remote.staging_key : link.remote.target_key;
    const Request kind = is_last ? Request::last_chunk : Request::chunk;
    auto written = endpoint_.write(link, piece.source + sending.bytes, bytes, address, key,
                                   sending.task, number_of(kind, number, sending.task));
    if (!written) return written;
    --flow.credits;
    ++flow.sent;
    sending.bytes += bytes;
    if (is_last) flow.waiting.pop_front();
  }
  return {};
}

Result<void> Rank::handle(const ibv_wc& completion) {
  progress_ = Clock::now();
  const std::uint32_t link = link_of(completion.wr_id);
  switch (kind_of(completion.wr_id)) {
    case Request::chunk:
    case Request::credit:
      return {};
    case Request::last_chunk:
      --left_;
      return release(static_cast<Index>(completion.wr_id));
    case Request::receive:
      break;
  }
  const std::uint32_t told = ntohl(completion.imm_data);
  if (auto posted = endpoint_.receive(endpoint_.links()[link], completion.wr_id); !posted) {
    return posted;
  }
  if ((told & credit_bit) == 0) return take_chunk(link, told);
  Flow& flow = flows_[link];
  const std::uint32_t taken = told & ~credit_bit;
  if (taken > endpoint_.links()[link].remote.slots - flow.credits) {
    return Error{fmt::format("rank {} takes more than it was sent", endpoint_.links()[link].peer)};
  }
  flow.credits += taken;
  return pump(link);
}

// A peer is trusted as far as the verbs go: it may say anything, and is then named.
Result<void> Rank::take_chunk(std::uint32_t number, Index index) {
  const Link& link = endpoint_.links()[number];
  Flow& flow = flows_[number];
  const auto wrong = [&] {
    return Error{fmt::format("rank {} sent what the graph does not have", link.peer)};
  };
  if (index >= plan_.graph.size()) return wrong();
  const workload::Task& task = plan_.graph[index];
  if (task.rank != link.peer || task.peer != rank_ || task.channel != link.channel) return wrong();
  std::uint64_t& received = received_[index];
  const std::uint64_t bytes = std::min<std::uint64_t>(plan_.chunk_bytes, task.bytes - received);
  if (bytes == 0) return wrong();
  if (task.reduces) {
    const std::uint64_t target = plan_.pieces.of[index].target + received;
    add(endpoint_.memory().values(target, bytes).data(),
        reinterpret_cast<const Value*>(endpoint_.slot(link, flow.taken)), bytes / sizeof(Value));
  }
  ++flow.taken;
  ++flow.owed;
  received += bytes;
  if (auto given = give_back(number); !given) return given;
  if (received < task.bytes) return {};
  --left_;
  return release(index);
}

// The peer is told when it has half of its chunks under way, so that it need not wait.
Result<void> Rank::give_back(std::uint32_t number) {
  Flow& flow = flows_[number];
  const Link& link = endpoint_.links()[number];
  if (flow.owed < std::max(link.slots / 2, 1u)) return {};
  const std::uint32_t owed = std::exchange(flow.owed, 0);
  return endpoint_.tell(link, credit_bit | owed, number_of(Request::credit, number));
}

Result<void> Rank::release(Index task) {
  for (std::size_t i = first_dependent_[task]; i < first_dependent_[task + 1]; ++i) {
    if (--awaited_[dependents_[i]] > 0) continue;
    if (auto started = start(dependents_[i]); !started) return started;
  }
  return {};
}

// Sleeps until something completes, since ranks may be more than processors.
Result<void> Rank::sleep() {
  if (auto armed = endpoint_.arm(); !armed) return armed;
  auto completions = endpoint_.poll();
  if (!completions) return completions.error();
  for (const ibv_wc& completion : *completions) {
    if (auto handled = handle(completion); !handled) return handled;
  }
  if (!completions->empty()) return {};
  std::array<pollfd, 2> waiting{{{endpoint_.events(), POLLIN, 0}, {leader_.fd(), POLLIN, 0}}};
  const int period = static_cast<int>(std::chrono::milliseconds(life_period).count());
  ::poll(waiting.data(), waiting.size(), period);
  if ((waiting[0].revents & POLLIN) != 0) endpoint_.take_event();
  // The leader sends nothing now, unless the run is over.
  if (waiting[1].revents != 0) {
    auto is_open = leader_.read();
    if (!is_open) return Error{""};
    auto frame = take_frame();
    if (!frame) return frame.error();
    if (*frame || !*is_open) return Error{""};
  }
  constexpr int patience = 6;
  if (Clock::now() - progress_ > patience * group_.timeout) {
    return Error{"no message comes or goes any more"};
  }
  return {};
}

Result<std::optional<Frame>> Rank::take_frame() {
  while (auto frame = leader_.take()) {
    heard_ = Clock::now();
    if (frame->kind == FrameKind::failed) return Error{frame->text()};
    if (frame->kind != FrameKind::alive) return frame;
  }
  return std::optional<Frame>();
}

Result<Frame> Rank::hear(FrameKind kind) {
  // While ranks come, and while it waits for one of them, the leader may answer nobody.
  constexpr int patience = 3;
  heard_ = Clock::now();
  bool is_open = true;
  for (;;) {
    // The leader's last words may have come together with its end.
    auto frame = take_frame();
    if (!frame) return frame.error();
    if (*frame && (*frame)->kind == kind) return std::move(**frame);
    if (*frame || !is_open) return Error{""};
    if (Clock::now() - heard_ > patience * group_.timeout) {
      const auto silent = std::chrono::duration<double>(patience * group_.timeout);
      return Error{fmt::format("rank 0 was silent for {} s", silent.count())};
    }
    wait_for(leader_.fd(), POLLIN, life_period);
    auto read = leader_.read();
    if (!read) return Error{""};
    is_open = *read;
    show_life(FrameKind::waits);
  }
}

Error Rank::hear_why() {
  auto heard = hear(FrameKind::end);
  return heard ? Error{""} : heard.error();
}

Result<void> Rank::unless_over(const Result<void>& sent) {
  if (sent) return {};
  const int number = sent.error().error_number;
  return number == EPIPE || number == ECONNRESET ? hear_why() : sent.error();
}

Result<void> Rank::tell(FrameKind kind, std::uint64_t number) {
  return unless_over(leader_.send(kind, number, group_.timeout));
}

void Rank::show_life(FrameKind kind) {
  const Clock::time_point now = Clock::now();
  if (now - shown_life_ < life_period / 2) return;
  shown_life_ = now;
  (void)leader_.send(kind, group_.timeout);
}

}  // namespace tulle::ranks
