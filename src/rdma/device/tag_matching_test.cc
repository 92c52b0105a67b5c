// Tests of the operations of applications on the tag lists of shared receive queues.

#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "rdma/device/adapter.h"

namespace tulle::device {
namespace {

using verbs::CompletionOpcode;
using verbs::CompletionStatus;
using verbs::TagFlag;
using verbs::TagOperation;
using verbs::VerbsStatus;

class TagOperations : public ::testing::Test {
 protected:
  TagOperations() : adapter({}) {
    pd = objects.create_pd(status);
    cq = objects.create_cq(16, nullptr, status);
    srq = objects.create_tag_srq(*pd, *cq, 8, 1, 4, nullptr, status);
  }
  TagOperation operation(TagOperation::Kind kind, std::uint64_t wr_id) const {
    TagOperation out;
    out.kind = kind;
    out.signaled = true;
    out.wr_id = wr_id;
    out.request = {wr_id + 100, wr_id, ~std::uint64_t{0}, {}};
    return out;
  }
  std::optional<verbs::Completion> completion() {
    verbs::Completion out;
    return cq->poll({&out, 1}) == 1 ? std::optional(out) : std::nullopt;
  }

  Adapter adapter;
  Objects& objects = adapter.objects();
  VerbsStatus status{};
  verbs::ProtectionDomain* pd = nullptr;
  verbs::CompletionQueue* cq = nullptr;
  verbs::SharedReceiveQueue* srq = nullptr;
};

TEST_F(TagOperations, EachIsToldByItsName) {
  ASSERT_NE(srq, nullptr);
  TagOperation add = operation(TagOperation::Kind::add, 1);
  ASSERT_EQ(objects.operate(*srq, add), VerbsStatus::ok);
  auto done = completion();
  ASSERT_TRUE(done);
  EXPECT_EQ(done->wr_id, 1u);
  EXPECT_EQ(done->opcode, CompletionOpcode::tag_add);
  EXPECT_EQ(done->status, CompletionStatus::success);
  EXPECT_FALSE(done->has(TagFlag::behind));
  EXPECT_EQ(srq->tags->size(), 1u);

  TagOperation remove = operation(TagOperation::Kind::remove, 2);
  remove.handle = add.handle;
  for (const auto expected : {CompletionStatus::success, CompletionStatus::tag_error}) {
    ASSERT_EQ(objects.operate(*srq, remove), VerbsStatus::ok);
    done = completion();
    ASSERT_TRUE(done);
    EXPECT_EQ(done->opcode, CompletionOpcode::tag_remove);
    EXPECT_EQ(done->status, expected);
    EXPECT_EQ(srq->tags->size(), 0u);
  }

  TagOperation quiet = operation(TagOperation::Kind::synchronize, 3);
  ASSERT_EQ(objects.operate(*srq, quiet), VerbsStatus::ok);
  EXPECT_EQ(completion()->opcode, CompletionOpcode::tag_synchronize);
  quiet.signaled = false;
  ASSERT_EQ(objects.operate(*srq, quiet), VerbsStatus::ok);
  EXPECT_FALSE(completion());
}

// A request that comes while the application is behind may be meant for a message that it has not
// looked at. It can be matched once the application's count is that of the device.
TEST_F(TagOperations, AnApplicationThatIsBehindIsToldSoAndCatchesUp) {
  ASSERT_NE(srq, nullptr);
  srq->tags->count_unexpected();
  TagOperation add = operation(TagOperation::Kind::add, 1);
  ASSERT_EQ(objects.operate(*srq, add), VerbsStatus::ok);
  EXPECT_TRUE(completion()->has(TagFlag::behind));
  verbs::Receive receive;
  EXPECT_FALSE(srq->tags->match(1, receive));
  TagOperation count = operation(TagOperation::Kind::synchronize, 2);
  count.unexpected = 1;
  ASSERT_EQ(objects.operate(*srq, count), VerbsStatus::ok);
  EXPECT_TRUE(completion()->has(TagFlag::behind)) << "it has no count";
  count.has_count = true;
  ASSERT_EQ(objects.operate(*srq, count), VerbsStatus::ok);
  EXPECT_FALSE(completion()->has(TagFlag::behind));
  EXPECT_TRUE(srq->tags->match(1, receive));
  EXPECT_EQ(receive.wr_id, 101u);
}

TEST_F(TagOperations, WhatIsRefused) {
  for (const std::uint32_t tags : {0u, Limits{}.tags + 1}) {
    EXPECT_EQ(objects.create_tag_srq(*pd, *cq, 8, 1, tags, nullptr, status), nullptr);
    EXPECT_EQ(status, VerbsStatus::invalid_argument);
  }
  transport::QueuePairInit init;
  init.type = verbs::QpType::uc;
  init.pd = pd;
  init.send_cq = init.receive_cq = cq;
  init.srq = srq;
  EXPECT_EQ(adapter.create_qp(init, status), nullptr) << "UC matches no tags";
  EXPECT_EQ(status, VerbsStatus::invalid_argument);
  auto* ordinary = objects.create_srq(*pd, 8, 1, nullptr, status);
  ASSERT_NE(ordinary, nullptr);
  TagOperation add = operation(TagOperation::Kind::add, 1);
  EXPECT_EQ(objects.operate(*ordinary, add), VerbsStatus::invalid_argument);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(objects.operate(*srq, add), VerbsStatus::ok);
  EXPECT_EQ(objects.operate(*srq, add), VerbsStatus::out_of_memory);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(completion());
  EXPECT_FALSE(completion()) << "what was refused is not told";
}

// The queue's completions come to its completion queue, which it keeps.
TEST_F(TagOperations, TheCompletionQueueIsBusyAsLongAsTheQueueIsThere) {
  EXPECT_EQ(objects.destroy(cq), VerbsStatus::busy);
  EXPECT_EQ(objects.destroy(srq), VerbsStatus::ok);
  EXPECT_EQ(objects.destroy(cq), VerbsStatus::ok);
}

}  // namespace
}  // namespace tulle::device
