// Builds the world before anything happens: nodes, memory, queue pairs and their connections.

#include <algorithm>

#include "rdma/optional/transports.h"
#include "tests/scenarios/broken.h"
#include "tests/scenarios/world.h"

namespace tulle::scenarios {

using verbs::Access;
using verbs::AccessFlags;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::QpType;
using verbs::VerbsStatus;

namespace {

constexpr std::uint32_t hot_bytes = 40;
constexpr std::uint32_t window_bytes = 16'384;
constexpr std::uint32_t grh_bytes = 40;

void ok(VerbsStatus status, const char* what) {
  promise(status == VerbsStatus::ok, std::string(what) + " was refused");
}

Gid gid_of(const Plan& plan, std::uint32_t node) {
  if (!plan.ipv6) return Gid::from_ipv4(0x0A00'0001 + node);
  Gid gid;
  gid.bytes[0] = 0xFD;
  gid.bytes[15] = static_cast<std::uint8_t>(node + 1);
  return gid;
}

}  // namespace

World::World(const Plan& plan, Sabotage sabotage)
    : plan_(plan),
      sabotage_(sabotage),
      random_(plan.seed ^ 0xA991'1CA7),
      cluster_(plan_.network),
      promises_(plan_, nodes_),
      wire_([this](std::size_t number) {
        const QpState state = ends_[number]->qp->state();
        return state == QpState::rts || state == QpState::sqd;
      }) {
  watch();
  build_nodes();
  build_channels();
}

// --- nodes ---

void World::build_nodes() {
  nodes_.resize(plan_.nodes.size());
  queues_.resize(plan_.nodes.size());
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) build_node(i);
}

void World::build_node(std::uint32_t number) {
  device::Configuration configuration;
  configuration.transports = &transport::all_transports();
  configuration.seed = plan_.seed * 31 + number;
  configuration.first_qp = QpNumber{0x100 + 0x1000 * number};
  configuration.qp_count = 0x1000;
  configuration.mtu_bytes = bytes(plan_.port_mtu);
  configuration.congestion.window = plan_.window;
  configuration.recovery = plan_.recovery;
  configuration.tcp = std::make_shared<const transport::tcp::Settings>(plan_.tcp);
  const Gid gid = gid_of(plan_, number);
  cluster_.add(configuration, {&gid, 1});
  NodeState& node = nodes_[number];
  VerbsStatus status{};
  node.pd = adapter(number).objects().create_pd(status);
  ok(status, "a protection domain");
  // Even words are added to, odd words are swapped.
  for (std::uint32_t i = 0; i < 2 * plan_.nodes[number].words; ++i) {
    node.word_offsets.push_back(node.memory_of_words.reserve(random_, 8, 8));
  }
  node.memory_of_words.build(random_);
  for (std::uint32_t i = 0; i < node.word_offsets.size(); ++i) {
    const Piece piece{node.word_offsets[i], 8};
    const std::uint64_t initial = random_.next() >> 8;
    const auto as_bytes = std::as_bytes(std::span(&initial, 1));
    std::copy(as_bytes.begin(), as_bytes.end(), node.memory_of_words.at(piece.offset));
    node.memory_of_words.expect(piece.offset, as_bytes);
    node.words.push_back({initial, i % 2 == 1, {}});
  }
  register_block(number, node.memory_of_words,
                 AccessFlags(Access::local_write) | Access::remote_atomic);
  const std::uint32_t entries = capacity_of_queue(number);
  for (std::uint32_t i = 0; i < plan_.nodes[number].completion_queues; ++i) {
    node.cqs.push_back(adapter(number).objects().create_cq(entries, nullptr, status));
    ok(status, "a completion queue");
    queues_[number].push_back({node.cqs.back(), false, false});
    if (plan_.nodes[number].polling == Polling::by_event) {
      adapter(number).objects().request_notification(*node.cqs.back(),
                                                     plan_.nodes[number].solicited_only);
    }
  }
  build_shared_receives(number);
}

// Returns how many completions a node can have at once. No more are ever outstanding, so no
// completion queue may overrun.
std::uint32_t World::capacity_of_queue(std::uint32_t node) const {
  std::uint32_t sum = plan_.nodes[node].srq_depth;
  for (const ChannelPlan& channel : plan_.channels) {
    for (const EndPlan& end : channel.ends) {
      // A message may hold one receive of each end while that receive's place in a shared queue is
      // posted again.
      if (end.node == node) sum += end.send_depth + end.receive_depth + 1;
    }
  }
  return sum;
}

void World::register_block(std::uint32_t node, Block& block, AccessFlags access) {
  VerbsStatus status{};
  block.region = adapter(node).objects().register_memory(*nodes_[node].pd, block.data(),
                                                         block.size(), block.iova, access, status);
  ok(status, "a memory region");
}

void World::build_shared_receives(std::uint32_t number) {
  std::uint32_t longest = 0, pieces = 1;
  bool used = false;
  for (const ChannelPlan& channel : plan_.channels) {
    for (int side = 0; side < 2; ++side) {
      const EndPlan& end = channel.ends[side];
      if (end.node != number || !end.shared_receives) continue;
      used = true;
      pieces = std::max(pieces, end.pieces_max);
      for (const Op& op : channel.ends[1 - side].ops) longest = std::max(longest, op.bytes);
    }
  }
  if (!used) return;
  pools_.push_back(std::make_unique<ReceivePool>());
  owner_of_pool_.push_back(nullptr);
  ReceivePool& pool = *pools_.back();
  pool.number = static_cast<std::uint32_t>(pools_.size() - 1);
  pool.node = number;
  pool.buffers.resize(plan_.nodes[number].srq_depth);
  for (auto& buffer : pool.buffers) {
    buffer.pieces = pool.block.reserve_pieces(random_, longest + grh_bytes, pieces);
  }
  pool.block.build(random_);
  register_block(number, pool.block, Access::local_write);
  VerbsStatus status{};
  pool.srq = adapter(number).objects().create_srq(*nodes_[number].pd, plan_.nodes[number].srq_depth,
                                                  pieces, nullptr, status);
  ok(status, "a shared receive queue");
  for (std::uint32_t i = 0; i < pool.buffers.size(); ++i) {
    if (random_.below(2) == 0) {
      post_receive(pool, i);
    } else {
      alarm(Time::microseconds(static_cast<std::int64_t>(random_.below(1'000))), number,
            Alarm::post_receive, pool.number, i);
    }
  }
  if (const std::uint32_t limit = plan_.nodes[number].srq_limit; limit > 0) {
    ok(adapter(number).objects().modify(*pool.srq, nullptr, &limit), "a limit");
  }
  nodes_[number].shared = &pool;
}

// --- channels ---

void World::build_channels() {
  for (std::uint32_t i = 0; i < plan_.channels.size(); ++i) {
    for (int side = 0; side < 2; ++side) {
      auto end = std::make_unique<End>();
      end->plan = &plan_;
      end->channel = &plan_.channels[i];
      end->mine = &end->channel->ends[side];
      end->side = side;
      end->channel_number = i;
      end->ops = end->mine->ops;
      ends_.push_back(std::move(end));
    }
    end_of(i, 0).peer = &end_of(i, 1);
    end_of(i, 1).peer = &end_of(i, 0);
    for (int side = 0; side < 2; ++side) place_ops(end_of(i, side));
    for (int side = 0; side < 2; ++side) build_end(end_of(i, side));
    connect(end_of(i, 0), end_of(i, 1));
  }
}

// Each request has memory of its own on both sides, so that the checker can tell which request
// wrote what.
void World::place_ops(End& end) {
  End& peer = *end.peer;
  end.window_uses_left.resize(end.channel->window_cycles);
  peer.hot_offset = peer.exposed.reserve(random_, hot_bytes);
  if (end.channel->window_cycles > 0 && end.channel->window_owner == peer.side) {
    peer.window_offset = peer.exposed.reserve(random_, window_bytes);
  }
  for (Op& op : end.ops) {
    const std::uint32_t pieces =
        is_atomic(op.work) ? std::min(end.mine->pieces_max, 2u) : end.mine->pieces_max;
    op.pieces = end.local.reserve_pieces(random_, op.bytes, pieces);
    if (op.work == Work::write_hot || op.work == Work::read_hot) {
      op.remote_offset = peer.hot_offset;
    } else if (op.work == Work::atomic_write) {
      op.remote_offset = peer.exposed.reserve(random_, op.bytes, 8);
    } else if (!is_atomic(op.work)) {
      op.remote_offset = peer.exposed.reserve(random_, op.bytes);
    }
    if (op.work == Work::write_window || op.work == Work::read_window) {
      ++end.window_uses_left[op.cycle];
    }
    const auto words = static_cast<std::uint32_t>(plan_.nodes[peer.mine->node].words);
    op.word = op.word % words * 2 + (op.work == Work::compare_swap ? 1 : 0);
  }
}

void World::build_end(End& end) {
  const std::uint32_t node = end.mine->node;
  end.sealed.reserve(random_, 16'384);
  for (Block* block : {&end.local, &end.exposed, &end.sealed}) block->build(random_);
  register_block(node, end.local, Access::local_write);
  register_block(node, end.exposed,
                 AccessFlags(Access::local_write) | Access::remote_write | Access::remote_read |
                     Access::bind_window);
  register_block(node, end.sealed, {});
  end.send_cq = nodes_[node].cqs[random_.below(nodes_[node].cqs.size())];
  end.receive_cq = nodes_[node].cqs[random_.below(nodes_[node].cqs.size())];
  build_receives(end);
  create_queue_pair(end);
  VerbsStatus status{};
  if (end.channel->window_cycles > 0 || end.channel->mishap == Mishap::bad_bind) {
    end.window =
        adapter(node).objects().create_window(*nodes_[node].pd, verbs::WindowType::type2, status);
    ok(status, "a memory window");
    end.window_key = end.window->rkey();
  }
  if (end.channel->type == QpType::ud) {
    verbs::AddressVector to;
    to.destination = gid_of(plan_, end.peer->mine->node);
    end.to_peer = adapter(node).create_ah(*nodes_[node].pd, to, status);
    ok(status, "an address handle");
  }
}

void World::build_receives(End& end) {
  if (end.mine->shared_receives) {
    end.receives = nodes_[end.mine->node].shared;
    return;
  }
  pools_.push_back(std::make_unique<ReceivePool>());
  owner_of_pool_.push_back(&end);
  ReceivePool& pool = *pools_.back();
  pool.number = static_cast<std::uint32_t>(pools_.size() - 1);
  pool.node = end.mine->node;
  std::uint32_t longest = 0, messages = 0;
  for (std::uint32_t i = 0; i < end.peer->ops.size(); ++i) {
    const Op& op = end.peer->ops[i];
    if (takes_receive(op.work) && op.work != Work::write_with_immediate) {
      longest = std::max(longest, op.bytes);
    }
    if (end.is_victim() && end.channel->mishap == Mishap::rnr_exhausted &&
        i == end.channel->mishap_op) {
      pool.posts_max = messages;
    }
    messages += takes_receive(op.work) ? 1 : 0;
  }
  pool.buffers.resize(end.mine->receive_depth);
  for (auto& buffer : pool.buffers) {
    const auto slack = static_cast<std::uint32_t>(random_.below(100));
    buffer.pieces =
        pool.block.reserve_pieces(random_, longest + grh_bytes + slack, end.mine->pieces_max);
  }
  pool.block.build(random_);
  register_block(end.mine->node, pool.block, Access::local_write);
  end.receives = &pool;
  if (!end.is_xrc()) return;
  VerbsStatus status{};
  NodeState& node = nodes_[end.mine->node];
  if (node.domain == nullptr) node.domain = adapter(end.mine->node).objects().create_xrc_domain();
  pool.srq = adapter(end.mine->node)
                 .objects()
                 .create_xrc_srq(*node.pd, *node.domain, *end.receive_cq, end.mine->receive_depth,
                                 std::max(end.mine->pieces_max, 2u), nullptr, status);
  ok(status, "a shared receive queue of a domain");
}

void World::create_queue_pair(End& end) {
  transport::QueuePairInit init;
  init.type = end.channel->type;
  init.pd = nodes_[end.mine->node].pd;
  init.send_cq = end.send_cq;
  init.receive_cq = end.receive_cq;
  init.srq = end.is_xrc() ? nullptr : end.receives->srq;
  init.send_work_requests = end.mine->send_depth;
  init.receive_work_requests = end.mine->receive_depth;
  init.send_sges = init.receive_sges = std::max(end.mine->pieces_max, 2u);
  init.inline_bytes = end.mine->inline_bytes;
  init.signal_all = end.mine->signal_all;
  init.cookie = &end;
  VerbsStatus status{};
  end.qp = adapter(end.mine->node).create_qp(init, status);
  ok(status, "a queue pair");
  if (!end.is_xrc()) return;
  transport::QueuePairInit target;
  target.type = QpType::xrc_target;
  target.xrc_domain = nodes_[end.mine->node].domain;
  target.cookie = &end;
  end.target = adapter(end.mine->node).create_qp(target, status);
  ok(status, "a target queue pair");
}

void World::connect(End& first, End& second) {
  const std::uint32_t distance = 0x10'0000;
  for (End* end : {&first, &second}) {
    to_init(*end);
    post_first_receives(*end);
    // The PSNs are far from those of the connection before, so that no late packet fits into this
    // one.
    end->psn =
        Psn(end->psn.value() + distance + static_cast<std::uint32_t>(random_.below(distance)));
    if (end->connections++ == 0) end->psn = Psn(static_cast<std::uint32_t>(random_.next()));
    watch_connection(*end);
  }
  to_rtr(first);
  to_rtr(second);
  for (End* end : {&first, &second}) {
    if (!end->mine->late_to_rts) {
      to_rts(*end);
      continue;
    }
    const auto late = Time::microseconds(static_cast<std::int64_t>(random_.below(800)));
    alarm(cluster_.now() + late, end->mine->node, Alarm::to_rts,
          2 * end->channel_number + end->side);
  }
}

void World::modify(End& end, const transport::QueuePairAttributes& attributes,
                   QpAttributeMask mask) {
  ok(adapter(end.mine->node).modify(*end.qp, attributes, mask), "a queue pair's next state");
}

// Modifies the end's target in the same way, if the end has one.
void World::modify_target(End& end, const transport::QueuePairAttributes& attributes,
                          QpAttributeMask mask) {
  if (end.target == nullptr) return;
  ok(adapter(end.mine->node).modify(*end.target, attributes, mask),
     "a target queue pair's next state");
}

void World::to_init(End& end) {
  transport::QueuePairAttributes to;
  to.state = QpState::init;
  to.access = AccessFlags(Access::remote_write) | Access::remote_read | Access::remote_atomic;
  if (end.is_victim() && end.channel->mishap == Mishap::wrong_qp_access) {
    to.access = to.access.without(Access::remote_atomic);
  }
  to.qkey = Qkey(0x1111'1111);
  const QpAttributeMask mask =
      QpAttributeMask(QpAttribute::state) | QpAttribute::pkey_index | QpAttribute::port |
      (end.channel->type == QpType::ud ? QpAttribute::qkey : QpAttribute::access_flags);
  modify(end, to, mask);
  modify_target(end, to, mask);
}

void World::to_rtr(End& end) {
  transport::QueuePairAttributes to;
  to.state = QpState::rtr;
  to.path_mtu = end.channel->mtu;
  to.destination_qp = end.peer->receiver().number;
  to.address.destination = gid_of(plan_, end.peer->mine->node);
  to.rq_psn = end.peer->psn;
  to.max_dest_rd_atomic = end.peer->mine->read_depth;
  to.min_rnr_timer = end.mine->rnr_timer;
  auto mask = QpAttributeMask(QpAttribute::state);
  if (end.channel->type != QpType::ud) {
    mask |= QpAttributeMask(QpAttribute::address_vector) | QpAttribute::path_mtu |
            QpAttribute::destination_qp | QpAttribute::rq_psn;
  }
  if (end.is_rc()) {
    mask |= QpAttributeMask(QpAttribute::max_dest_rd_atomic) | QpAttribute::min_rnr_timer;
  }
  modify(end, to, mask);
  to.destination_qp = end.peer->qp->number;
  modify_target(end, to, mask);
}

void World::to_rts(End& end) {
  transport::QueuePairAttributes to;
  to.state = QpState::rts;
  to.timeout = end.mine->timeout;
  to.retry_count = end.mine->retry_count;
  to.rnr_retry = end.mine->rnr_retry;
  to.sq_psn = end.psn;
  to.max_rd_atomic = end.mine->read_depth;
  auto mask = QpAttributeMask(QpAttribute::state) | QpAttribute::sq_psn;
  if (end.is_rc()) {
    mask |= QpAttributeMask(QpAttribute::timeout) | QpAttribute::retry_count |
            QpAttribute::rnr_retry | QpAttribute::max_rd_atomic;
  }
  modify(end, to, mask);
  end.ready = true;
}

void World::post_first_receives(End& end) {
  if (end.mine->shared_receives) return;
  ReceivePool& pool = *end.receives;
  pool.posts = 0;
  for (std::uint32_t i = 0; i < pool.buffers.size(); ++i) {
    if (i < end.mine->receives_first) {
      post_receive(pool, i);
      continue;
    }
    const auto late =
        static_cast<std::int64_t>(random_.below(1 + end.mine->receive_delay_max.to_nanoseconds()));
    alarm(cluster_.now() + Time::nanoseconds(late), pool.node, Alarm::post_receive, pool.number, i);
  }
}

// --- destruction ---

void World::destroy_all() {
  for (auto& end : ends_) {
    device::Adapter& at = adapter(end->mine->node);
    if (end->to_peer != nullptr) ok(at.destroy(end->to_peer), "destroying an address handle");
    promise(at.objects().destroy(end->send_cq) == VerbsStatus::busy,
            "a queue in use was destroyed");
    ok(at.destroy(end->qp), "destroying a queue pair");
    if (end->target != nullptr) ok(at.destroy(end->target), "destroying a target queue pair");
    if (end->window != nullptr) ok(at.objects().destroy(end->window), "destroying a memory window");
    for (Block* block : {&end->local, &end->exposed, &end->sealed}) {
      ok(at.objects().destroy(block->region), "destroying a memory region");
    }
  }
  for (auto& pool : pools_) {
    device::Adapter& at = adapter(pool->node);
    if (pool->srq != nullptr)
      ok(at.objects().destroy(pool->srq), "destroying a shared receive queue");
    ok(at.objects().destroy(pool->block.region), "destroying a memory region");
  }
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].domain != nullptr)
      ok(adapter(i).objects().destroy(nodes_[i].domain), "destroying a domain");
    for (auto* cq : nodes_[i].cqs)
      ok(adapter(i).objects().destroy(cq), "destroying a completion queue");
    promise(adapter(i).objects().destroy(nodes_[i].pd) == VerbsStatus::busy,
            "a domain in use was destroyed");
    ok(adapter(i).objects().destroy(nodes_[i].memory_of_words.region),
       "destroying a memory region");
    ok(adapter(i).objects().destroy(nodes_[i].pd), "destroying a protection domain");
  }
}

}  // namespace tulle::scenarios
