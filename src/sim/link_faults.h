#pragma once

// The faults of the links on which a part's nodes send: bit errors, failures, and packets that a
// link loses on purpose.
//
// The sender knows when its link will go down, and so whether a frame arrives in time. A frame on
// which the receiver has not acted by then is lost. An Ethernet frame that was cut off has a wrong
// check sequence (IEEE 802.3 clause 4.2.4.1.2), and InfiniBand drops what a port holds when it
// leaves the active state (IBTA 7.2).

#include <cstdint>

#include "base/time.h"
#include "rdma/port/frame.h"
#include "sim/nodes.h"

namespace tulle::sim {

class LinkFaults {
 public:
  // The nodes must outlive it.
  explicit LinkFaults(Nodes& nodes) : nodes_(nodes), any_(nodes.disturbed) {}

  // Applies bit errors and the failure of the link to a frame. Returns true if it never arrives.
  bool disturb(const LinkEnd& end, port::Frame& frame, std::int64_t arrives) {
    return any_ && disturb_any(end, frame, arrives);
  }
  // Returns true if the link goes down before something arrives that has no bit errors.
  bool goes_down_by(const LinkEnd& end, std::int64_t arrives) const {
    return !nodes_.port_faults.empty() && has_down_by(end, arrives);
  }
  // The link has gone down at a time that was known.
  void go_down(const LinkEnd& end) { faults_of(end).downs.pop_back(); }
  void set_bit_error_rate(const LinkEnd& end, double rate) { faults_of(end).bit_error_rate = rate; }
  // Returns the latest time at which a link lost a frame by going down.
  Time last_loss() const { return last_loss_; }

 private:
  bool disturb_any(const LinkEnd& end, port::Frame& frame, std::int64_t arrives);
  bool has_down_by(const LinkEnd& end, std::int64_t arrives) const;
  bool is_damaged(std::uint32_t node, std::uint32_t bytes, double bit_error_rate);
  bool is_to_lose(std::uint32_t node, const port::Frame& frame);
  PortFaults& faults_of(const LinkEnd& end) {
    return nodes_.port_faults[nodes_.end_index(end.node, end.number)];
  }

  Nodes& nodes_;
  bool any_;
  Time last_loss_;
};

}  // namespace tulle::sim
