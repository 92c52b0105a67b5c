#pragma once

// Packets of one message, in order, whose payloads are still in their writer's memory
// (live/path/memory/payload_reference.h). One system call copies all payloads, or none if this
// process has mapped the memory. Each goes to where the adapter will want it, if that is known
// before the packet is handled; otherwise it goes to a buffer, from which the adapter copies it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/time.h"
#include "live/path/memory/local_peers.h"
#include "live/path/memory/payload_reference.h"
#include "rdma/device/adapter.h"
#include "rdma/wire/packet.h"
#include "rdma/wire/path.h"

namespace tulle::live {

class PayloadRun {
 public:
  static constexpr std::size_t packets_max = 16;

  bool is_empty() const { return count_ == 0; }
  // Returns true if the run is empty, or if the packet is the one behind it in its message.
  bool takes(const wire::Packet& packet, const PayloadReference& reference) const;
  // Adds a packet that the run takes.
  void add(const wire::Packet& packet, const PayloadReference& reference);

  struct Result {
    std::uint32_t handled = 0;  // packets
    std::uint32_t dropped = 0;  // packets whose payload was gone or recalled
    // The writer lives and has not taken the payloads back, and some of them cannot be read.
    bool is_refused = false;
  };
  // Copies the payloads, hands the packets to the adapter, and empties the run. The packets came
  // from `writer` by this path.
  Result finish(LocalPeer& writer, const wire::Path& path, device::Adapter& adapter, Time now);

 private:
  struct Item {
    wire::Packet packet;
    PayloadReference reference;
    std::uint32_t payload_bytes = 0;
    std::byte* payload = nullptr;  // where its payload goes; null: nowhere, and the packet is lost
  };

  void place(const wire::Path& path, device::Adapter& adapter);
  void copy(LocalPeer& writer, Result& result);
  bool copy_mapped(LocalPeer& writer);
  void copy_all(const LocalPeer& writer, Result& result);

  std::array<Item, packets_max> items_;
  std::size_t count_ = 0;
  std::uint32_t bytes_ = 0;              // of all payloads
  std::unique_ptr<std::byte[]> buffer_;  // has room for all payloads; null until it is needed
};

}  // namespace tulle::live
