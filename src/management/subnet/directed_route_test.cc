#include "management/subnet/directed_route.h"

#include <gtest/gtest.h>

#include <vector>

#include "management/mad_test.h"
#include "rdma/wire/smp.h"

namespace tulle::management::subnet {
namespace {

using Kind = RouteStep::Kind;

constexpr bool is_switch = true;
constexpr std::uint8_t ports = 4;

// A packet whose route leaves by these ports.
Mad routed(const std::vector<std::uint8_t>& route, std::uint16_t source = wire::permissive_lid,
           std::uint16_t destination = wire::permissive_lid) {
  Mad mad = request_of(wire::subnet_directed_class, method_get, wire::attribute_node_info);
  wire::MadHeader header = header_of(mad);
  header.class_specific = static_cast<std::uint16_t>(route.size());
  set_header(mad, header);
  wire::SubnetHeader subnet;
  subnet.directed_source = source;
  subnet.directed_destination = destination;
  put_attribute(subnet, wire::subnet_header_offset, mad);
  for (std::size_t i = 0; i < route.size(); ++i) {
    mad[wire::initial_path_offset + i + 1] = std::byte{route[i]};
  }
  return mad;
}

void turn_back(Mad& mad) {
  wire::MadHeader header = header_of(mad);
  header.status = wire::directed_route_returns;
  set_header(mad, header);
}

unsigned pointer_of(const Mad& mad) { return wire::hop_pointer_of(header_of(mad).class_specific); }

TEST(DirectedRoute, GoesOutAndComesBack) {
  Mad mad = routed({1, 3, 2});
  EXPECT_EQ(take_step(mad, false, 0, 1), (RouteStep{Kind::on, 1}));
  EXPECT_EQ(take_step(mad, is_switch, 2, ports), (RouteStep{Kind::on, 3}));
  EXPECT_EQ(take_step(mad, is_switch, 4, ports), (RouteStep{Kind::on, 2}));
  EXPECT_EQ(take_step(mad, false, 1, 1), (RouteStep{Kind::here, 0}));
  EXPECT_EQ(pointer_of(mad), 4u);
  turn_back(mad);
  EXPECT_EQ(take_step(mad, false, 0, 1), (RouteStep{Kind::on, 1}));
  EXPECT_EQ(take_step(mad, is_switch, 2, ports), (RouteStep{Kind::on, 4}));
  EXPECT_EQ(take_step(mad, is_switch, 3, ports), (RouteStep{Kind::on, 2}));
  EXPECT_EQ(take_step(mad, false, 1, 1), (RouteStep{Kind::here, 0}));
  EXPECT_EQ(pointer_of(mad), 0u);
}

TEST(DirectedRoute, WithoutHopsStaysAtTheSender) {
  Mad mad = routed({});
  EXPECT_EQ(take_step(mad, false, 0, 1), (RouteStep{Kind::here, 0}));
  turn_back(mad);
  EXPECT_EQ(take_step(mad, false, 0, 1), (RouteStep{Kind::here, 0}));
}

TEST(DirectedRoute, IsNotForwardedByAnAdapter) {
  Mad mad = routed({1, 1});
  EXPECT_EQ(take_step(mad, false, 0, 1).kind, Kind::on);
  EXPECT_EQ(take_step(mad, false, 1, 1).kind, Kind::discard);
}

TEST(DirectedRoute, EndsAtPortsThatAreNotThere) {
  for (const std::uint8_t port : {std::uint8_t{0}, std::uint8_t{ports + 1}, std::uint8_t{255}}) {
    Mad mad = routed({port});
    EXPECT_EQ(take_step(mad, is_switch, 0, ports).kind, Kind::discard) << unsigned{port};
  }
}

// IBTA 14.2.2: a route may have a part by LID before and behind its directed part.
TEST(DirectedRoute, BeginsAndEndsByLid) {
  Mad mad = routed({3}, 7, 9);
  EXPECT_EQ(take_step(mad, is_switch, 1, ports), (RouteStep{Kind::on, 3}));
  EXPECT_EQ(take_step(mad, is_switch, 2, ports), (RouteStep{Kind::by_lid, 0}));
  EXPECT_EQ(lid_after_route(mad), 9);
  EXPECT_EQ(take_step(mad, false, 1, 1), (RouteStep{Kind::here, 0}));
  turn_back(mad);
  EXPECT_EQ(lid_after_route(mad), 7);
}

TEST(DirectedRoute, RefusesPointersBeyondTheRoute) {
  for (const unsigned pointer : {2u, 3u, 64u, 255u}) {
    for (const bool returns : {false, true}) {
      Mad mad = routed({1});
      wire::MadHeader header = header_of(mad);
      header.class_specific = static_cast<std::uint16_t>(pointer << 8 | 1);
      set_header(mad, header);
      if (returns) turn_back(mad);
      if (pointer == 2 && !returns) continue;  // it came by its LID, and ends here
      if (pointer == 2) continue;              // the node that answers
      EXPECT_EQ(take_step(mad, is_switch, 1, ports).kind, Kind::discard) << pointer << returns;
    }
  }
  Mad mad = routed({1});
  wire::MadHeader header = header_of(mad);
  header.class_specific = 64;  // hops, one more than a path has
  set_header(mad, header);
  EXPECT_EQ(take_step(mad, is_switch, 0, ports).kind, Kind::discard);
}

}  // namespace
}  // namespace tulle::management::subnet
