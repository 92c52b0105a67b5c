#pragma once

// The ways in which a reliable connection recovers from packet loss. Both ends of a connection
// should be set alike, since nothing on the wire says which kind of recovery is in use (decision
// 006).

#include <cstdint>

#include "base/time.h"

namespace tulle::transport {

enum class Recovery : std::uint8_t {
  // IBTA 9.7.5.2: the requester sends everything again from the missing packet on.
  go_back_n,
  // IRN (Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018): only the missing
  // packets are sent again. IBTA does not define this.
  selective_repeat,
  // Older adapters sent the message again from its first packet (Guo et al., "RDMA over Commodity
  // Ethernet at Scale", SIGCOMM 2016, 4.1). For comparison; WRITE and SEND only.
  go_back_0,
};

// The values are IRN's where it gives any (3.1 and 4.1; `few_packets` also in its authors' logic
// for an FPGA, github.com/NetSys/irn-vivado-hls).
struct RecoverySettings {
  Recovery kind = Recovery::go_back_n;
  // The most packets that a queue pair may have in flight (IRN 3.2, BDP-FC: a bandwidth-delay
  // product). With selective repeat it also bounds the packets that the peer holds while an earlier
  // one is missing. 0 means no bound; selective repeat needs a bound.
  std::uint32_t window_packets = 0;

  // With each retry in a row the ACK timer runs twice as long as before, up to four times its
  // nominal value, which IBTA 9.7.6.1.3 allows. It is not made longer than this, however.
  // Adapters give up after about (retries + 1) nominal timers, and programs that set timers of a
  // second or more count on that, so the live device bounds the back-off. Short timers still back
  // off there, since a process that is not running for a while cannot answer as an adapter can.
  // Without a bound, as in a simulation, all timers back off alike.
  Time backed_off_timeout_max = Time::never();
  // The number of times that the ACK timer doubles. The live device lets short timers double on to
  // the bound above. An adapter that has no timer as short as the program asks for takes a longer
  // one, too.
  int back_off_doublings = 2;
  // A timer that is handled so late shows that this end did not run. The peer's answer may not have
  // had the chance to come. The timer then runs on for as long as it was late, up to its own
  // length, and takes no retry; it does so once. A simulation handles all timers in time.
  Time late_after = Time::never();

  // The members below apply to selective repeat only.
  //
  // A packet counts as lost when a packet that was sent this many packets later has arrived. IRN
  // uses 1; for packets that take several paths its section 7 proposes a threshold without a value.
  std::uint32_t reordering_packets = 1;
  // If no acknowledgement comes, one packet is sent again: after `timeout_low` if no more than
  // `few_packets` are in flight, otherwise after `timeout_high`.
  std::uint32_t few_packets = 3;
  Time timeout_low = Time::microseconds(100);
  Time timeout_high = Time::microseconds(320);
};

}  // namespace tulle::transport
