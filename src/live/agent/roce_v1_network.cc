#include "live/agent/roce_v1_network.h"

#include <algorithm>
#include <cerrno>

#include "live/agent/management_port.h"
#include "rdma/port/framing/roce_v1.h"
#include "rdma/wire/path.h"

namespace tulle::live {
namespace {

// The agent waits as long as Linux's RDMA core does (drivers/infiniband/core/addr.c).
constexpr auto patience = std::chrono::seconds(1);
constexpr int calls_in_a_turn = 8;

}  // namespace

Result<std::unique_ptr<RoceV1Network>> RoceV1Network::open(CaptureTap& tap) {
  auto port = RoceV1Port::open(wire::general_services_qp, 1, tap);
  if (!port) return port.error();
  auto neighbours = Neighbours::open();
  if (!neighbours) return neighbours.error();
  return std::unique_ptr<RoceV1Network>(
      new RoceV1Network(std::move(*port), std::move(*neighbours)));
}

// --- ways ---

void RoceV1Network::learn(std::uint32_t interface_index, const Gid& gid,
                          const wire::MacAddress& mac) {
  if (port_->neighbour_count() >= neighbours_max) port_->forget_neighbours();
  port_->set_neighbour(interface_index, gid, mac);
}

bool RoceV1Network::is_known(std::uint32_t interface_index, const Gid& remote) {
  if (port_->is_own(remote)) return true;
  const auto mac = neighbours_.look_up(interface_index, remote);
  if (mac) learn(interface_index, remote, *mac);
  return mac.has_value();
}

std::optional<int> RoceV1Network::find_way(Asker asker, const Gid& local, const Gid& remote) {
  const auto interface_index = port_->interface_of(local);
  if (!interface_index) return EADDRNOTAVAIL;
  if (is_known(*interface_index, remote)) return 0;
  if (questions_.size() >= questions_max) return ENOBUFS;
  if (const int error = Neighbours::ask(*interface_index, local, remote); error != 0) return error;
  questions_.push_back({asker, *interface_index, remote, Clock::now() + patience});
  return std::nullopt;
}

std::vector<RoceV1Network::Answer> RoceV1Network::take_answers() {
  std::vector<Answer> answers;
  for (const Neighbour& neighbour : watch_.take()) {
    std::erase_if(questions_, [&](const Question& question) {
      const bool is_answered =
          question.interface_index == neighbour.interface_index && question.remote == neighbour.gid;
      if (!is_answered) return false;
      learn(neighbour.interface_index, neighbour.gid, neighbour.mac);
      answers.push_back({question.asker, 0});
      return true;
    });
  }
  // The kernel may have had more to tell than the socket holds (netlink(7), ENOBUFS).
  const auto now = Clock::now();
  std::erase_if(questions_, [&](const Question& question) {
    if (now < question.due) return false;
    const bool is_there = is_known(question.interface_index, question.remote);
    answers.push_back({question.asker, is_there ? 0 : EHOSTUNREACH});
    return true;
  });
  return answers;
}

RoceV1Network::Clock::time_point RoceV1Network::next_deadline() const {
  return questions_.empty() ? Clock::time_point::max() : questions_.front().due;
}

// --- datagrams ---

void RoceV1Network::send(const management::cm::Outgoing& datagram) {
  const management::cm::Route& route = datagram.route;
  const auto interface_index = port_->interface_of(route.local);
  if (!interface_index) return;
  if (!port_->knows(*interface_index, route.remote) && !is_known(*interface_index, route.remote)) {
    // The manager sends again, and by then the kernel may know.
    static_cast<void>(Neighbours::ask(*interface_index, route.local, route.remote));
    return;
  }
  device::Datagram frame;
  frame.framing = &port::roce_v1;
  frame.path = wire::EthernetPath{.global = {.source = route.local,
                                             .destination = route.remote,
                                             .traffic_class = route.traffic_class}};
  frame.packet = management_packet(psn_++);
  frame.pieces[0] = datagram.bytes;
  frame.piece_count = 1;
  port_->add(frame);
  // A frame that the interface has no room for is lost, as on any network.
  if (port_->send() != RoceV1Port::Sent::all) port_->drop_unsent();
}

bool RoceV1Network::receive(const ConnectionNetwork::Handle& handle) {
  for (int i = 0; i < calls_in_a_turn; ++i) {
    const int count = port_->receive([&](port::Arrival& arrival, std::span<const std::byte> frame) {
      wire::Packet packet;
      std::span<const std::byte> payload;
      const auto verdict = port::roce_v1.decode(frame, arrival, packet, payload);
      if (verdict != port::Verdict::ok || !is_management(packet)) return;
      const auto& path = std::get<wire::EthernetPath>(arrival.path);
      const auto interface_index = port_->interface_of(path.global.destination);
      if (!interface_index) return;  // a group's
      // The answer goes back to where the question came from.
      if (!port_->is_own(path.global.source)) {
        learn(*interface_index, path.global.source, path.source);
      }
      management::cm::Route route;
      route.local = path.global.destination;
      route.remote = path.global.source;
      route.traffic_class = static_cast<std::uint8_t>(path.global.traffic_class & ~wire::ecn_mask);
      route.is_roce_v1 = true;
      handle(route, payload);
    });
    if (count < RoceV1Port::frames_max) return true;
  }
  return false;
}

}  // namespace tulle::live
