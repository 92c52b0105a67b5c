#include "tests/scenarios/srd_world.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "rdma/optional/transports.h"
#include "tests/scenarios/broken.h"

namespace tulle::scenarios {

using verbs::Access;
using verbs::AccessFlags;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::SendFlag;
using verbs::SendOpcode;
using verbs::VerbsStatus;

namespace {

// Limits that only a hung scenario reaches: nothing takes as long or needs as many events.
constexpr Time time_max = Time::seconds(60);
constexpr std::uint64_t events_max = 3'000'000;
constexpr Qkey the_qkey{0x2222'2222};

Gid gid_of(std::uint32_t node) { return Gid::from_ipv4(0x0A00'0001 + node); }

void must(VerbsStatus status, const char* what) {
  promise(status == VerbsStatus::ok, std::string(what) + " was refused");
}

}  // namespace

std::string_view name_of(SrdSabotage sabotage) {
  constexpr std::array<std::string_view, srd_sabotages> names = {"none",
                                                                 "completion_twice",
                                                                 "completion_lost",
                                                                 "status_changed",
                                                                 "arrival_twice",
                                                                 "arrival_lost",
                                                                 "received_byte_changed",
                                                                 "written_byte_changed",
                                                                 "stray_byte_written"};
  return names[static_cast<std::size_t>(sabotage)];
}

SrdWorld::SrdWorld(std::uint64_t seed, SrdSabotage sabotage, const sim::Clocks& clocks)
    : seed_(seed), sabotage_(sabotage), random_(seed * 0x9E37'79B9 + 0x5BD) {
  draw_network();
  network_.clocks = clocks;
  cluster_ = std::make_unique<sim::Cluster>(network_);
  draw_ends();
  draw_ops();
  place();
  for (std::uint32_t i = 0; i < node_count_; ++i) build_node(i);
  for (std::uint32_t i = 0; i < ends_.size(); ++i) build_end(i);
}

SrdWorld::~SrdWorld() = default;

// --- drawing the scenario ---

void SrdWorld::draw_network() {
  network_ = {};
  network_.seed = random_.next();
  perfect_ = one_in(6);
  stormy_ = !perfect_ && one_in(5);
  constexpr std::array rates = {1, 10, 25, 100, 400};
  network_.link_bits_per_second = rates[below(rates.size())] * std::int64_t{1'000'000'000};
  network_.link_delay = Time::nanoseconds(100 + below(10'000));
  const bool damage = !perfect_ && one_in(2);
  network_.carriage = damage || one_in(2) ? sim::Carriage::datagrams : sim::Carriage::packets;
  const auto up_to = [this](double most) { return most * below(1'001) / 1'000; };
  if (!perfect_) {
    network_.faults.drop = up_to(stormy_ ? 0.3 : 0.05);
    network_.faults.duplicate = up_to(0.1);
    network_.faults.reorder = up_to(0.3);
    network_.faults.corrupt = damage ? up_to(0.05) : 0;
  }
  network_.faults.reorder_delay = Time::nanoseconds(100 + below(one_in(2) ? 600'000 : 5'000));
  network_.faults_end = Time::seconds(2);
  constexpr std::array mtus = {256u, 512u, 1'024u, 2'048u, 4'096u};
  mtu_bytes_ = mtus[below(mtus.size())];
  srd_.paths = 1 + below(one_in(2) ? 4 : 64);
  srd_.send_bytes_max = one_in(2) ? 0 : mtu_bytes_ * (1 + below(8));
  srd_.initial_packets = 1 + below(32);
  srd_.timeout_first = Time::microseconds(50 + below(1'000));
  srd_.give_up = Time::milliseconds(30 + below(60));
  srd_.rnr_first = Time::microseconds(1 + below(50));
  node_count_ = 2 + below(4);
  if (!perfect_ && one_in(8)) {
    cut_off_ = below(node_count_);
    cut_off_at_ = Time::microseconds(below(2'000));
  }
}

void SrdWorld::draw_ends() {
  for (std::uint32_t node = 0; node < node_count_; ++node) {
    for (std::uint32_t more = 1 + below(2); more > 0; --more) {
      End end;
      end.node = node;
      end.depth = 1 + below(24);
      end.rnr_retry = one_in(4) ? static_cast<std::uint8_t>(below(7)) : 7;
      end.shared = one_in(3);
      const std::uint32_t longest = std::max(srd_.send_bytes_max, mtu_bytes_);
      end.buffer_bytes = one_in(3) ? 1 + below(longest) : longest;
      end.buffers.resize(1 + below(12));
      if (!perfect_ && one_in(8)) {
        end.ends_at = Time::microseconds(below(1'500));
        end.destroyed = one_in(2);
      }
      ends_.push_back(std::move(end));
    }
  }
}

void SrdWorld::draw_ops() {
  const std::uint32_t longest = srd_.send_bytes_max == 0 ? mtu_bytes_ : srd_.send_bytes_max;
  for (std::uint32_t count = below(one_in(4) ? 300 : 60); count > 0; --count) {
    Op op;
    op.from = below(ends_.size());
    op.to = below(ends_.size());
    op.work = static_cast<Work>(below(4));
    const bool sends = op.work <= Work::send_with_immediate;
    const std::uint32_t room = std::min(longest, ends_[op.to].buffer_bytes);
    const std::uint32_t most = sends ? room + 1 : one_in(20) ? 200'000 : 6 * mtu_bytes_;
    op.bytes = one_in(6) ? below(8) : below(most);
    op.bytes = std::min(op.bytes, sends ? room : op.bytes);
    if (op.work == Work::send && op.bytes < tag_bytes) op.work = Work::send_with_immediate;
    op.signaled = !one_in(3);
    op.pause = one_in(5) ? Time::nanoseconds(below(300'000)) : Time::zero();
    if (one_in(25)) draw_mishap(op);
    if (op.mishap != Mishap::none) op.signaled = true;
    ends_[op.from].ops.push_back(static_cast<std::uint32_t>(ops_.size()));
    ops_.push_back(std::move(op));
  }
}

void SrdWorld::draw_mishap(Op& op) {
  const bool sends = op.work <= Work::send_with_immediate;
  const std::uint32_t longest = srd_.send_bytes_max == 0 ? mtu_bytes_ : srd_.send_bytes_max;
  op.mishap = static_cast<Mishap>(1 + below(7));
  const bool by_key = op.mishap == Mishap::unknown_remote_key || op.mishap == Mishap::out_of_bounds;
  if (by_key && sends) op.mishap = Mishap::unknown_local_key;
  if (op.mishap == Mishap::wrong_qkey && op.work == Work::write) op.mishap = Mishap::out_of_bounds;
  if (op.mishap == Mishap::too_long && !sends) op.mishap = Mishap::no_such_queue_pair;
  if (op.mishap == Mishap::too_long) op.bytes = longest + 1;
  if (op.mishap == Mishap::receive_too_short) {
    const bool possible = sends && ends_[op.to].buffer_bytes < longest;
    op.mishap = possible ? Mishap::receive_too_short : Mishap::no_such_queue_pair;
    if (possible) op.bytes = ends_[op.to].buffer_bytes + 1;
  }
  const bool needs_bytes = op.mishap <= Mishap::unknown_local_key;
  if (needs_bytes && op.bytes == 0) op.bytes = 1;
}

// Each request has memory of its own at both ends, and so has each receive request. No adapter may
// write to the bytes between.
void SrdWorld::place() {
  const auto reserve = [this](End& end, std::uint32_t bytes) {
    const auto at = static_cast<std::uint32_t>(end.memory.bytes.size()) + 1 + below(16);
    end.memory.bytes.resize(at + bytes + 1);
    return at;
  };
  for (Op& op : ops_) {
    op.local = reserve(ends_[op.from], op.bytes);
    if (op.work >= Work::write) op.remote = reserve(ends_[op.to], op.bytes);
  }
  for (End& end : ends_) {
    for (Buffer& buffer : end.buffers) buffer.offset = reserve(end, end.buffer_bytes);
    for (std::byte& byte : end.memory.bytes) byte = static_cast<std::byte>(random_.next());
    end.memory.expected = end.memory.bytes;
    end.memory.open.resize(end.memory.bytes.size());
    end.memory.iova = (1 + random_.below(1'000'000)) << 16;
  }
}

// --- building the world ---

void SrdWorld::build_node(std::uint32_t number) {
  device::Configuration configuration;
  configuration.transports = &transport::all_transports();
  configuration.seed = seed_ * 31 + number;
  configuration.first_qp = QpNumber{0x100 + 0x1000 * number};
  configuration.qp_count = 0x1000;
  configuration.mtu_bytes = mtu_bytes_;
  configuration.srd = std::make_shared<const transport::srd::Settings>(srd_);
  configuration.line_bits_per_second = network_.link_bits_per_second;
  const Gid gid = gid_of(number);
  cluster_->add(configuration, {&gid, 1});
  Node& node = nodes_.emplace_back();
  VerbsStatus status{};
  node.pd = adapter(number).objects().create_pd(status);
  node.cq = adapter(number).objects().create_cq(4'096, nullptr, status);
  must(status, "a completion queue");
  for (std::uint32_t peer = 0; peer < node_count_; ++peer) {
    verbs::AddressVector to;
    to.destination = gid_of(peer);
    node.handles[peer] = adapter(number).create_ah(*node.pd, to, status);
    must(status, "an address handle");
  }
  if (cut_off_ == number) {
    cluster_->alarm(cut_off_at_, sim::NodeNumber(number),
                    static_cast<std::uint64_t>(Alarm::cut_off) << 56);
  }
}

void SrdWorld::build_end(std::uint32_t number) {
  End& end = ends_[number];
  VerbsStatus status{};
  Memory& memory = end.memory;
  memory.region = adapter(end.node).objects().register_memory(
      *nodes_[end.node].pd, memory.bytes.data(), memory.bytes.size(), memory.iova,
      AccessFlags(Access::local_write) | Access::remote_write, status);
  must(status, "a memory region");
  transport::QueuePairInit init;
  init.type = verbs::QpType::srd;
  init.pd = nodes_[end.node].pd;
  init.send_cq = init.receive_cq = nodes_[end.node].cq;
  init.send_work_requests = end.depth;
  init.receive_work_requests = static_cast<std::uint32_t>(end.buffers.size());
  init.send_sges = init.receive_sges = 2;
  init.inline_bytes = 64;
  if (end.shared) {
    init.srq = adapter(end.node).objects().create_srq(*init.pd, init.receive_work_requests, 2,
                                                      nullptr, status);
    must(status, "a shared receive queue");
  }
  end.qp = adapter(end.node).create_qp(init, status);
  must(status, "a queue pair");
  end.number = end.qp->number;
  bring_up(end);
  for (std::uint32_t i = 0; i < end.buffers.size(); ++i) {
    const std::uint64_t token =
        static_cast<std::uint64_t>(Alarm::receive) << 56 | std::uint64_t{i} << 24 | number;
    cluster_->alarm(Time::microseconds(one_in(2) ? 0 : below(500)), sim::NodeNumber(end.node),
                    token);
  }
  if (!end.ends_at.is_never()) {
    cluster_->alarm(end.ends_at, sim::NodeNumber(end.node),
                    static_cast<std::uint64_t>(Alarm::end) << 56 | number);
  }
}

void SrdWorld::bring_up(End& end) {
  transport::QueuePairAttributes to;
  to.qkey = the_qkey;
  to.rnr_retry = end.rnr_retry;
  const auto step = [&](QpState state, QpAttributeMask more) {
    to.state = state;
    must(adapter(end.node).modify(*end.qp, to, QpAttributeMask(QpAttribute::state) | more),
         "a queue pair's next state");
  };
  step(QpState::init,
       QpAttributeMask(QpAttribute::pkey_index) | QpAttribute::port | QpAttribute::qkey);
  step(QpState::rtr, {});
  step(QpState::rts, QpAttributeMask(QpAttribute::sq_psn) | QpAttribute::rnr_retry);
}

// --- running the scenario ---

SrdWorld::Outcome SrdWorld::run() {
  for (std::uint32_t i = 0; i < ends_.size(); ++i) pump(i);
  const auto settle = [this] {
    for (;;) {
      const sim::Happening happening = cluster_->step();
      if (happening.kind == sim::Happening::Kind::nothing) return;
      promise(cluster_->now() < time_max && cluster_->events() < events_max, "no end in sight");
      if (happening.kind == sim::Happening::Kind::alarm) handle_alarm(happening.token);
      poll(happening.node.value);
    }
  };
  settle();
  for (std::uint32_t i = 0; i < ops_.size(); ++i) check_op(i);
  check_at_rest();
  for (std::uint32_t i = 0; i < ends_.size(); ++i) {
    ends_[i].destroyed = false;
    if (ends_[i].qp != nullptr && !ends_[i].ended) finish_end(i);
  }
  settle();
  for (std::uint32_t node = 0; node < node_count_; ++node) poll(node);
  for (std::uint32_t i = 0; i < ends_.size(); ++i) {
    for (const Buffer& buffer : ends_[i].buffers) {
      promise(!buffer.posted, "a receive request was neither used nor flushed");
    }
    if (sabotage_ == SrdSabotage::stray_byte_written && !sabotaged_) {
      ends_[i].memory.bytes[0] ^= std::byte{1};
      sabotaged_ = true;
    }
    check_memory(i);
  }
  outcome_.digest = cluster_->digest();
  outcome_.events = cluster_->events();
  return outcome_;
}

void SrdWorld::handle_alarm(std::uint64_t token) {
  const auto which = static_cast<std::uint32_t>(token & 0xFF'FFFF);
  switch (static_cast<Alarm>(token >> 56)) {
    case Alarm::resume:
      ends_[which].paused = false;
      pump(which);
      break;
    case Alarm::receive:
      post_receive(which, static_cast<std::uint32_t>(token >> 24));
      break;
    case Alarm::end:
      finish_end(which);
      break;
    case Alarm::cut_off:
      cluster_->cut_off(sim::NodeNumber(*cut_off_));
      break;
    case Alarm::look:
      break;
  }
}

// Moves the end's queue pair to error or destroys it. The completions that it already has are
// polled first.
void SrdWorld::finish_end(std::uint32_t number) {
  End& end = ends_[number];
  poll(end.node);
  end.ended = true;
  if (end.destroyed) {
    for (const std::uint32_t op : end.ops) {
      if (ops_[op].posted && !ops_[op].status) ops_[op].forgotten = true;
    }
    for (Buffer& buffer : end.buffers) {
      if (!buffer.posted) continue;
      buffer.posted = false;
      for (std::uint32_t i = 0; i < end.buffer_bytes; ++i) {
        end.memory.open[buffer.offset + i] = srd_.send_bytes_max > 0;
      }
    }
    verbs::SharedReceiveQueue* srq = end.qp->init.srq;
    must(adapter(end.node).destroy(end.qp), "destroying a queue pair");
    if (srq != nullptr)
      must(adapter(end.node).objects().destroy(srq), "destroying a receive queue");
    end.qp = nullptr;
  } else {
    transport::QueuePairAttributes to;
    to.state = QpState::error;
    must(adapter(end.node).modify(*end.qp, to, QpAttribute::state), "error");
    // A queue pair does not flush the requests of a shared queue.
    for (Buffer& buffer : end.buffers) {
      buffer.may_flush = buffer.posted && end.shared;
      buffer.posted = buffer.posted && !end.shared;
    }
  }
  cluster_->attend(sim::NodeNumber(end.node));
}

void SrdWorld::pump(std::uint32_t number) {
  End& end = ends_[number];
  bool any = false;
  while (!end.ended && !end.paused && end.next_op < end.ops.size() &&
         end.qp->send_queue.size() < end.depth) {
    const std::uint32_t op = end.ops[end.next_op++];
    post(op);
    any = true;
    if (ops_[op].pause == Time::zero()) continue;
    end.paused = true;
    cluster_->alarm(cluster_->now() + ops_[op].pause, sim::NodeNumber(end.node),
                    static_cast<std::uint64_t>(Alarm::resume) << 56 | number);
  }
  if (!any) return;
  cluster_->attend(sim::NodeNumber(end.node));
  cluster_->alarm(cluster_->now(), sim::NodeNumber(end.node),
                  static_cast<std::uint64_t>(Alarm::look) << 56);
}

void SrdWorld::post(std::uint32_t number) {
  Op& op = ops_[number];
  End& from = ends_[op.from];
  End& to = ends_[op.to];
  std::byte* local = from.memory.bytes.data() + op.local;
  for (std::uint32_t i = 0; i < op.bytes; ++i) local[i] = static_cast<std::byte>(random_.next());
  std::memcpy(local, &number, std::min(tag_bytes, op.bytes));
  std::copy_n(local, op.bytes, from.memory.expected.begin() + op.local);
  op.payload.assign(local, local + op.bytes);
  op.posted = true;
  verbs::SendRequest request;
  request.wr_id = number;
  constexpr std::array opcodes = {SendOpcode::send, SendOpcode::send_with_immediate,
                                  SendOpcode::write, SendOpcode::write_with_immediate};
  request.opcode = opcodes[static_cast<std::size_t>(op.work)];
  if (op.signaled) request.flags |= SendFlag::signaled;
  if (one_in(3)) request.flags |= SendFlag::solicited;
  request.immediate = number;
  const std::uint32_t first = below(op.bytes + 1);
  LocalKey lkey = from.memory.region->lkey();
  if (op.mishap == Mishap::unknown_local_key) lkey.value ^= 1;
  const std::array sges = {verbs::Sge{from.memory.iova + op.local, first, lkey},
                           verbs::Sge{from.memory.iova + op.local + first, op.bytes - first, lkey}};
  request.sges = sges;
  const std::array<std::span<const std::byte>, 1> inlined = {std::span(op.payload)};
  if (op.bytes <= 64 && op.mishap == Mishap::none && one_in(3)) {
    request.flags |= SendFlag::inline_data;
    request.inline_pieces = inlined;
  }
  request.remote_address = to.memory.iova + op.remote;
  request.rkey = to.memory.region->rkey();
  if (op.mishap == Mishap::unknown_remote_key) request.rkey.value ^= 1 + below(255);
  if (op.mishap == Mishap::out_of_bounds) {
    request.remote_address = to.memory.iova + to.memory.bytes.size();
  }
  request.address_handle = nodes_[from.node].handles[to.node];
  request.remote_qp = to.number;
  if (op.mishap == Mishap::no_such_queue_pair) request.remote_qp.value ^= 0x800;
  request.remote_qkey = op.mishap == Mishap::wrong_qkey ? Qkey(0x1111) : the_qkey;
  if (is_written(op)) {
    std::fill_n(to.memory.open.begin() + op.remote, op.bytes, true);
  }
  must(adapter(from.node).post_send(*from.qp, request), "a send request");
}

bool SrdWorld::is_written(const Op& op) const {
  return op.work >= Work::write && op.mishap != Mishap::unknown_remote_key &&
         op.mishap != Mishap::out_of_bounds && op.mishap != Mishap::no_such_queue_pair;
}

void SrdWorld::post_receive(std::uint32_t number, std::uint32_t which) {
  End& end = ends_[number];
  if (end.ended) return;
  Buffer& buffer = end.buffers[which];
  for (std::uint32_t i = 0; i < end.buffer_bytes; ++i) {
    end.memory.bytes[buffer.offset + i] = end.memory.expected[buffer.offset + i] =
        static_cast<std::byte>(random_.next());
  }
  buffer.posted = true;
  const std::uint32_t first = below(end.buffer_bytes + 1);
  const std::uint64_t at = end.memory.iova + buffer.offset;
  const std::array sges = {
      verbs::Sge{at, first, end.memory.region->lkey()},
      verbs::Sge{at + first, end.buffer_bytes - first, end.memory.region->lkey()}};
  const verbs::ReceiveRequest request{receive_bit | std::uint64_t{number} << 32 | which, sges};
  must(end.shared ? adapter(end.node).objects().post_receive(*end.qp->init.srq, request)
                  : adapter(end.node).post_receive(*end.qp, request),
       "a receive request");
}

}  // namespace tulle::scenarios
