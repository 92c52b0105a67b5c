#include "live/connections/endpoint_table.h"

#include <gtest/gtest.h>

namespace tulle::live {
namespace {

using management::cm::ConnectionId;

class EndpointTableTest : public testing::Test {
 protected:
  Endpoint& create(ChannelNumber channel) {
    return table_.create(channel, PortSpace::tcp, ConnectionQpType::rc);
  }

  EndpointTable table_{RandomSource(1)};
};

TEST_F(EndpointTableTest, AProgramFindsTheEndpointsOfItsChannelAlone) {
  Endpoint& endpoint = create(1);
  EXPECT_EQ(table_.find(1, endpoint.id), &endpoint);
  EXPECT_EQ(table_.find(2, endpoint.id), nullptr);
  EXPECT_EQ(table_.find(endpoint.id), &endpoint);
}

TEST_F(EndpointTableTest, AnErasedEndpointIsNotFound) {
  const EndpointId id = create(1).id;
  EXPECT_NE(create(1).id, id);
  table_.erase(id);
  EXPECT_EQ(table_.find(1, id), nullptr);
  EXPECT_NE(create(1).id, id);
  EXPECT_EQ(table_.all().size(), 2u);
}

TEST_F(EndpointTableTest, AConnectionFindsItsEndpointUntilItIsForgotten) {
  Endpoint& endpoint = create(1);
  EXPECT_EQ(table_.find(ConnectionId{5}), nullptr);
  table_.set_connection(endpoint, ConnectionId{5});
  EXPECT_EQ(table_.find(ConnectionId{5}), &endpoint);
  table_.forget_connection(endpoint);
  EXPECT_EQ(table_.find(ConnectionId{5}), nullptr);
  EXPECT_EQ(endpoint.connection, ConnectionId{});
}

TEST_F(EndpointTableTest, EndpointsAreFoundByTheirQueuePairs) {
  Endpoint& first = create(1);
  Endpoint& second = create(2);
  Endpoint& third = create(1);
  table_.set_queue_pair(first, QpNumber{100});
  table_.set_queue_pair(second, QpNumber{0});
  table_.set_queue_pair(third, QpNumber{109});
  EXPECT_EQ(table_.with_queue_pairs({100, 10}), (std::vector{first.id, third.id}));
  EXPECT_TRUE(table_.with_queue_pairs({101, 8}).empty());
  EXPECT_TRUE(table_.with_queue_pairs({0, 10}).empty()) << "0 is nobody's";
  table_.set_queue_pair(first, QpNumber{200});
  table_.erase(third.id);
  EXPECT_TRUE(table_.with_queue_pairs({100, 10}).empty());
  EXPECT_EQ(table_.with_queue_pairs({200, 1}), std::vector{first.id});
}

}  // namespace
}  // namespace tulle::live
