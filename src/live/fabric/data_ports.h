#pragma once

// The hosts' ports as programs use them for data: rings of packets between programs and the
// subnet's switches.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "fabric/subnet.h"
#include "fabric/subnet_traffic.h"
#include "live/path/fabric/rings.h"
#include "os/unique_fd.h"

namespace tulle::live {

class DataPorts {
 public:
  DataPorts(Time now, fabric::Subnet& subnet);

  struct Opened {
    std::uint32_t slot = 0;
    std::uint32_t first_qp = 0;
    std::uint32_t qp_count = 0;
    UniqueFd memory;
    UniqueFd button;  // of the bell of this end
  };
  // A process has at most so many parts of a host's port.
  static constexpr std::size_t slots_of_process_max = 64;
  // All processes that the system does not tell apart have so many together.
  static constexpr std::size_t slots_of_unknown_max = fabric::SubnetTraffic::slots_max / 2;

  // Opens a part of a host's port for a client, which has none. `button` is that of the client's
  // bell. One that is refused stays the caller's, who may not wait until it is closed. `process` is
  // the client's process, or 0 if the system does not say: while it is not stopped, packets wait
  // for it for longer. The error is one line for a person.
  Result<Opened> open(Time now, std::uint32_t host, std::uint32_t client, UniqueFd&& button,
                      int process = 0);
  // Returns the descriptors that the client had, too. Closing them may take long.
  std::vector<UniqueFd> close(Time now, std::uint32_t client);
  // Returns the descriptor that is readable when a client has rung.
  int bell(std::uint32_t client) const;
  // A client may have rung, by a message that has no descriptors.
  void answer(std::uint32_t client);

  // A user of a host's port in this process, which is given packets as they come.
  using Take = std::function<void(Time now, std::span<const std::byte> packet)>;
  struct Own {
    fabric::SubnetTraffic::Program program;
    std::uint32_t first_qp = 0;
  };
  // Opens a part of a host's port for such a user, for ever. Its function may not call this object.
  Result<Own> open_own(Time now, std::uint32_t host, Take take);
  // Sends its packet. Returns false if there is no room.
  bool send(Time now, const Own& own, std::span<const std::byte> packet) {
    return traffic_.offer(now, own.program, packet) == fabric::SubnetTraffic::Offer::taken;
  }

  // Links may have gone up or down.
  void follow(Time now) { traffic_.follow(now); }
  // Moves packets for a while. Returns true if there is more to do at once.
  bool progress(Time now);
  Time next_event() const { return traffic_.next_event(); }
  void rebase(Time by) { traffic_.rebase(by); }
  fabric::SubnetTraffic& traffic() { return traffic_; }
  fabric::SubnetTraffic::Counters counters() const { return traffic_.counters(); }
  // Returns how many programs have a host's port open for data.
  std::uint32_t programs(std::uint32_t host) const;

 private:
  static constexpr int rounds_in_a_turn = 16;
  // Of a lane of a program, whose process has few parts of ports.
  static constexpr int packets_in_a_round = 64;
  // The parts of a process that has more take turns as if it had so many.
  static constexpr int full_parts_of_process = 4;
  static constexpr int full_parts_of_unknown = 64;
  // Of all programs, about. Those that come later in a round are the first of the next one.
  static constexpr int packets_of_all_in_a_round = 8'192;
  static constexpr std::chrono::milliseconds turn_time{5};

  struct Port {
    fabric::SubnetTraffic::Program program;
    std::uint32_t client = 0;
    int process = 0;
    FabricRings rings;
    int button = -1;  // the rings own it
    UniqueFd bell;
    int packets_in_round = packets_in_a_round;  // of each lane
    bool is_awake = false;                      // its rings are looked at in each turn
    std::uint32_t held_back_lanes = 0;          // as bits: their next packet has found no room
    bool is_full = false;                       // packets wait for room in its ring
  };
  struct OwnPort {
    fabric::SubnetTraffic::Program program;
    Take take;
  };
  // A sleeper is woken when so much has been written, although more is to come: both ends then work
  // at the same time.
  static constexpr std::size_t early_ring_bytes = std::size_t{16} << 10;

  bool is_free(fabric::SubnetTraffic::Program program);
  Result<void> has_place_for(std::uint32_t host, int process) const;
  Port* find(std::uint32_t client);
  Port* find(fabric::SubnetTraffic::Program program);
  void share_rounds();
  int read(Time now, Port& port);
  int read_lane(Time now, Port& port, std::uint32_t lane);
  bool read_all(Time now);
  bool deliver_all(Time now);
  static std::byte* room_in(Port& port);
  bool deliver(Time now, Port& port);
  bool deliver_own(Time now, fabric::SubnetTraffic::Program program);
  bool send_to_sleep();

  fabric::SubnetTraffic traffic_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::size_t first_of_round_ = 0;  // of the ports
  std::vector<OwnPort> own_;
  // By host and slot: how many programs have had the slot. The next one gets other numbers of queue
  // pairs (live/slots.h).
  std::vector<std::vector<std::uint8_t>> turns_;
};

}  // namespace tulle::live
