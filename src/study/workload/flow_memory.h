#pragma once

// The memory from which a player's flows are read and to which they are written. Flows that carry
// bytes have memory at both ends while they are under way: it is filled at the source, and checked
// at the destination. All others are ghosts, which use the region that represents a host's memory.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "rdma/device/adapter.h"
#include "study/workload/endpoints.h"
#include "study/workload/flows.h"
#include "study/workload/payload.h"
#include "study/workload/player_settings.h"

namespace tulle::workload {

// A flow whose data differ on arrival from the data that were sent.
struct Corruption {
  std::uint32_t flow = 0;
  PayloadDifference difference;
};

class FlowMemory {
 public:
  // All of these must outlive it.
  FlowMemory(const Flows& flows, const PlayerSettings& settings, Endpoints& endpoints)
      : flows_(flows),
        settings_(settings),
        endpoints_(endpoints),
        memories_(settings.carries_bytes ? flows.size() : 0) {}

  // The regions of a flow, each of which belongs to one of its hosts.
  const verbs::MemoryRegion& source_of(std::uint32_t flow) const {
    return settings_.carries_bytes ? *memories_[flow].sent.region
                                   : endpoints_.memory_of(flows_[flow].source);
  }
  const verbs::MemoryRegion& destination_of(std::uint32_t flow) const {
    return settings_.carries_bytes ? *memories_[flow].received.region
                                   : endpoints_.memory_of(flows_[flow].destination);
  }
  RemoteKey destination_key_of(std::uint32_t flow) const {
    return settings_.carries_bytes ? destination_of(flow).rkey()
                                   : endpoints_.key_of(flows_[flow].destination);
  }

  // --- flows that carry bytes ---

  // Gives a flow memory at both ends, which the application has filled at the source.
  void give(std::uint32_t flow);
  // Compares what has arrived with what was sent.
  void check(std::uint32_t flow);
  // Each host takes its own end's memory back.
  void take_sent(std::uint32_t flow) { take(flows_[flow].source, memories_[flow].sent); }
  void take_received(std::uint32_t flow) {
    take(flows_[flow].destination, memories_[flow].received);
  }
  // Bytes that arrived undamaged, and the first corruption.
  std::uint64_t bytes_verified() const { return bytes_verified_; }
  const std::optional<Corruption>& corruption() const { return corruption_; }

 private:
  struct Buffer {
    std::vector<std::byte> bytes;
    verbs::MemoryRegion* region = nullptr;
  };
  // The memory of a flow, while it is under way.
  struct Memory {
    Buffer sent, received;
  };
  void give(std::uint32_t host, std::uint64_t bytes, Buffer& buffer);
  void take(std::uint32_t host, Buffer& buffer);

  const Flows& flows_;
  const PlayerSettings& settings_;
  Endpoints& endpoints_;
  std::vector<Memory> memories_;  // by flow; empty if flows are ghosts
  std::uint64_t bytes_verified_ = 0;
  std::optional<Corruption> corruption_;
};

}  // namespace tulle::workload
