#include "rdma/verbs/memory.h"

namespace tulle::verbs {
namespace {

// Returns true if a caller that asks about this many bytes is about to touch them. One that asks
// about more than a packet holds asks only about the key, and asks again for each packet.
constexpr bool is_touched(std::uint64_t bytes) { return bytes > 0 && bytes <= null_bytes_max; }

}  // namespace

// There is always room for one more, so that renew() cannot fail.
void KeyTable::add(KeyHolder& holder) {
  make_room();
  enter(holder);
}

void KeyTable::enter(KeyHolder& holder) {
  std::uint32_t key = 0;
  do {
    key = static_cast<std::uint32_t>(random_.next() >> 32);
  } while (key >> 8 == 0 || key >> 8 == 0xFF'FFFF || holders_.find(key >> 8) != nullptr);
  holder.key = key;
  holders_.insert(key >> 8, &holder);
}

void KeyTable::remove(KeyHolder& holder) {
  holders_.erase(holder.key >> 8);
  if (last_ == &holder) last_ = nullptr;
}

void KeyTable::renew(KeyHolder& holder) {
  const std::uint32_t old_index = holder.key >> 8;
  enter(holder);  // before the old index is freed, so that the key differs from it
  holders_.erase(old_index);
}

KeyHolder* KeyTable::find_other(std::uint32_t key) const {
  KeyHolder* holder = holders_.find(key >> 8);
  if (holder == nullptr || holder->key != key) return nullptr;
  return last_ = holder;
}

const MemoryRegion* KeyTable::find_region(LocalKey key) const {
  const KeyHolder* holder = find(key.value);
  if (holder == nullptr || holder->kind != KeyHolder::Kind::region) return nullptr;
  return static_cast<const MemoryRegion*>(holder);
}

KeyTable::Grant KeyTable::special(const MemoryRegion& region, std::uint64_t address,
                                  std::uint64_t bytes, bool write) const {
  if (region.access.has(Access::null)) {
    if (bytes > null_bytes_max) return {};
    return {Verdict::ok, region.memory + (write ? null_bytes_max : 0)};
  }
  std::byte* const memory = region.at(address);
  if (!is_touched(bytes) || pages_ == nullptr) return {Verdict::ok, memory};
  const bool is_there = region.access.has(Access::on_demand) ? pages_->bring(memory, bytes, write)
                                                             : pages_->can_read(memory, bytes);
  return is_there ? Grant{Verdict::ok, memory} : Grant{};
}

KeyTable::Grant KeyTable::by_window(const MemoryWindow& window, const ProtectionDomain& pd,
                                    QpNumber qp, std::uint64_t address, std::uint64_t bytes,
                                    AccessFlags needed) const {
  if (window.region == nullptr || !allows_access(window.access, window.pd, needed, &pd)) return {};
  if (window.type == WindowType::type2 && window.qp != qp) return {};
  // In a zero-based window, the first byte has address 0.
  const bool zero_based = window.access.has(verbs::Access::zero_based);
  const std::uint64_t start = zero_based ? 0 : window.address;
  if (!range_covers(start, window.length, address, bytes)) return {};
  const std::uint64_t in_region = address - start + window.address;
  if (!window.region->covers(in_region, bytes)) return {};
  return reach(*window.region, in_region, bytes, (needed & remote_writes).any());
}

KeyTable::Refusal KeyTable::why_denied(RemoteKey key, const ProtectionDomain& pd, QpNumber qp,
                                       AccessFlags needed) const {
  const KeyHolder* holder = find(key.value);
  if (holder == nullptr) return Refusal::unknown_key;
  if (holder->kind == KeyHolder::Kind::region) {
    const auto& region = static_cast<const MemoryRegion&>(*holder);
    if (region.pd != &pd) return Refusal::foreign;
    return region.access.has_all(needed) ? Refusal::out_of_bounds : Refusal::not_permitted;
  }
  const auto& window = static_cast<const MemoryWindow&>(*holder);
  if (window.region == nullptr) return Refusal::unknown_key;
  const bool others = window.type == WindowType::type2 && window.qp != qp;
  if (window.pd != &pd || others) return Refusal::foreign;
  return window.access.has_all(needed) ? Refusal::out_of_bounds : Refusal::not_permitted;
}

KeyTable::Place KeyTable::place_of(RemoteKey key, std::uint64_t address) const {
  const KeyHolder* holder = find(key.value);
  if (holder == nullptr || holder->kind == KeyHolder::Kind::region) {
    return {local_key(key), address};
  }
  const auto& window = static_cast<const MemoryWindow&>(*holder);
  const std::uint64_t start = window.access.has(verbs::Access::zero_based) ? 0 : window.address;
  return {window.region->lkey(), address - start + window.address};
}

bool KeyTable::bind(MemoryWindow& window, const ProtectionDomain& pd, QpNumber qp,
                    const WindowBinding& binding) {
  if (window.pd != &pd) return false;
  if (window.type == WindowType::type1 && binding.length == 0) {
    unbind(window);
    rename(window, binding.new_key);
    return true;
  }
  if (binding.region == nullptr || binding.region->pd != &pd) return false;
  const AccessFlags access = binding.access;
  const AccessFlags writes = AccessFlags(Access::remote_write) | Access::remote_atomic;
  if (!binding.region->access.has(Access::bind_window)) return false;
  if ((access & writes).any() && !binding.region->access.has(Access::local_write)) return false;
  if (!binding.region->covers(binding.address, binding.length)) return false;
  if (window.type == WindowType::type2) {
    // IBTA 10.6.7.2.6: only an unbound type 2 window can be bound, with a new key of which the
    // consumer chooses 8 bits. The others stay the window's, whatever the consumer gives: adapters
    // read just the low byte (Linux, drivers/infiniband/sw/rxe/rxe_mw.c: rxe_do_bind_mw; rdma-core,
    // providers/mlx5/qp.c: set_umr_mkey_seg).
    if (window.region != nullptr || binding.length == 0) return false;
    window.key = (window.key & ~0xFFu) | (binding.new_key.value & 0xFF);
    window.qp = qp;
  } else {
    unbind(window);
    rename(window, binding.new_key);
  }
  window.region = binding.region;
  window.address = binding.address;
  window.length = binding.length;
  window.access = access;
  ++binding.region->bound_windows;
  return true;
}

// Gives a type 1 window the key that the caller was told when it posted the bind (IBTA 10.6.7.2.3),
// or a fresh one if `key` has a different index.
void KeyTable::rename(MemoryWindow& window, RemoteKey key) {
  if (key.value >> 8 == window.key >> 8) {
    window.key = key.value;
  } else {
    renew(window);
  }
}

bool KeyTable::invalidate(RemoteKey key, const ProtectionDomain& pd, QpNumber qp) {
  KeyHolder* holder = find(key.value);
  if (holder == nullptr || holder->kind != KeyHolder::Kind::window) return false;
  auto& window = static_cast<MemoryWindow&>(*holder);
  if (window.type != WindowType::type2 || window.pd != &pd || window.region == nullptr)
    return false;
  if (window.qp != qp) return false;
  unbind(window);
  return true;
}

void KeyTable::unbind(MemoryWindow& window) {
  if (window.region == nullptr) return;
  --window.region->bound_windows;
  window.region = nullptr;
}

}  // namespace tulle::verbs
