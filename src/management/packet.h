#pragma once

// A management datagram with what the headers around it say: LRH, BTH and DETH.

#include <array>

#include "base/ids.h"
#include "management/answer.h"
#include "rdma/wire/smp.h"

namespace tulle::management {

inline constexpr QpNumber subnet_management_qp{0};  // IBTA 3.9.3: SMI, on virtual lane 15

struct Packet {
  Lid source;
  Lid destination;
  std::uint8_t service_level = 0;
  QpNumber source_qp;
  QpNumber destination_qp;
  Qkey qkey;
  Pkey pkey = default_pkey;
  std::array<std::byte, mad_bytes> mad{};

  bool is_subnet_management() const { return destination_qp == subnet_management_qp; }
};

// Returns the packet that brings an answer back: the same with source and destination exchanged.
inline Packet answer_to(const Packet& packet) {
  Packet out = packet;
  out.source = packet.destination;
  out.destination = packet.source;
  out.source_qp = packet.destination_qp;
  out.destination_qp = packet.source_qp;
  return out;
}

}  // namespace tulle::management
