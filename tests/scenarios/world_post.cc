// Posts the applications' work requests.

#include <algorithm>
#include <cstring>

#include "tests/scenarios/broken.h"
#include "tests/scenarios/world.h"

namespace tulle::scenarios {

using verbs::Access;
using verbs::AccessFlags;
using verbs::QpState;
using verbs::SendFlag;
using verbs::SendOpcode;
using verbs::VerbsStatus;

namespace {

SendOpcode opcode_of(Work work) {
  switch (work) {
    case Work::send:
      return SendOpcode::send;
    case Work::send_with_immediate:
      return SendOpcode::send_with_immediate;
    case Work::send_with_invalidate:
      return SendOpcode::send_with_invalidate;
    case Work::write:
    case Work::write_to_nowhere:
    case Work::write_hot:
    case Work::write_window:
      return SendOpcode::write;
    case Work::write_with_immediate:
      return SendOpcode::write_with_immediate;
    case Work::atomic_write:
      return SendOpcode::atomic_write;
    case Work::read:
    case Work::read_hot:
    case Work::read_window:
      return SendOpcode::read;
    case Work::compare_swap:
      return SendOpcode::compare_swap;
    case Work::fetch_add:
      return SendOpcode::fetch_add;
    case Work::bind_window:
      return SendOpcode::bind_window;
    case Work::local_invalidate:
      return SendOpcode::local_invalidate;
  }
  return SendOpcode::send;
}

// Returns the key that a window has in a cycle: its index, and eight bits of the application's
// choice.
RemoteKey key_of_cycle(RemoteKey first, std::uint32_t cycle) {
  return RemoteKey{(first.value & ~0xFFu) | ((first.value + 1 + cycle) & 0xFF)};
}

}  // namespace

// --- sends ---

void World::pump(End& end) {
  bool any = false;
  while (end.ready && !end.paused && !tearing_down_ && end.posted.size() < end.ops.size() &&
         end.outstanding() < end.mine->send_depth) {
    // An application whose queue pair has failed posts at most send_depth requests after the one
    // that failed.
    if (end.first_error && end.posted.size() > *end.first_error + end.mine->send_depth) break;
    const Op& op = end.ops[end.posted.size()];
    if (!may_post(end, op)) {
      end.gave_up = end.peer->first_error.has_value() || end.peer->gave_up;
      break;
    }
    post(end, end.posted.size());
    any = true;
    if (op.pause > Time::zero()) {
      end.paused = true;
      alarm(cluster_.now() + op.pause, end.mine->node, Alarm::resume,
            2 * end.channel_number + end.side);
    }
  }
  if (!any) return;
  cluster_.attend(sim::NodeNumber(end.mine->node));
  alarm(cluster_.now(), end.mine->node, Alarm::look, 0);
}

// Returns true if the window has reached the state that the request needs.
bool World::may_post(const End& end, const Op& op) {
  const End& peer = *end.peer;
  switch (op.work) {
    case Work::bind_window:
      return end.channel->mishap == Mishap::bad_bind || end.cycles_ended == op.cycle;
    case Work::local_invalidate:
      return end.channel->mishap == Mishap::bad_invalidate ||
             (end.cycles_bound == op.cycle + 1 && peer.window_uses_left[op.cycle] == 0);
    case Work::write_window:
    case Work::read_window:
    case Work::send_with_invalidate:
      return peer.cycles_bound == op.cycle + 1;
    default:
      return true;
  }
}

void World::post(End& end, std::size_t index) {
  const Op& op = end.ops[index];
  Posted& posted = end.posted.emplace_back();
  posted.wr_id = std::uint64_t{2 * end.channel_number + end.side} << 32 | index;
  posted.at = cluster_.now();
  posted.signaled = op.signaled || end.mine->signal_all;
  verbs::SendRequest request;
  request.wr_id = posted.wr_id;
  request.opcode = opcode_of(op.work);
  if (op.signaled) request.flags |= SendFlag::signaled;
  if (op.fence) request.flags |= SendFlag::fence;
  if (op.solicited) request.flags |= SendFlag::solicited;
  end.local.scribble(random_, op.pieces);
  sges_.clear();
  inline_pieces_.clear();
  for (const Piece& piece : op.pieces) {
    if (op.inlined) {
      inline_pieces_.push_back({end.local.at(piece.offset), piece.bytes});
    } else {
      sges_.push_back({end.local.address(piece.offset), piece.bytes, end.local.region->lkey()});
    }
  }
  if (op.work == Work::bind_window || op.work == Work::local_invalidate) sges_.clear();
  request.sges = sges_;
  request.inline_pieces = inline_pieces_;
  if (op.inlined) request.flags |= SendFlag::inline_data;
  request.immediate = op.immediate;
  aim(end, index, request);
  // Half of the atomic WRITEs hand over the value itself.
  if (op.work == Work::atomic_write && !op.inlined && random_.below(2) == 0) {
    std::memcpy(&request.compare_add, posted.payload.data(), sizeof request.compare_add);
    request.sges = {};
  }
  if (end.is_culprit() && index == end.channel->mishap_op) spoil(end, index, request);
  if (takes_receive(op.work)) end.messages.push_back(index);
  promise(adapter(end.mine->node).post_send(*end.qp, request) == VerbsStatus::ok,
          end.name() + ", request " + std::to_string(index) + ": refused");
  // Inline data was copied, so the buffer is free again.
  if (op.inlined) end.local.scribble(random_, op.pieces);
}

void World::aim(End& end, std::size_t index, verbs::SendRequest& request) {
  const Op& op = end.ops[index];
  Posted& posted = end.posted[index];
  Block& target = end.peer->exposed;
  request.remote_address = target.address(op.remote_offset);
  request.rkey = target.region->rkey();
  const Piece remote{op.remote_offset, op.bytes};
  switch (op.work) {
    case Work::read:
    case Work::read_window:
      posted.payload = target.gather({&remote, 1});
      break;
    case Work::read_hot:
      posted.hot_version = end.hot_last;
      break;
    case Work::compare_swap:
    case Work::fetch_add:
      aim_atomic(end, index, request);
      break;
    case Work::write_to_nowhere:
      request.remote_address = random_.next();
      request.rkey = RemoteKey{static_cast<std::uint32_t>(random_.next())};
      break;
    default:
      posted.payload = end.local.gather(op.pieces);
      break;
  }
  if (op.work == Work::write_hot) {
    posted.hot_version = end.hot_last = end.hot_versions.size();
    end.hot_versions.push_back(posted.payload);
  }
  aim_window(end, op, posted, request);
  if (end.is_xrc()) request.xrc_srq = end.peer->receives->srq->number;
  if (end.to_peer != nullptr) {
    request.address_handle = end.to_peer;
    request.remote_qp = end.peer->qp->number;
    request.remote_qkey = Qkey(0x1111'1111);
  }
}

void World::aim_atomic(End& end, std::size_t index, verbs::SendRequest& request) {
  const Op& op = end.ops[index];
  Posted& posted = end.posted[index];
  NodeState& node = nodes_[end.peer->mine->node];
  const std::uint32_t offset = node.word_offsets[op.word];
  request.remote_address = node.memory_of_words.address(offset);
  request.rkey = node.memory_of_words.region->rkey();
  if (op.work == Work::fetch_add) {
    posted.operand = request.compare_add = op.add;
    return;
  }
  // No value is swapped in twice, so each value tells which request swapped it in.
  posted.operand = request.swap = random_.next();
  posted.compare = random_.next();
  if (op.guess_right) {
    std::memcpy(&posted.compare, node.memory_of_words.at(offset), sizeof posted.compare);
  }
  request.compare_add = posted.compare;
}

void World::aim_window(End& end, const Op& op, Posted& posted, verbs::SendRequest& request) {
  switch (op.work) {
    case Work::bind_window:
      request.window = end.window;
      request.window_region = end.exposed.region;
      request.window_address = end.exposed.iova;
      request.window_length = end.exposed.size();
      request.window_access = AccessFlags(Access::remote_write) | Access::remote_read;
      request.window_rkey = key_of_cycle(end.window_key, op.cycle);
      break;
    case Work::local_invalidate:
      if (end.window != nullptr) request.invalidate_rkey = key_of_cycle(end.window_key, op.cycle);
      break;
    case Work::send_with_invalidate:
      posted.invalidates = request.invalidate_rkey = key_of_cycle(end.peer->window_key, op.cycle);
      break;
    case Work::write_window:
    case Work::read_window:
      request.rkey = key_of_cycle(end.peer->window_key, op.cycle);
      break;
    default:
      break;
  }
}

// Changes the request that is to fail so that it fails.
void World::spoil(End& end, std::size_t index, verbs::SendRequest& request) {
  Block& target = end.peer->exposed;
  switch (end.channel->mishap) {
    case Mishap::unknown_key:
      request.rkey =
          RemoteKey{request.rkey.value ^ static_cast<std::uint32_t>(1 + random_.below(255))};
      break;
    case Mishap::out_of_bounds:
      if (end.ops[index].work == Work::fetch_add) {
        request.remote_address = nodes_[end.peer->mine->node].memory_of_words.address(0) - 8;
      } else {
        // The last byte lies beyond the end, or the first byte before the start, or the sum of both
        // wraps.
        const std::uint64_t bytes = end.ops[index].bytes;
        const std::uint64_t choices[] = {target.address(target.size()) - bytes + 1, target.iova - 1,
                                         ~std::uint64_t{0} - bytes / 2};
        request.remote_address = choices[random_.below(3)];
      }
      break;
    case Mishap::wrong_region_access:
      request.rkey = end.peer->sealed.region->rkey();
      request.remote_address = end.peer->sealed.address(0);
      if (end.ops[index].work == Work::fetch_add) {
        // This memory may be written and read, but it allows no atomics.
        request.rkey = target.region->rkey();
        request.remote_address = target.address(0);
      }
      break;
    case Mishap::local_protection: {
      const auto sge = std::find_if(sges_.begin(), sges_.end(),
                                    [](const verbs::Sge& each) { return each.length > 0; });
      if (random_.below(2) == 0) {
        sge->lkey = LocalKey{sge->lkey.value ^ 1};
      } else {
        sge->address = end.local.address(end.local.size());
      }
      break;
    }
    case Mishap::misaligned_atomic:
      request.remote_address += 1 + random_.below(7);
      break;
    case Mishap::bad_bind:
      request.window_length = end.exposed.size() + 1;
      break;
    case Mishap::bad_invalidate:
      request.invalidate_rkey = end.exposed.region->rkey();
      break;
    default:
      break;
  }
}

// --- receives ---

bool World::can_post_receive(const ReceivePool& pool) const {
  if (tearing_down_ || pool.posts >= pool.posts_max) return false;
  const End* owner = owner_of_pool_[pool.number];
  return owner == nullptr || (owner->receiver().state() != QpState::error &&
                              owner->receiver().state() != QpState::reset);
}

void World::post_receive(ReceivePool& pool, std::uint32_t number) {
  auto& buffer = pool.buffers[number];
  if (buffer.posted || !can_post_receive(pool)) return;
  const End* owner = owner_of_pool_[pool.number];
  pool.block.scribble(random_, buffer.pieces);
  std::vector<verbs::Sge> sges;
  buffer.bytes = 0;
  for (const Piece& piece : buffer.pieces) {
    sges.push_back({pool.block.address(piece.offset), piece.bytes, pool.block.region->lkey()});
    buffer.bytes += piece.bytes;
  }
  if (owner != nullptr && owner->is_victim() &&
      (owner->channel->mishap == Mishap::short_receive ||
       owner->channel->mishap == Mishap::receive_protection)) {
    // The peer's spoiled message takes this receive: as many receives come before it as messages
    // before that one.
    const auto& ops = owner->peer->ops;
    const std::uint32_t op = owner->channel->mishap_op;
    const auto before = static_cast<std::uint32_t>(std::count_if(
        ops.begin(), ops.begin() + op, [](const Op& each) { return takes_receive(each.work); }));
    if (pool.posts == before && owner->channel->mishap == Mishap::short_receive) {
      sges.resize(1);
      sges[0].length = std::min(sges[0].length, ops[op].bytes - 1);
      buffer.bytes = sges[0].length;
    } else if (pool.posts == before) {
      const Block& sealed = owner->sealed;
      sges.assign(1, {sealed.address(0), sealed.size(), sealed.region->lkey()});
    }
  }
  buffer.wr_id = std::uint64_t{1} << 63 | std::uint64_t{pool.number} << 48 |
                 std::uint64_t{pool.posts & 0xFFFF} << 32 | number;
  buffer.posted = true;
  ++pool.posts;
  pool.order.push_back(buffer.wr_id);
  const verbs::ReceiveRequest request{buffer.wr_id, sges};
  const auto status = pool.srq == nullptr
                          ? adapter(pool.node).post_receive(*owner->qp, request)
                          : adapter(pool.node).objects().post_receive(*pool.srq, request);
  promise(status == VerbsStatus::ok, "a receive was refused");
}

}  // namespace tulle::scenarios
