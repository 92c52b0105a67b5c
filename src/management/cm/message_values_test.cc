#include "management/cm/message_values.h"

#include <gtest/gtest.h>

#include <tuple>

#include "management/cm/manager_pair_test.h"

namespace tulle::management::cm {
namespace {

class MessageValues : public testing::ManagerPair {};

TEST_F(MessageValues, ARequestArrivesAsItWasSent) {
  for (const Service service : {Service::rc, Service::uc, Service::xrc}) {
    Request sent = request();
    sent.service = service;
    sent.flow_control = true;
    sent.srq = true;
    sent.hop_limit = 7;
    sent.flow_label = 0xA'BCDE;
    sent.lids = {3, 4, 5};
    const Route back{sent.route.remote, sent.route.local, 0};
    const Request received = request_of(message_of(sent), back);
    EXPECT_EQ(received.route, back);
    EXPECT_EQ(received.service, service);
    const auto values = [](const Request& of) {
      return std::tuple(of.service_id, of.qp, of.starting_psn, of.responder_resources,
                        of.initiator_depth, of.flow_control, of.srq, of.retry_count,
                        of.rnr_retry_count, of.pkey, of.path_mtu, of.packet_lifetime,
                        of.ack_timeout, of.hop_limit, of.flow_label);
    };
    EXPECT_EQ(values(received), values(sent));
    EXPECT_EQ(received.lids.local, sent.lids.remote);
    EXPECT_EQ(received.lids.remote, sent.lids.local);
    EXPECT_EQ(received.lids.service_level, sent.lids.service_level);
    EXPECT_EQ(received.private_data.size, 92u);
    EXPECT_EQ(received.private_data.bytes, sent.private_data.bytes);
  }
}

TEST_F(MessageValues, AReplyArrivesAsItWasSent) {
  Reply sent = reply();
  sent.flow_control = true;
  sent.srq = true;
  const Reply received = reply_of(message_of(sent));
  const auto values = [](const Reply& of) {
    return std::tuple(of.qp, of.starting_psn, of.responder_resources, of.initiator_depth,
                      of.flow_control, of.srq, of.rnr_retry_count, of.target_ack_delay);
  };
  EXPECT_EQ(values(received), values(sent));
  EXPECT_EQ(received.private_data.bytes, sent.private_data.bytes);
}

}  // namespace
}  // namespace tulle::management::cm
