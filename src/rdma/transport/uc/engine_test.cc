#include "rdma/transport/uc/engine.h"

#include <gtest/gtest.h>

#include "rdma/transport/host_test.h"

namespace tulle::transport::uc {
namespace {

using testing::bytes_of;
using testing::first_psn;
using testing::Host;
using testing::mtu;
using testing::Options;
using verbs::CompletionStatus;
using verbs::QpState;
using verbs::SendOpcode;
using wire::Operation;

constexpr std::uint32_t receive_offset = 8'192;

Options uc(bool shared = false) {
  Options options;
  options.type = verbs::QpType::uc;
  options.shared_receives = shared;
  return options;
}

wire::Packet request(Operation operation, std::uint32_t psn_offset) {
  return testing::packet(wire::TransportClass::uc, operation, first_psn + psn_offset);
}
wire::Packet write(const Host& host, Operation operation, std::uint32_t psn_offset,
                   std::uint64_t offset, std::uint32_t bytes) {
  auto out = request(operation, psn_offset);
  out.virtual_address = testing::iova + offset;
  out.rkey = host.region.rkey();
  out.dma_length = bytes;
  return out;
}
std::vector<std::pair<std::uint64_t, CompletionStatus>> done(Host& host) {
  std::vector<std::pair<std::uint64_t, CompletionStatus>> out;
  for (const auto& each : host.completions()) out.emplace_back(each.wr_id, each.status);
  return out;
}
using Done = std::vector<std::pair<std::uint64_t, CompletionStatus>>;

TEST(UcEngine, ARequestIsDoneWhenItsLastPacketHasLeft) {
  Host host(uc());
  host.connect();
  host.post(SendOpcode::send, 2 * mtu + 1);
  host.post(SendOpcode::write_with_immediate, 0);
  const auto first = host.pull(2);
  EXPECT_TRUE(done(host).empty());
  const auto rest = host.pull();
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success}, {1, CompletionStatus::success}}));
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(wire::transport_of(rest[0].packet.opcode), wire::TransportClass::uc);
  EXPECT_EQ(wire::operation_of(rest[0].packet.opcode), Operation::send_last);
  EXPECT_EQ(rest[1].packet.psn, first_psn + 3);
  EXPECT_EQ(wire::operation_of(rest[1].packet.opcode), Operation::write_only_with_immediate);
  EXPECT_FALSE(rest[1].packet.ack_request);
  EXPECT_EQ(host.qp->agenda().deadline, Time::never());
}

TEST(UcEngine, UnsupportedOperations) {
  Host host(uc());
  host.connect();
  for (const auto opcode : {SendOpcode::read, SendOpcode::fetch_add, SendOpcode::compare_swap,
                            SendOpcode::send_with_invalidate}) {
    verbs::SendRequest request;
    request.opcode = opcode;
    EXPECT_EQ(host.try_post(request, 8), verbs::VerbsStatus::invalid_argument);
  }
}

TEST(UcEngine, SendPastExpectedFuture) {
  Host host(uc());
  host.connect();
  for (int i = 0; i < 4; ++i) host.post_receive(600);
  const auto data = bytes_of(mtu);
  host.deliver(request(Operation::send_first, 0), data);
  host.deliver(request(Operation::send_last, 1), data);
  auto completions = host.completions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].byte_length, 2 * mtu);
  // A gap within a message drops the whole message. Its receive request is kept for the next one.
  host.deliver(request(Operation::send_first, 2), data);
  host.deliver(request(Operation::send_last, 4), data);
  EXPECT_EQ(host.counters().dropped_messages, 1u);
  EXPECT_TRUE(host.completions().empty());
  // A gap between messages affects no message.
  host.deliver(request(Operation::send_only, 9), bytes_of(10));
  completions = host.completions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].wr_id, 1'001u);
  EXPECT_EQ(completions[0].byte_length, 10u);
  // A late MIDDLE belongs to no message.
  host.deliver(request(Operation::send_middle, 3), data);
  host.deliver(request(Operation::send_last, 4), data);
  EXPECT_TRUE(host.completions().empty());
  EXPECT_TRUE(host.pull().empty()) << "nobody is told anything";
}

TEST(UcEngine, AMessageThatBeginsInAnother) {
  Host host(uc());
  host.connect();
  host.post_receive(600);
  host.deliver(request(Operation::send_first, 0), bytes_of(mtu));
  host.deliver(request(Operation::send_only, 1), bytes_of(5));
  const auto completions = host.completions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].byte_length, 5u);
  EXPECT_EQ(host.counters().dropped_messages, 1u);
}

TEST(UcEngine, MalformedIsDroppedAndNothingElse) {
  Host host(uc());
  host.connect();
  host.post_receive(100);
  host.deliver(request(Operation::send_first, 0), bytes_of(mtu - 1));
  host.deliver(request(Operation::send_only, 1), bytes_of(mtu + 1));
  host.deliver(request(Operation::send_only, 2), bytes_of(101));  // longer than the receive
  host.deliver(write(host, Operation::write_only, 3, 0, 9), bytes_of(8));
  host.deliver(testing::packet(wire::TransportClass::rc, Operation::send_only, first_psn + 4));
  host.deliver(request(Operation::read_request, 5));
  host.deliver(request(Operation::fetch_add, 6));
  host.deliver(request(Operation::acknowledge, 7));
  EXPECT_TRUE(host.completions().empty());
  EXPECT_EQ(host.qp->state(), QpState::rts);
  host.deliver(request(Operation::send_only, 8), bytes_of(100));
  EXPECT_EQ(done(host), (Done{{1'000, CompletionStatus::success}}));
  EXPECT_EQ(host.memory[receive_offset + 100], Host::pattern(receive_offset + 100));
}

TEST(UcEngine, WritesAreCheckedSilently) {
  Host host(uc());
  host.connect();
  const auto data = bytes_of(8);
  host.deliver(write(host, Operation::write_only, 0, 40, 8), data);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), host.memory.begin() + 40));
  auto bad = write(host, Operation::write_only, 1, 80, 8);
  bad.rkey.value ^= 1;
  host.deliver(bad, data);
  host.deliver(write(host, Operation::write_only, 2, host.memory.size() - 7, 8), data);
  EXPECT_EQ(host.memory[80], Host::pattern(80));
  EXPECT_EQ(host.memory.back(), Host::pattern(host.memory.size() - 1));
  EXPECT_EQ(host.qp->state(), QpState::rts);
  EXPECT_EQ(host.counters().dropped_messages, 2u);
  // Without a receive request the immediate is lost, and its message with it.
  host.deliver(write(host, Operation::write_only_with_immediate, 3, 120, 8), data);
  EXPECT_EQ(host.memory[120], Host::pattern(120));
}

TEST(UcEngine, AReceiveWhoseMemoryIsNotItsOwnEndsIt) {
  Host host(uc());
  host.connect();
  const verbs::Sge bad{testing::iova, 100, LocalKey{host.region.key ^ 1}};
  Host::must(host.qp->post_receive({7, {&bad, 1}}));
  host.post_receive(10);
  host.deliver(request(Operation::send_only, 0), bytes_of(10));
  EXPECT_EQ(done(host), (Done{{7, CompletionStatus::local_protection_error},
                              {1'000, CompletionStatus::flushed}}));
  EXPECT_EQ(host.qp->state(), QpState::error);
}

TEST(UcEngine, ALocalErrorStopsOnlySending) {
  Host host(uc());
  host.connect();
  host.post_receive(10);
  const verbs::Sge bad{testing::iova, 8, LocalKey{host.region.key ^ 1}};
  verbs::SendRequest failing;
  failing.wr_id = 50;
  failing.sges = {&bad, 1};
  host.post(SendOpcode::send, 8);
  Host::must(host.qp->post_send(failing));
  host.post(SendOpcode::send, 8, {});
  EXPECT_EQ(host.pull().size(), 1u);
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success},
                              {50, CompletionStatus::local_protection_error},
                              {1, CompletionStatus::flushed}}));
  EXPECT_EQ(host.qp->state(), QpState::sqe);
  host.post(SendOpcode::send, 8);
  EXPECT_EQ(done(host), (Done{{2, CompletionStatus::flushed}}));
  host.deliver(request(Operation::send_only, 0), bytes_of(10));
  EXPECT_EQ(done(host), (Done{{1'000, CompletionStatus::success}})) << "it still receives";
  Host::must(host.step({}, QpState::rts));
  host.post(SendOpcode::send, 8);
  EXPECT_EQ(host.pull()[0].packet.psn, first_psn + 1);
}

TEST(UcEngine, DrainFinishesTheMessage) {
  Host host(uc());
  host.connect();
  host.post(SendOpcode::send, 2 * mtu);
  host.post(SendOpcode::send, 8);
  host.pull(1);
  QueuePairAttributes to;
  to.sqd_async_notify = true;
  Host::must(host.step(to, QpState::sqd, verbs::QpAttribute::sqd_async_notify));
  EXPECT_TRUE(host.raised().empty());
  EXPECT_EQ(host.pull().size(), 1u);
  EXPECT_EQ(host.raised(), (std::vector{verbs::EventType::send_queue_drained}));
  EXPECT_TRUE(host.pull().empty());
  Host::must(host.step({}, QpState::rts));
  EXPECT_EQ(host.pull().size(), 1u);
}

TEST(UcEngine, BindsWindows) {
  Host host(uc());
  host.connect();
  verbs::MemoryWindow window;
  window.pd = &host.pd;
  window.type = verbs::WindowType::type2;
  host.environment.keys.add(window);
  verbs::SendRequest bind;
  bind.opcode = SendOpcode::bind_window;
  bind.window = &window;
  bind.window_region = &host.region;
  bind.window_address = testing::iova + 16;
  bind.window_length = 64;
  bind.window_access = verbs::Access::remote_write;
  bind.window_rkey = RemoteKey{window.key + 1};
  host.post(bind, 0);
  host.pull();
  EXPECT_EQ(done(host), (Done{{0, CompletionStatus::success}}));
  auto packet = write(host, Operation::write_only, 0, 16, 8);
  packet.rkey = bind.window_rkey;
  host.deliver(packet, bytes_of(8));
  EXPECT_EQ(host.memory[16], bytes_of(1)[0]);
  verbs::SendRequest invalidate;
  invalidate.opcode = SendOpcode::local_invalidate;
  invalidate.invalidate_rkey = bind.window_rkey;
  host.post(invalidate, 0);
  host.post(invalidate, 0);
  host.pull();
  EXPECT_EQ(done(host), (Done{{1, CompletionStatus::success},
                              {2, CompletionStatus::local_qp_operation_error}}));
  EXPECT_EQ(host.qp->state(), QpState::sqe);
}

TEST(UcEngine, AnAbandonedMessageKeepsItsSharedReceive) {
  Host host(uc(true));
  host.connect();
  host.post_receive(600);
  host.deliver(request(Operation::send_first, 0), bytes_of(mtu));
  EXPECT_EQ(host.srq.queue.size(), 0u);
  host.deliver(request(Operation::send_only, 5), bytes_of(3));
  EXPECT_EQ(done(host), (Done{{1'000, CompletionStatus::success}}));
  host.post_receive(600);
  host.deliver(request(Operation::send_first, 6), bytes_of(mtu));
  Host::must(host.step({}, QpState::error));
  EXPECT_EQ(done(host), (Done{{1'001, CompletionStatus::flushed}}));
}

}  // namespace
}  // namespace tulle::transport::uc
