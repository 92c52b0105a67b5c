#pragma once

// Each host of a player has these for its flows: a protection domain, a completion queue, memory
// and the ends of connections. A host makes them when it needs them first. With SRD, each host has
// one queue pair for all its peers, and an address handle for each of them, as EFA's applications
// do.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "rdma/device/adapter.h"
#include "rdma/transport/transport.h"
#include "rdma/verbs/types.h"
#include "study/workload/flows.h"
#include "study/workload/player_settings.h"
#include "study/workload/stage.h"

namespace tulle::workload {

class Endpoints {
 public:
  static constexpr Qkey srd_qkey{0x5D};  // any value, as long as all have the same

  // All of these must outlive it, except for the flows. The transport is that of the settings.
  Endpoints(const Flows& flows, std::uint32_t hosts, const PlayerSettings& settings,
            const transport::Transport& transport, const Stage& stage);

  // --- before the first flow (Player::open_hosts()) ---

  void open_all();
  std::vector<Introduction> introductions() const;
  void meet(const Introduction& other);

  // --- hosts that are open ---

  verbs::CompletionQueue& completions_of(std::uint32_t host) const { return *hosts_[host].cq; }
  // Returns the region that represents all memory of a host.
  const verbs::MemoryRegion& memory_of(std::uint32_t host) const { return *hosts_[host].memory; }
  // Returns its key, also of a host elsewhere that has told it.
  RemoteKey key_of(std::uint32_t host) const { return hosts_[host].key; }

  // --- flows ---

  // Registers memory of a flow at a host.
  verbs::MemoryRegion* register_memory(std::uint32_t host, std::byte* data, std::uint64_t bytes);
  void deregister(std::uint32_t host, verbs::MemoryRegion* region);
  // Returns the bits of the path for the next connection by which a host sends: they alternate.
  std::uint8_t next_path_of(std::uint32_t host) {
    return static_cast<std::uint8_t>(hosts_[host].senders++ % settings_.paths);
  }
  // Makes one end of a connection.
  transport::QueuePair* create(std::uint32_t host, std::uint32_t hint, std::uint32_t sends,
                               std::uint32_t receives);
  // Connects it with a peer. The address has no destination yet.
  void connect(std::uint32_t host, transport::QueuePair& qp, QpNumber peer, std::uint32_t peer_host,
               verbs::AddressVector address);
  transport::QueuePair& srd_of(std::uint32_t host);
  // Returns the number of a host's queue pair with SRD, also of a host elsewhere that has told it.
  QpNumber srd_number_of(std::uint32_t host);
  verbs::AddressHandle* handle_to(std::uint32_t from, std::uint32_t to, std::uint8_t qos_level);

 private:
  struct Host {
    verbs::ProtectionDomain* pd = nullptr;
    verbs::CompletionQueue* cq = nullptr;
    verbs::MemoryRegion* memory = nullptr;
    // A host tells its peers these two. They are known of hosts elsewhere, too, which have none of
    // the others.
    RemoteKey key;
    QpNumber srd_number;
    std::uint32_t senders = 0;  // connections by which it has sent so far
    // For SRD.
    transport::QueuePair* srd = nullptr;
    std::unordered_map<std::uint64_t, verbs::AddressHandle*> handles;  // by host and QoS level
  };

  Host& host(std::uint32_t number);
  // Peers may write to the memory, and do nothing else.
  static verbs::AccessFlags remote_write() {
    return verbs::AccessFlags(verbs::Access::local_write) | verbs::Access::remote_write;
  }

  const PlayerSettings& settings_;
  const transport::Transport& transport_;
  const Stage& stage_;
  std::vector<Host> hosts_;
  std::vector<std::uint32_t> flows_at_;  // number of flows by host, for the size of its queues
};

}  // namespace tulle::workload
