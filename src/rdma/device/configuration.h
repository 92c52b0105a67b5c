#pragma once

#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/random_source.h"
#include "rdma/device/limits.h"
#include "rdma/port/framing/framing.h"
#include "rdma/port/framing/roce_v2.h"
#include "rdma/port/port.h"
#include "rdma/port/sl_to_vl.h"
#include "rdma/transport/congestion/settings.h"
#include "rdma/transport/recovery.h"
#include "rdma/transport/srd_settings.h"
#include "rdma/transport/tcp_settings.h"
#include "rdma/transport/transport.h"

namespace tulle::device {

struct Configuration {
  std::uint64_t seed = 0;  // for the first queue pair number and, without `draw`, for keys
  // Draws the keys of memory. Null means a stream of the seed, from which an observer can tell what
  // comes next.
  RandomSource::Draw draw = nullptr;
  QpNumber first_qp{0x100};  // start of the range handed to this process
  std::uint32_t qp_count = 16'384;
  // Returns the number that a queue pair with that hint gets, if no other one has it.
  QpNumber qp_number_of_hint(std::uint32_t hint) const {
    return QpNumber{first_qp.value + hint % qp_count};
  }
  Limits limits;
  // The number of ports, 1 to 255 (IBTA 14.2.5.3: NumPorts has 8 bits). All have the settings that
  // follow.
  std::uint8_t ports = 1;
  // Largest path MTU that a port carries: 256, 512, 1024, 2048 or 4096 bytes.
  std::uint32_t mtu_bytes = 4096;
  const port::Framing* framing = &port::roce_v2;
  // Flow control and arbitration of a port. Adapters with equal settings share one object, which
  // must outlive them. Null means a port without flow control, as where a kernel sends.
  const port::Settings* port = nullptr;
  port::LaneRow lanes = port::default_lanes;  // a port's lanes by service level
  // Credits: the longest frame of a port. A lane is open if it has the credits for that many
  // bytes, since a packet's length is known only once it leaves its queue pair.
  std::uint32_t frame_bytes_max = 0;
  transport::congestion::Settings congestion;
  transport::RecoverySettings recovery;
  // Adapters with equal settings share one object. Null means the defaults.
  std::shared_ptr<const transport::tcp::Settings> tcp;
  std::shared_ptr<const transport::srd::Settings> srd;
  // Line rate of a port, where congestion control begins. It replaces the line rates in
  // `congestion` and `srd`.
  std::int64_t line_bits_per_second = 100'000'000'000;
  // The transports of the queue pairs. The table must outlive the adapter.
  const transport::TransportTable* transports = &transport::TransportTable::standard();
  // Number of packets that a queue pair may send before the next has its turn: as many as one
  // segmented call to the kernel holds.
  std::uint32_t packets_per_turn = 16;
};

}  // namespace tulle::device
