#include "management/subnet/agent.h"

#include <algorithm>
#include <array>

#include "rdma/wire/smp.h"

namespace tulle::management::subnet {
namespace {

constexpr std::uint8_t port = 1;
// IBTA 14.2.5.6: LinkWidth 2 is 4x. LinkSpeed 1 is 2.5 Gb/s, the least that can be reported next to
// the extended speeds. LinkSpeedExt 2 is 25.78125 Gb/s.
constexpr std::uint8_t width_4x = 2;
constexpr std::uint8_t speed_sdr = 1;
constexpr std::uint8_t extended_speed_edr = 2;
constexpr std::uint8_t one_virtual_lane = 1;

wire::NodeInfo node_info(const Identity& identity) {
  wire::NodeInfo out;
  out.system_image_guid = identity.node_guid;
  out.node_guid = identity.node_guid;
  out.port_guid = identity.port_guid;
  out.partitions = 1;
  out.device_id = identity.device_id;
  out.revision = identity.revision;
  out.local_port = port;
  out.vendor_id = identity.vendor_id;
  return out;
}

wire::PortInfo port_info(const Identity& identity) {
  wire::PortInfo out;
  out.gid_prefix = identity.gid_prefix;
  out.local_port = port;
  out.link_width_enabled = out.link_width_supported = out.link_width_active = width_4x;
  out.speed_supported_and_state = wire::halves(speed_sdr, identity.state);
  out.physical_state_and_down_default = wire::halves(identity.physical_state, 0);
  out.speed_active_and_enabled = wire::halves(speed_sdr, speed_sdr);
  out.neighbor_mtu_and_master_sm_sl = wire::halves(identity.mtu_code, 0);
  out.virtual_lanes_and_init_type = wire::halves(one_virtual_lane, 0);
  out.init_type_reply_and_mtu = wire::halves(0, identity.mtu_code);
  out.operational_lanes_and_enforcement = wire::halves(one_virtual_lane, 0);
  out.guids = 1;
  out.extended_speed_active_and_supported = wire::halves(extended_speed_edr, extended_speed_edr);
  out.extended_speed_enabled = extended_speed_edr;
  return out;
}

std::array<char, wire::subnet_data_bytes> description(const Identity& identity) {
  std::array<char, wire::subnet_data_bytes> out{};
  std::copy_n(identity.description.begin(), std::min(identity.description.size(), out.size()),
              out.begin());
  return out;
}

bool is_known(std::uint16_t attribute) {
  return attribute == wire::attribute_node_description || attribute == wire::attribute_node_info ||
         attribute == wire::attribute_port_info;
}

Status check(const wire::MadHeader& header) {
  if (header.base_version != wire::MadHeader::current_base_version ||
      header.class_version != wire::subnet_class_version) {
    return Status::bad_version;
  }
  if (!is_known(header.attribute_id) || header.method == method_set) {
    return Status::attribute_not_supported;
  }
  // IBTA 14.2.5.6: the modifier selects the port; 0 means the port that received the request.
  const bool another_port =
      header.attribute_id == wire::attribute_port_info && header.attribute_modifier > port;
  return another_port ? Status::invalid_value : Status::ok;
}

}  // namespace

bool stays_here(Request request) {
  const wire::MadHeader header = header_of(request);
  return header.management_class == wire::subnet_class ||
         wire::hop_count_of(header.class_specific) == 0;
}

bool answer(Request request, const Identity& identity, Answer answer) {
  const wire::MadHeader header = header_of(request);
  if (!asks(header) || !stays_here(request)) return false;
  const bool is_directed = header.management_class == wire::subnet_directed_class;
  const Status status = check(header);
  begin_answer(request, status, is_directed ? wire::directed_route_returns : 0, answer);
  if (status != Status::ok) return true;
  constexpr std::size_t at = wire::subnet_data_offset;
  std::fill_n(answer.begin() + at, wire::subnet_data_bytes, std::byte{0});
  switch (header.attribute_id) {
    case wire::attribute_node_info:
      put_attribute(node_info(identity), at, answer);
      break;
    case wire::attribute_port_info:
      put_attribute(port_info(identity), at, answer);
      break;
    default:
      put_attribute(description(identity), at, answer);
      break;
  }
  return true;
}

}  // namespace tulle::management::subnet
