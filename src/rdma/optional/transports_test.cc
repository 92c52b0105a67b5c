#include "rdma/optional/transports.h"

#include <gtest/gtest.h>

#include "rdma/device/adapter.h"
#include "rdma/transport/queue_pair.h"

namespace tulle::device {
namespace {

using verbs::QpAttribute;
using verbs::QpType;
using verbs::VerbsStatus;

transport::QueuePairInit init_of(Adapter& adapter, QpType type) {
  VerbsStatus status{};
  transport::QueuePairInit init;
  init.type = type;
  init.pd = adapter.objects().create_pd(status);
  init.send_cq = init.receive_cq = adapter.objects().create_cq(16, nullptr, status);
  init.send_work_requests = init.receive_work_requests = 8;
  init.send_sges = init.receive_sges = 1;
  return init;
}

TEST(AllTransports, AreTheStandardOnesAndThree) {
  const auto& standard = transport::TransportTable::standard();
  const auto& all = transport::all_transports();
  EXPECT_EQ(all.rows().size(), standard.rows().size() + 3);
  for (const QpType type : {QpType::srd, QpType::stream, QpType::iwarp}) {
    EXPECT_EQ(standard.find(type), nullptr);
    EXPECT_NE(all.find(type), nullptr);
  }
}

TEST(AllTransports, AnAdapterHasTheTransportsOfItsTable) {
  Adapter without{Configuration{}};
  VerbsStatus status{};
  EXPECT_EQ(without.create_qp(init_of(without, QpType::srd), status), nullptr);
  EXPECT_EQ(status, VerbsStatus::invalid_argument);
  Configuration configuration;
  configuration.transports = &transport::all_transports();
  Adapter with{configuration};
  EXPECT_NE(with.create_qp(init_of(with, QpType::srd), status), nullptr);
}

// Its packets leave through queue pairs of the adapter's own.
TEST(AllTransports, SrdUsesTheFirstPort) {
  Configuration configuration;
  configuration.transports = &transport::all_transports();
  configuration.ports = 2;
  Adapter adapter{configuration};
  VerbsStatus status{};
  transport::QueuePair* qp = adapter.create_qp(init_of(adapter, QpType::srd), status);
  ASSERT_NE(qp, nullptr);
  transport::QueuePairAttributes to;
  to.state = verbs::QpState::init;
  const verbs::QpAttributeMask mask = verbs::QpAttributeMask(QpAttribute::state) |
                                      QpAttribute::port | QpAttribute::pkey_index |
                                      QpAttribute::qkey;
  to.port = 2;
  EXPECT_EQ(adapter.modify(*qp, to, mask), VerbsStatus::invalid_argument);
  to.port = 1;
  EXPECT_EQ(adapter.modify(*qp, to, mask), VerbsStatus::ok);
}

}  // namespace
}  // namespace tulle::device
