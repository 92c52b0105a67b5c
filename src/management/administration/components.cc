#include "management/administration/components.h"

#include <array>

#include "rdma/wire/sa.h"

namespace tulle::management::administration {
namespace {

constexpr Component at(unsigned byte, unsigned bits, unsigned bit = 0) {
  return {static_cast<std::uint16_t>(byte * 8 + bit), static_cast<std::uint16_t>(bits)};
}

// IBTA 15.2.5.2 to 15.2.5.17, each table in the order of its mask.
constexpr std::array node_components = {
    at(0, 16),  at(2, 16),  at(4, 8),   at(5, 8),   at(6, 8),  at(7, 8),   at(8, 64),   at(16, 64),
    at(24, 64), at(32, 16), at(34, 16), at(36, 32), at(40, 8), at(41, 24), at(44, 512),
};
constexpr std::array port_info_components = {
    at(0, 16),    at(2, 8),     at(3, 8),     at(4, 64),    at(12, 64),   at(20, 16),
    at(22, 16),   at(24, 32),   at(28, 16),   at(30, 16),   at(32, 8),    at(33, 8),
    at(34, 8),    at(35, 8),    at(36, 4),    at(36, 4, 4), at(37, 4),    at(37, 4, 4),
    at(38, 2),    at(38, 3, 5), at(39, 4),    at(39, 4, 4), at(40, 4),    at(40, 4, 4),
    at(41, 4),    at(41, 4, 4), at(42, 8),    at(43, 8),    at(44, 8),    at(45, 4),
    at(45, 4, 4), at(46, 3),    at(46, 5, 3), at(47, 4),    at(47, 1, 4), at(47, 1, 5),
    at(47, 1, 6), at(47, 1, 7), at(48, 16),   at(50, 16),   at(52, 16),   at(54, 8),
};
constexpr std::array switch_info_components = {
    at(0, 16),  at(2, 16), at(4, 16), at(6, 16), at(8, 16),
    at(10, 16), at(12, 8), at(13, 8), at(14, 8),
};
constexpr std::array linear_table_components = {at(0, 16), at(2, 16)};
constexpr std::array sm_info_components = {at(0, 16),  at(2, 16), at(4, 64),   at(12, 64),
                                           at(20, 32), at(24, 4), at(24, 4, 4)};
constexpr std::array link_components = {at(0, 16), at(2, 8), at(3, 8), at(4, 16)};
// The components of a service's data, behind the name, are not told apart.
constexpr std::array service_components = {at(0, 64),  at(8, 128),  at(24, 16), at(26, 16),
                                           at(28, 32), at(32, 128), at(48, 512)};
constexpr std::array member_components = {
    at(0, 128), at(16, 128),   at(32, 32), at(36, 16), at(38, 0), at(38, 0),
    at(39, 8),  at(40, 16),    at(42, 0),  at(42, 0),  at(43, 0), at(43, 0),
    at(44, 4),  at(44, 20, 4), at(47, 8),  at(48, 4),  at(48, 0), at(49, 1),
};

bool is_same(const Component& component, std::span<const std::byte> a,
             std::span<const std::byte> b) {
  for (unsigned bit = component.offset; bit < component.offset + component.bits;) {
    const std::size_t byte = bit / 8;
    if (byte >= a.size() || byte >= b.size()) return true;
    const unsigned first = bit % 8;
    const unsigned count = component.offset + component.bits - bit;
    const unsigned here = count < 8 - first ? count : 8 - first;
    const unsigned mask = (0xFFu >> first) & (0xFFu << (8 - first - here));
    if ((std::to_integer<unsigned>(a[byte] ^ b[byte]) & mask) != 0) return false;
    bit += here;
  }
  return true;
}

}  // namespace

std::span<const Component> components_of(std::uint16_t attribute) {
  switch (attribute) {
    case wire::attribute_node_record:
      return node_components;
    case wire::attribute_port_info_record:
      return port_info_components;
    case wire::attribute_switch_info_record:
      return switch_info_components;
    case wire::attribute_linear_table_record:
      return linear_table_components;
    case wire::attribute_sm_info_record:
      return sm_info_components;
    case wire::attribute_link_record:
      return link_components;
    case wire::attribute_service_record:
      return service_components;
    case wire::attribute_member_record:
      return member_components;
    default:
      return {};
  }
}

bool matches(std::span<const Component> components, std::uint64_t mask,
             std::span<const std::byte> question, std::span<const std::byte> record) {
  for (std::size_t bit = 0; bit < components.size() && bit < 64; ++bit) {
    const bool counts = (mask >> bit & 1) != 0;
    if (counts && !is_same(components[bit], question, record)) return false;
  }
  return true;
}

}  // namespace tulle::management::administration
