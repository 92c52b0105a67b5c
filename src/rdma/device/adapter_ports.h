#pragma once

// The ports of an adapter, by number from 1 on.

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "rdma/device/adapter_port.h"
#include "rdma/device/configuration.h"
#include "rdma/port/framing/framing.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/verbs/address_handle.h"
#include "rdma/verbs/types.h"

namespace tulle::device {

class AdapterPorts {
 public:
  explicit AdapterPorts(const Configuration& configuration);

  AdapterPort& operator[](std::uint8_t number) {
    if (number == 1) [[likely]]
      return first_;
    return others_[number - 2u];
  }
  const AdapterPort& operator[](std::uint8_t number) const {
    return const_cast<AdapterPorts&>(*this)[number];
  }
  AdapterPort& first() { return first_; }
  const AdapterPort& first() const { return first_; }
  bool has(std::uint8_t number) const { return number >= 1 && number <= 1 + others_.size(); }

  // Returns true if packets can take this way (AdapterPort::is_path()).
  bool is_path(const verbs::AddressVector& to) const {
    return (*this)[to.port].is_path(to, *usual_);
  }
  // Checks the port and the paths that a queue pair is to have from now on.
  verbs::VerbsStatus check(const transport::QueuePair& qp,
                           const transport::QueuePairAttributes& attributes,
                           verbs::QpAttributeMask mask) const;
  void rebase(Time by);

 private:
  AdapterPort first_;
  std::vector<AdapterPort> others_;
  const port::Framing* usual_;
};

}  // namespace tulle::device
