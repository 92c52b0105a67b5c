#include "rdma/transport/withheld.h"

#include <algorithm>
#include <new>

#include "base/guarded_access.h"
#include "base/pause.h"

namespace tulle::transport {
namespace {

// Some microseconds, in which a program that polls the last byte sees it.
constexpr int pauses_before_first_packet = 200;
// More than unsignalled READs of a queue have, with some SGEs each.
constexpr std::uint32_t unbound_max = 65'536;

}  // namespace

bool Withheld::keep(QpNumber qp, bool is_receive, std::byte* memory, const std::byte* from,
                    std::uint32_t bytes) try {
  Kept& kept = queue_pairs_[qp.value];
  Queue& queue = is_receive ? kept.receives : kept.sends;
  Piece& piece = queue.pieces.emplace_back();
  piece.memory = memory;
  piece.bytes = std::min(bytes, edge_bytes);
  std::copy_n(from, piece.bytes, piece.data.begin());
  // A peer that begins messages and ends none must not fill the memory.
  if (++queue.unbound > unbound_max) {
    write(queue, queue.pieces.size());
    std::ranges::fill(queue.bound, 0u);
    queue.unbound = 0;
  }
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

bool Withheld::keep_first_packet(QpNumber qp, std::byte* memory, const std::byte* from,
                                 std::uint32_t bytes) try {
  Kept& kept = queue_pairs_[qp.value];
  kept.first_packet.assign(from, from + bytes);
  kept.first_memory = memory;
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

bool Withheld::write_first_packet(QpNumber qp) {
  const auto found = queue_pairs_.find(qp.value);
  if (found == queue_pairs_.end() || found->second.first_packet.empty()) return true;
  for (int i = 0; i < pauses_before_first_packet; ++i) pause_processor();
  std::vector<std::byte>& packet = found->second.first_packet;
  const bool is_there = copy_guarded(found->second.first_memory, packet.data(), packet.size());
  packet.clear();
  return is_there;
}

void Withheld::drop_first_packet(QpNumber qp) {
  if (const auto found = queue_pairs_.find(qp.value); found != queue_pairs_.end()) {
    found->second.first_packet.clear();
  }
}

bool Withheld::is_receive(const verbs::Completion& completion) {
  return completion.opcode >= verbs::CompletionOpcode::receive;
}

void Withheld::bind(const verbs::Completion& completion) try {
  const auto found = queue_pairs_.find(completion.qp.value);
  if (found == queue_pairs_.end()) return;
  Queue& queue = is_receive(completion) ? found->second.receives : found->second.sends;
  queue.bound.push_back(queue.unbound);
  queue.unbound = 0;
} catch (const std::bad_alloc&) {
  release_all(completion.qp);
}

void Withheld::release(const verbs::Completion& completion) {
  const auto found = queue_pairs_.find(completion.qp.value);
  if (found == queue_pairs_.end()) return;
  Queue& queue = is_receive(completion) ? found->second.receives : found->second.sends;
  if (queue.bound.empty()) return;
  write(queue, queue.bound.front());
  queue.bound.pop_front();
}

// A message that began again has pieces for the same memory, and the last of them counts. Memory
// that is gone needs none.
void Withheld::write(Queue& queue, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const Piece& piece = queue.pieces[i];
    static_cast<void>(copy_guarded(piece.memory, piece.data.data(), piece.bytes));
  }
  queue.pieces.erase(queue.pieces.begin(),
                     queue.pieces.begin() + static_cast<std::ptrdiff_t>(count));
}

void Withheld::write_all(Kept& kept) {
  for (Queue* queue : {&kept.sends, &kept.receives}) {
    write(*queue, queue->pieces.size());
    std::ranges::fill(queue->bound, 0u);
    queue->unbound = 0;
  }
}

void Withheld::release_under(QpNumber qp, const std::byte* memory, std::uint32_t bytes) {
  const auto found = queue_pairs_.find(qp.value);
  if (found == queue_pairs_.end()) return;
  const auto is_under = [&](const Piece& piece) {
    return piece.memory < memory + bytes && memory < piece.memory + piece.bytes;
  };
  for (const Queue* queue : {&found->second.sends, &found->second.receives}) {
    if (std::ranges::any_of(queue->pieces, is_under)) return write_all(found->second);
  }
}

void Withheld::release_all(QpNumber qp) {
  if (const auto found = queue_pairs_.find(qp.value); found != queue_pairs_.end()) {
    write_all(found->second);
  }
}

void Withheld::release_all() {
  for (auto& [number, kept] : queue_pairs_) write_all(kept);
}

void Withheld::forget(QpNumber qp) {
  release_all(qp);
  queue_pairs_.erase(qp.value);
}

}  // namespace tulle::transport
