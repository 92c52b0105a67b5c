#include "live/connections/endpoint.h"

#include <gtest/gtest.h>

namespace tulle::live {
namespace {

TEST(EndpointTest, TheAckTimeoutIsAboutTheSumOfBothTimes) {
  EXPECT_EQ(ack_timeout_for(14, 0), 15);
  EXPECT_EQ(ack_timeout_for(14, 14), 16);
  EXPECT_EQ(ack_timeout_for(14, 20), 21);
  EXPECT_EQ(ack_timeout_for(31, 31), 31);
}

TEST(EndpointTest, WithinASubnetOfInfiniBandALidIsEnough) {
  Endpoint endpoint;
  EXPECT_TRUE(path_of(endpoint).is_global);
  EXPECT_EQ(path_of(endpoint).hop_limit, roce_hop_limit);
  endpoint.route.remote_lid = 3;
  EXPECT_FALSE(path_of(endpoint).is_global);
  EXPECT_EQ(path_of(endpoint).hop_limit, 0);
  EXPECT_EQ(route_of(endpoint).remote_lid, 3);
}

TEST(EndpointTest, AQueuePairIsReadyOnceThePeerIsKnown) {
  Endpoint endpoint;
  endpoint.space = PortSpace::tcp;
  endpoint.state = Endpoint::State::connecting;
  EXPECT_NE(attributes_of(endpoint).init.mask, 0u);
  EXPECT_EQ(attributes_of(endpoint).ready_to_receive.mask, 0u);
  endpoint.state = Endpoint::State::answered;
  const auto reliable = attributes_of(endpoint);
  EXPECT_NE(reliable.ready_to_send.mask & qp_attribute::retry_count, 0u);
  endpoint.qp_type = ConnectionQpType::uc;
  const auto unreliable = attributes_of(endpoint);
  EXPECT_NE(unreliable.ready_to_send.mask, 0u);
  EXPECT_EQ(unreliable.ready_to_send.mask & qp_attribute::retry_count, 0u);
}

TEST(EndpointTest, DatagramsHaveAKeyFromTheStart) {
  Endpoint endpoint;
  endpoint.space = PortSpace::udp;
  EXPECT_EQ(attributes_of(endpoint).ready_to_send.qkey, Endpoint::default_qkey);
  endpoint.qkey = 9;
  EXPECT_EQ(attributes_of(endpoint).ready_to_send.qkey, 9u);
}

}  // namespace
}  // namespace tulle::live
