#pragma once

// Writes the frames of chosen nodes to a pcapng file, with every header that they would have on a
// wire. A ghost's payload is shown as zeros, with the ICRC of zeros. A frame that bit errors damage
// is shown as it was sent; the record at its receiver says that the check failed.

#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "fabric/topology.h"
#include "rdma/pcapng/pcapng.h"
#include "sim/network.h"

namespace tulle::experiment {

class Capture {
 public:
  // `nodes` are names such as "host 0" or "leaf 3". The error is one line.
  static Result<std::unique_ptr<Capture>> open(const std::string& path,
                                               const std::vector<std::string>& nodes,
                                               const fabric::Topology& topology,
                                               const sim::NetworkSettings& network);

  // Takes a frame whose first bit leaves by a port.
  void sends(const sim::Sending& sending);
  // Writes the rest of the file. The error is one line.
  Result<void> finish();
  std::uint64_t frames() const { return frames_; }

 private:
  Capture(const fabric::Topology& topology, const sim::NetworkSettings& network)
      : wiring_(topology),
        link_layer_(network.link_layer),
        is_roce_v1_(network.is_roce_v1),
        lmc_(network.lmc) {}
  void add_interface(const std::string& name, std::uint32_t node, std::uint16_t port,
                     std::int64_t rate);
  void write(std::uint32_t interface, pcapng::Direction direction, const sim::Sending& sending);
  void write_roce(std::uint32_t interface, pcapng::Direction direction,
                  const sim::Sending& sending);
  void write_roce_v1(std::uint32_t interface, pcapng::Direction direction,
                     const sim::Sending& sending);
  void write_tcp(std::uint32_t interface, pcapng::Direction direction, const sim::Sending& sending);
  void write_infiniband(std::uint32_t interface, pcapng::Direction direction,
                        const sim::Sending& sending);
  void write_pieces(std::uint32_t interface, pcapng::Direction direction,
                    const sim::Sending& sending,
                    std::span<const std::span<const std::byte>> pieces);
  void flush();
  void remember_failure();

  static constexpr std::uint32_t none = 0xFFFF'FFFF;

  std::string path_;
  std::ofstream out_;
  fabric::Wiring wiring_;
  sim::LinkLayer link_layer_;
  bool is_roce_v1_;
  unsigned lmc_;
  pcapng::Writer pcapng_;
  pcapng::Writer::Buffer buffer_;
  std::vector<std::vector<std::uint32_t>> interface_of_;  // by node and port
  std::uint64_t frames_ = 0;
  int error_ = 0;  // errno of the first failed write; 0 means none failed
};

}  // namespace tulle::experiment
