#include "live/path/memory/payload_run.h"

#include <sys/uio.h>

#include <algorithm>
#include <new>
#include <span>

#include "base/guarded_access.h"
#include "rdma/wire/pkey.h"

namespace tulle::live {
namespace {

constexpr std::size_t buffer_bytes = PayloadRun::packets_max * PayloadReference::payload_bytes_max;

// A list of pieces of memory. A piece that follows the last one in memory extends that piece. A
// peer may name any address, so that the end of a piece is a number and no pointer.
template <std::size_t pieces_max>
class PieceList {
 public:
  void add(void* memory, std::size_t bytes) {
    if (count_ > 0) {
      iovec& last = pieces_[count_ - 1];
      const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(last.iov_base) + last.iov_len;
      if (end == reinterpret_cast<std::uintptr_t>(memory)) {
        last.iov_len += bytes;
        return;
      }
    }
    pieces_[count_++] = {memory, bytes};
  }
  const iovec* data() const { return pieces_.data(); }
  std::size_t size() const { return count_; }

 private:
  std::array<iovec, pieces_max> pieces_;
  std::size_t count_ = 0;
};

template <std::size_t pieces_max>
void add_pieces(const PayloadReference& reference, PieceList<pieces_max>& list) {
  for (const PayloadReference::Piece& piece : reference.pieces()) {
    list.add(reinterpret_cast<void*>(piece.address), piece.bytes);
  }
}

// Returns true if all bytes were copied.
template <std::size_t locals, std::size_t remotes>
bool read_all(int pid, const PieceList<locals>& to, const PieceList<remotes>& from,
              std::size_t bytes) {
  const ssize_t moved = process_vm_readv(pid, to.data(), to.size(), from.data(), from.size(), 0);
  return moved == static_cast<ssize_t>(bytes);
}

// Goes through the pieces of a placement.
class PlacementCursor {
 public:
  explicit PlacementCursor(const transport::Placement& placement)
      : pieces_(placement.pieces.data(), placement.count) {}

  // Returns the place of the next bytes and goes past them. Null means that they have none, or that
  // it is not in one piece.
  std::byte* next(std::size_t bytes) {
    skip_full();
    std::byte* const place = !pieces_.empty() && pieces_.front().size() - used_ >= bytes
                                 ? pieces_.front().data() + used_
                                 : nullptr;
    while (bytes > 0 && !pieces_.empty()) {
      const std::size_t part = std::min(bytes, pieces_.front().size() - used_);
      bytes -= part;
      used_ += part;
      skip_full();
    }
    return place;
  }

 private:
  void skip_full() {
    while (!pieces_.empty() && used_ == pieces_.front().size()) {
      pieces_ = pieces_.subspan(1);
      used_ = 0;
    }
  }

  std::span<const std::span<std::byte>> pieces_;
  std::size_t used_ = 0;  // bytes of the first piece
};

}  // namespace

bool PayloadRun::takes(const wire::Packet& packet, const PayloadReference& reference) const {
  if (is_empty()) return true;
  if (count_ == packets_max) return false;
  const Item& last = items_[count_ - 1];
  const wire::OpcodeInfo& info = wire::info(packet.opcode);
  const wire::OpcodeInfo& before = wire::info(last.packet.opcode);
  return packet.destination_qp == last.packet.destination_qp &&
         packet.psn == last.packet.psn + 1u && info.kind == before.kind && !info.starts_message() &&
         !before.ends_message() && reference.is_recalled_with(last.reference);
}

void PayloadRun::add(const wire::Packet& packet, const PayloadReference& reference) {
  Item& item = items_[count_++];
  item.packet = packet;
  item.reference = reference;
  item.payload_bytes = reference.payload_bytes();
  bytes_ += item.payload_bytes;
}

PayloadRun::Result PayloadRun::finish(LocalPeer& writer, const wire::Path& path,
                                      device::Adapter& adapter, Time now) {
  Result result;
  place(path, adapter);
  copy(writer, result);
  for (const Item& item : std::span(items_).first(count_)) {
    if (item.payload == nullptr) {
      ++result.dropped;
      continue;
    }
    ++result.handled;
    try {
      port::Arrival arrival{path};
      arrival.packet = &item.packet;
      adapter.handle_frame(now, arrival, {item.payload, item.payload_bytes});
    } catch (const std::bad_alloc&) {
      // There is no memory to handle the packet: it is lost, as on a network.
    }
  }
  count_ = 0;
  bytes_ = 0;
  return result;
}

// Decides where each payload goes.
void PayloadRun::place(const wire::Path& path, device::Adapter& adapter) {
  transport::Placement placement;
  const wire::Packet& first = items_[0].packet;
  const transport::QueuePair* qp = adapter.find_qp(first.destination_qp);
  if (qp == nullptr || !wire::pkeys_match(first.pkey, qp->pkey()) ||
      !qp->engine().find_placement(*qp, first, path, bytes_, placement)) {
    placement.count = 0;
  }
  PlacementCursor cursor(placement);
  std::size_t in_buffer = 0;
  for (Item& item : std::span(items_).first(count_)) {
    item.payload = cursor.next(item.payload_bytes);
    if (item.payload != nullptr) continue;
    if (buffer_ == nullptr) buffer_.reset(new (std::nothrow) std::byte[buffer_bytes]);
    if (buffer_ == nullptr) continue;
    item.payload = buffer_.get() + in_buffer;
    in_buffer += item.payload_bytes;
  }
}

void PayloadRun::copy(LocalPeer& writer, Result& result) {
  const std::span<Item> items = std::span(items_).first(count_);
  // The writer may have taken the bytes back, died or called exec(2). What comes later than this
  // look is found out behind the copy, and may have been written where a payload goes.
  const auto is_gone = [&] {
    return !writer.is_alive() || items[0].reference.is_recalled(*writer.table);
  };
  if (!is_gone()) {
    if (!copy_mapped(writer)) copy_all(writer, result);
    if (!is_gone()) return;
    result.is_refused = false;
  }
  for (Item& item : items) item.payload = nullptr;
}

// Returns false if some payload is in no file that the writer shows, from before the copy until
// after it. The files of regions that are withdrawn lose their content.
bool PayloadRun::copy_mapped(LocalPeer& writer) {
  const auto find = [&](const PayloadReference::Piece& piece) {
    return writer.files.find_now(*writer.table, writer.pid, piece.address, piece.bytes);
  };
  for (const Item& item : std::span(items_).first(count_)) {
    std::byte* to = item.payload;
    if (to == nullptr) continue;
    for (const PayloadReference::Piece& piece : item.reference.pieces()) {
      const std::byte* const from = find(piece);
      if (from == nullptr || !copy_guarded(to, from, piece.bytes)) return false;
      if (find(piece) != from) return false;
      to += piece.bytes;
    }
  }
  return true;
}

void PayloadRun::copy_all(const LocalPeer& writer, Result& result) {
  const std::span<Item> items = std::span(items_).first(count_);
  PieceList<packets_max> to;
  PieceList<packets_max * PayloadReference::pieces_max> from;
  std::size_t bytes = 0;
  for (const Item& item : items) {
    if (item.payload == nullptr) continue;
    to.add(item.payload, item.payload_bytes);
    add_pieces(item.reference, from);
    bytes += item.payload_bytes;
  }
  if (bytes == 0 || read_all(writer.pid, to, from, bytes)) return;
  // Some memory is not there, in this process or in the writer's, or the kernel refuses. Each
  // packet fares on its own, and the adapter finds out what is missing here.
  if (buffer_ == nullptr) buffer_.reset(new (std::nothrow) std::byte[buffer_bytes]);
  std::byte* room = buffer_.get();
  for (Item& item : items) {
    PieceList<1> one;
    PieceList<PayloadReference::pieces_max> pieces;
    item.payload = nullptr;
    if (room == nullptr) continue;
    one.add(room, item.payload_bytes);
    add_pieces(item.reference, pieces);
    if (!read_all(writer.pid, one, pieces, item.payload_bytes)) {
      result.is_refused = true;
      continue;
    }
    item.payload = room;
    room += item.payload_bytes;
  }
}

}  // namespace tulle::live
