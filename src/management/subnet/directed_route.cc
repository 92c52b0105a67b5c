#include "management/subnet/directed_route.h"

#include "management/subnet/header.h"
#include "rdma/wire/smp.h"

namespace tulle::management::subnet {
namespace {

using Kind = RouteStep::Kind;

std::uint8_t port_at(Request packet, std::size_t path, unsigned hop) {
  return std::to_integer<std::uint8_t>(packet[path + hop]);
}

void set_hop_pointer(Answer packet, unsigned pointer) {
  wire::MadHeader header = header_of(packet);
  header.class_specific =
      static_cast<std::uint16_t>(pointer << 8 | wire::hop_count_of(header.class_specific));
  std::memcpy(packet.data(), &header, sizeof header);
}

// A route that names a port which the node does not have leads nowhere.
RouteStep leave_by(std::uint8_t port, std::uint8_t ports) {
  if (port == 0 || port > ports) return {};
  return {Kind::on, port};
}

RouteStep step_out(Answer packet, bool is_switch, std::uint8_t in_port, std::uint8_t ports,
                   unsigned pointer, unsigned count) {
  if (pointer == 0) {
    // Here the directed part begins: at the sender, or at the switch to which a LID led.
    if (count == 0) return {Kind::here, 0};
    if (in_port != 0 && !is_switch) return {};
    set_hop_pointer(packet, 1);
    return leave_by(port_at(packet, wire::initial_path_offset, 1), ports);
  }
  // A packet whose directed part is over came by its LID.
  if (pointer == count + 1) return {Kind::here, 0};
  if (in_port == 0 || pointer > count) return {};
  packet[wire::return_path_offset + pointer] = std::byte{in_port};
  if (pointer < count) {
    if (!is_switch) return {};
    set_hop_pointer(packet, pointer + 1);
    return leave_by(port_at(packet, wire::initial_path_offset, pointer + 1), ports);
  }
  set_hop_pointer(packet, pointer + 1);
  const bool ends_here = subnet_header_of(packet).directed_destination == wire::permissive_lid;
  return {ends_here ? Kind::here : Kind::by_lid, 0};
}

RouteStep step_back(Answer packet, bool is_switch, std::uint8_t in_port, std::uint8_t ports,
                    unsigned pointer, unsigned count) {
  // The requester: the way back is over, or there was none.
  if (pointer == 0) return {Kind::here, 0};
  // The node that answers finds the pointer one past the count.
  if (pointer > count + 1) return {};
  set_hop_pointer(packet, pointer - 1);
  if (pointer == 1) {
    const bool ends_here = subnet_header_of(packet).directed_source == wire::permissive_lid;
    return {ends_here ? Kind::here : Kind::by_lid, 0};
  }
  if (in_port != 0 && !is_switch) return {};
  return leave_by(port_at(packet, wire::return_path_offset, pointer - 1), ports);
}

}  // namespace

RouteStep take_step(Answer packet, bool is_switch, std::uint8_t in_port, std::uint8_t ports) {
  const wire::MadHeader header = header_of(packet);
  const unsigned pointer = wire::hop_pointer_of(header.class_specific);
  const unsigned count = wire::hop_count_of(header.class_specific);
  if (count > wire::hops_max) return {};
  return is_returning(packet) ? step_back(packet, is_switch, in_port, ports, pointer, count)
                              : step_out(packet, is_switch, in_port, ports, pointer, count);
}

std::uint16_t lid_after_route(Request packet) {
  const wire::SubnetHeader header = subnet_header_of(packet);
  return is_returning(packet) ? header.directed_source : header.directed_destination;
}

bool begins_by_lid(Request packet) {
  const wire::MadHeader header = header_of(packet);
  return !is_returning(packet) && wire::hop_pointer_of(header.class_specific) == 0 &&
         subnet_header_of(packet).directed_source != wire::permissive_lid;
}

bool is_returning(Request packet) {
  return (header_of(packet).status & wire::directed_route_returns) != 0;
}

}  // namespace tulle::management::subnet
