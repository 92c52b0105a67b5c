#include "rdma/device/datagram.h"

namespace tulle::device {

void Datagram::finish_frame(std::uint16_t identification) {
  if (auto* udp = std::get_if<wire::IpUdp>(&path)) udp->identification = identification;
  framing->encode(path, packet, {pieces.data(), piece_count}, frame);
}

}  // namespace tulle::device
