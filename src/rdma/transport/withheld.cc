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

bool Withheld::keep_first_packet(QpNumber qp, RemoteKey key, std::uint64_t address,
                                 std::byte* memory, std::span<const std::byte> bytes) try {
  FirstPacket& packet = queue_pairs_[qp.value].first_packet;
  packet.bytes.assign(bytes.begin(), bytes.end());
  packet.key = key;
  packet.address = address;
  packet.memory = memory;
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

const Withheld::FirstPacket* Withheld::first_packet(QpNumber qp) const {
  const auto found = queue_pairs_.find(qp.value);
  const bool is_kept = found != queue_pairs_.end() && !found->second.first_packet.bytes.empty();
  return is_kept ? &found->second.first_packet : nullptr;
}

bool Withheld::write_first_packet(QpNumber qp) {
  const FirstPacket* const packet = first_packet(qp);
  if (packet == nullptr) return true;
  for (int i = 0; i < pauses_before_first_packet; ++i) pause_processor();
  const bool is_there = packet->memory != nullptr &&
                        copy_guarded(packet->memory, packet->bytes.data(), packet->bytes.size());
  drop_first_packet(qp);
  return is_there;
}

void Withheld::drop_first_packet(QpNumber qp) {
  if (const auto found = queue_pairs_.find(qp.value); found != queue_pairs_.end()) {
    found->second.first_packet.bytes.clear();
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

void Withheld::release_all(std::span<const std::byte> region) {
  for (auto& [number, kept] : queue_pairs_) {
    write_all(kept);
    const std::byte* const first = kept.first_packet.memory;
    const bool is_inside = first >= region.data() && first < region.data() + region.size();
    if (is_inside) kept.first_packet.memory = nullptr;
  }
}

void Withheld::forget(QpNumber qp) {
  release_all(qp);
  queue_pairs_.erase(qp.value);
}

}  // namespace tulle::transport
