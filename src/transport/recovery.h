#pragma once

// How a reliable connection makes good what the network lost. Both ends of a connection have to be
// set alike: nothing on the wire says which it is.

#include <cstdint>

#include "base/time.h"

namespace tulle::transport {

enum class Recovery : std::uint8_t {
  // IBTA 9.7.5.2: all again from the packet that is missing.
  go_back_n,
  // IRN (Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018): what is missing, and
  // nothing else. Not IBTA's.
  selective_repeat,
  // What adapters did before (Guo et al., "RDMA over Commodity Ethernet at Scale", SIGCOMM 2016,
  // 4.1): the message again from its first packet. For comparison; WRITE and SEND only.
  go_back_0,
};

// The values are IRN's where it gives any (3.1 and 4.1; `few_packets` also in its authors' logic
// for an FPGA, github.com/NetSys/irn-vivado-hls).
struct RecoverySettings {
  Recovery kind = Recovery::go_back_n;
  // Packets that a queue pair may have in flight (IRN 3.2, BDP-FC: a bandwidth-delay product), and
  // with selective repeat that its peer holds at most while one before them is missing. 0: without
  // a bound, which selective repeat needs.
  std::uint32_t window_packets = 0;

  // Selective repeat alone.
  //
  // A packet is taken for lost when one that was sent so much later has arrived. IRN's is 1; where
  // packets take several paths its section 7 proposes a threshold, without a value.
  std::uint32_t reordering_packets = 1;
  // Without an acknowledgement, one packet is sent again after `timeout_low` where no more than
  // `few_packets` are in flight, after `timeout_high` else.
  std::uint32_t few_packets = 3;
  Time timeout_low = Time::microseconds(100);
  Time timeout_high = Time::microseconds(320);
};

}  // namespace tulle::transport
