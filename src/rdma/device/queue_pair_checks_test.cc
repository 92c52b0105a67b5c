#include "rdma/device/queue_pair_checks.h"

#include <gtest/gtest.h>

#include "rdma/verbs/completion_queue.h"
#include "rdma/verbs/protection_domain.h"

namespace tulle::device {
namespace {

using verbs::QpAttribute;
using verbs::QpAttributeMask;

class QueuePairChecks : public testing::Test {
 protected:
  QueuePairChecks() {
    init.pd = &pd;
    init.send_cq = init.receive_cq = &cq;
    init.send_work_requests = limits.work_requests;
  }
  bool may_create(verbs::QpType type) const {
    return device::may_create(*transport::TransportTable::standard().find(type), init, limits);
  }

  verbs::ProtectionDomain pd;
  verbs::CompletionEvents events;
  verbs::CompletionQueue cq{16, events, nullptr};
  Limits limits;
  transport::QueuePairInit init;
};

TEST_F(QueuePairChecks, NamesTheObjectsOfItsTransport) {
  EXPECT_TRUE(may_create(verbs::QpType::rc));
  EXPECT_FALSE(may_create(verbs::QpType::xrc_target));
  init.receive_cq = nullptr;
  EXPECT_FALSE(may_create(verbs::QpType::rc));
  EXPECT_TRUE(may_create(verbs::QpType::xrc_initiator));
  init.pd = nullptr;
  EXPECT_FALSE(may_create(verbs::QpType::xrc_initiator));
}

TEST_F(QueuePairChecks, IsWithinTheLimits) {
  ++init.send_work_requests;
  EXPECT_FALSE(may_create(verbs::QpType::rc));
  --init.send_work_requests;
  init.send_sges = limits.sges + 1;
  EXPECT_FALSE(may_create(verbs::QpType::rc));
}

TEST_F(QueuePairChecks, AttributesAreThoseInTheMask) {
  Configuration configuration;
  configuration.mtu_bytes = 1'024;
  transport::QueuePairAttributes attributes;
  attributes.path_mtu = verbs::Mtu::b2048;
  EXPECT_FALSE(may_modify(attributes, QpAttributeMask(QpAttribute::path_mtu), configuration));
  EXPECT_TRUE(may_modify(attributes, QpAttributeMask(QpAttribute::state), configuration));
  attributes.path_mtu = verbs::Mtu::b1024;
  EXPECT_TRUE(may_modify(attributes, QpAttributeMask(QpAttribute::path_mtu), configuration));
}

}  // namespace
}  // namespace tulle::device
