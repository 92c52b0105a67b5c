#include "live/path/memory/host_packets.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <initializer_list>
#include <thread>
#include <vector>

#include "live/path/memory/host_path_end_test.h"

namespace tulle::live {
namespace {

using Offer = HostPackets::Offer;
using verbs::SendOpcode;

// An end with a driver that sends packets by memory, and counts those that UDP would carry.
struct Side {
  explicit Side(std::uint32_t slot) : end(slot, 64 << 10) {}

  void start() {
    packets =
        std::make_unique<HostPackets>(end.path->peers(), [this](const Gid& gid, bool is_roce_v1) {
          return !is_roce_v1 && (gid == local_gid || gid == second_gid);
        });
  }
  void post_receive() { post_receive(*end.qp); }
  void post_receive(transport::QueuePair& qp) {
    const verbs::Sge sge{end.address(), static_cast<std::uint32_t>(end.buffer.size()),
                         end.region->lkey()};
    verbs::ReceiveRequest request;
    request.sges = {&sge, 1};
    EXPECT_EQ(end.adapter().post_receive(qp, request), VerbsStatus::ok);
  }
  void post(std::uint32_t bytes) { post(*end.qp, bytes); }
  void post(transport::QueuePair& qp, std::uint32_t bytes) {
    end.post(qp, SendOpcode::send, 0, RemoteKey{}, bytes);
  }
  // Posts more than a ring holds. The first windows of two queue pairs do not fit.
  void post_much() {
    for (transport::QueuePair* qp : {end.qp, end.second_qp}) {
      for (int i = 0; i < 4; ++i) post(*qp, 60'000);
    }
  }
  void receive_much() {
    for (transport::QueuePair* qp : {end.qp, end.second_qp}) {
      for (int i = 0; i < 4; ++i) post_receive(*qp);
    }
  }
  // Offers all packets that the adapter has. Returns false if the ring was full.
  bool send() {
    device::Datagram datagram;
    while (end.adapter().pull_datagram(now, datagram)) {
      switch (packets->offer(datagram, now)) {
        case Offer::declined:
          ++by_udp;
          break;
        case Offer::taken:
        case Offer::borrowed:
          break;
        case Offer::kept:
          return false;
      }
    }
    packets->ring_doorbells();
    return true;
  }
  int receive() { return packets->receive(end.adapter(), now); }
  // Returns how many packets have reached the adapter.
  std::uint64_t handled() { return end.adapter().counters().packets_received; }
  void fill_buffer() {
    for (std::size_t i = 0; i < end.buffer.size(); ++i) {
      end.buffer[i] = static_cast<std::byte>(i * 13 + i / 251);
    }
  }

  PathEnd end;
  std::unique_ptr<HostPackets> packets;
  Time now;
  Gid second_gid = local_gid;
  int by_udp = 0;
};

class HostPacketsTest : public testing::Test {
 protected:
  void SetUp() override {
    a_.end.open(b_.end);
    b_.end.open(a_.end);
    a_.start();
    b_.start();
    a_.end.connect(b_.end, {}, {1, 1, verbs::Mtu::b4096, true});
    b_.end.connect(a_.end, {}, {1, 1, verbs::Mtu::b4096, true});
    a_.packets->meet_peers();
    b_.packets->meet_peers();
    let_b_read_memory(false);
  }
  // Says whether payloads of long messages to b_ stay where they are.
  void let_b_read_memory(bool may_read) {
    b_.end.path->peers().table().inboxes[1].reads_memory = may_read ? 1 : 0;
  }
  void exchange() {
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(a_.send());
      b_.receive();
      EXPECT_TRUE(b_.send());
      a_.receive();
    }
  }
  Side a_{1};
  Side b_{2};
};

TEST_F(HostPacketsTest, AMessageAndItsAcknowledgementGoByMemory) {
  for (std::size_t i = 0; i < 20'001; ++i) a_.end.buffer[i] = static_cast<std::byte>(i * 13);
  b_.post_receive();
  a_.post(20'001);
  exchange();
  EXPECT_EQ(a_.end.completions(), 1);
  EXPECT_EQ(b_.end.completions(), 1);
  EXPECT_EQ(std::memcmp(b_.end.buffer.data(), a_.end.buffer.data(), 20'001), 0);
  EXPECT_EQ(a_.by_udp + b_.by_udp, 0);
  EXPECT_EQ(a_.packets->counters().sent, b_.packets->counters().received);
  EXPECT_GT(b_.packets->counters().sent, 0u);
}

TEST_F(HostPacketsTest, WhileEitherEndIsClosedUdpServes) {
  for (Side* closed : {&a_, &b_}) {
    closed->end.path->set_open(false);
    a_.by_udp = 0;
    a_.post(8);
    EXPECT_TRUE(a_.send());
    EXPECT_EQ(a_.by_udp, 1);
    closed->end.path->set_open(true);
  }
  EXPECT_EQ(b_.receive(), 0);
}

TEST_F(HostPacketsTest, APeerThatCannotBeWokenIsServedByUdp) {
  Side c{3}, d{4};
  c.end.open([&](QpNumber) -> Result<HostPath::Peer> {
    auto peer = d.end.as_peer(getpid());
    peer.doorbell.reset();
    return peer;
  });
  d.end.open(c.end);
  c.start();
  d.start();
  c.end.connect(d.end, {});
  d.end.connect(c.end, {});
  d.packets->meet_peers();
  c.post(8);
  EXPECT_TRUE(c.send());
  EXPECT_EQ(c.by_udp, 1);
}

TEST_F(HostPacketsTest, BeforeThePeerReadsUdpServes) {
  Side c{3}, d{4};
  c.end.open(d.end);
  d.end.open(c.end);
  c.start();
  d.start();
  c.end.connect(d.end, {});
  c.post(8);
  EXPECT_TRUE(c.send());
  EXPECT_EQ(c.by_udp, 1);
}

TEST_F(HostPacketsTest, OneRingIsEnoughUntilThePeerHasLooked) {
  for (int i = 0; i < 3; ++i) {
    a_.post(8);
    EXPECT_TRUE(a_.send());
  }
  EXPECT_EQ(b_.end.rings(), 1);
  EXPECT_EQ(b_.receive(), 3);
  a_.post(8);
  EXPECT_TRUE(a_.send());
  EXPECT_EQ(b_.end.rings(), 1);
  b_.receive();

  b_.packets->set_polled(true);
  a_.post(8);
  EXPECT_TRUE(a_.send());
  EXPECT_EQ(b_.end.rings(), 0);
  b_.packets->set_polled(false);
  EXPECT_EQ(b_.receive(), 1) << "what came before it slept";
  a_.post(8);
  EXPECT_TRUE(a_.send());
  EXPECT_EQ(b_.end.rings(), 1);
}

// A reader stops after 256 packets. What it finds then may be nothing, and the next packet must
// wake it all the same.
TEST_F(HostPacketsTest, AReaderThatStoppedForAWhileIsRungForTheNextPacket) {
  RingWriter ring(a_.end.path->peers().ring_to(2),
                  b_.end.path->peers().table().inboxes[1].progress);
  const std::uint32_t sleeps = b_.end.path->peers().table().sleeps.load();
  for (int i = 0; i < 256; ++i) {
    ASSERT_NE(ring.reserve(0), nullptr);
    ring.publish(0);
  }
  EXPECT_EQ(b_.receive(), 256);
  ASSERT_TRUE(b_.packets->is_unfinished());
  EXPECT_EQ(b_.receive(), 0);
  EXPECT_FALSE(b_.packets->is_unfinished());
  const std::uint32_t sleeps_now = b_.end.path->peers().table().sleeps.load();
  EXPECT_EQ(sleeps_now % 2, 1u);
  EXPECT_NE(sleeps_now, sleeps);
}

// A reader that looks for another reason may take a packet before the writer rings for it.
TEST_F(HostPacketsTest, ARingForWhatWasReadAlreadyDoesNotSilenceTheNext) {
  a_.post(8);
  device::Datagram datagram;
  ASSERT_TRUE(a_.end.adapter().pull_datagram(a_.now, datagram));
  ASSERT_EQ(a_.packets->offer(datagram, a_.now), Offer::taken);
  EXPECT_EQ(b_.receive(), 1);
  a_.packets->ring_doorbells();
  EXPECT_EQ(b_.end.rings(), 1);
  b_.packets->note_ring();
  EXPECT_EQ(b_.receive(), 0);
  a_.post(8);
  EXPECT_TRUE(a_.send());
  EXPECT_EQ(b_.end.rings(), 1);
}

TEST_F(HostPacketsTest, ASleeperIsRungBeforeAllOfALongMessageIsWritten) {
  a_.post(60'000);
  device::Datagram datagram;
  std::uint32_t bytes = 0;
  while (bytes < HostPackets::early_ring_bytes) {
    EXPECT_EQ(b_.end.rings(), 0) << bytes;
    ASSERT_TRUE(a_.end.adapter().pull_datagram(a_.now, datagram));
    ASSERT_EQ(a_.packets->offer(datagram, a_.now), Offer::taken);
    bytes += datagram.bth_and_payload_bytes();
  }
  EXPECT_EQ(b_.end.rings(), 1);
  EXPECT_TRUE(a_.send());
  EXPECT_EQ(b_.end.rings(), 0) << "it has not looked yet";
}

TEST_F(HostPacketsTest, AWriterThatSleepsIsRungOnceForTheRoomThatItWaitsFor) {
  b_.receive_much();
  a_.post_much();
  EXPECT_FALSE(a_.send());
  EXPECT_EQ(a_.end.rings(), 0);
  b_.receive();
  EXPECT_EQ(a_.end.rings(), 1);
  b_.receive();
  EXPECT_EQ(a_.end.rings(), 0);
  EXPECT_TRUE(a_.packets->resume(a_.now));
  a_.send();
  b_.receive();
  EXPECT_EQ(a_.end.rings(), 0) << "it does not wait";
}

TEST_F(HostPacketsTest, AWriterThatPollsIsNotRungForRoom) {
  b_.receive_much();
  a_.packets->set_polled(true);
  a_.post_much();
  EXPECT_FALSE(a_.send());
  b_.receive();
  EXPECT_EQ(a_.end.rings(), 0);
}

// A peer may say at any time that it waits.
TEST_F(HostPacketsTest, WhoClaimsToWaitIsRungOnceForSomeKibibytes) {
  RingWriter ring(a_.end.path->peers().ring_to(2),
                  b_.end.path->peers().table().inboxes[1].progress);
  std::atomic<std::uint32_t>& waits = a_.end.path->peers().table().outboxes[2].waits;
  for (int i = 0; i < 256; ++i) {
    waits.store(2 * i + 1);
    ASSERT_NE(ring.reserve(0), nullptr);
    ring.publish(0);
    b_.receive();
  }
  EXPECT_EQ(a_.end.rings(), 1);
}

TEST_F(HostPacketsTest, AFullRingHoldsBackAndLosesNothing) {
  b_.receive_much();
  a_.post_much();
  EXPECT_FALSE(a_.send()) << a_.packets->counters().sent;
  EXPECT_TRUE(a_.packets->has_kept());
  EXPECT_FALSE(a_.packets->resume(a_.now));
  for (int i = 0; i < 100; ++i) {
    b_.receive();
    if (a_.packets->resume(a_.now)) a_.send();
    b_.send();
    a_.receive();
  }
  EXPECT_EQ(a_.end.completions(), 8);
  EXPECT_EQ(b_.end.completions(), 8);
  EXPECT_GT(a_.packets->counters().delayed, 0u);
  EXPECT_EQ(a_.packets->counters().dropped, 0u);
}

TEST_F(HostPacketsTest, AReaderThatReadsNothingHoldsNobodyUpForLong) {
  b_.receive_much();
  b_.post_receive();
  a_.post_much();
  EXPECT_FALSE(a_.send());
  // The reader is this process, which runs.
  a_.now = a_.now + HostPackets::slow_patience - Time::nanoseconds(1);
  EXPECT_FALSE(a_.packets->resume(a_.now));
  a_.now = a_.now + Time::nanoseconds(1);
  EXPECT_TRUE(a_.packets->resume(a_.now));
  EXPECT_TRUE(a_.send()) << "what does not fit is lost at once";
  EXPECT_GT(a_.packets->counters().dropped, 1u);
  // When it reads again, it gets packets again.
  while (b_.receive() > 0) continue;
  const std::uint64_t sent = a_.packets->counters().sent;
  EXPECT_TRUE(b_.send());
  EXPECT_GT(a_.receive(), 0);
  a_.post(8);
  EXPECT_TRUE(a_.send());
  EXPECT_EQ(a_.packets->counters().sent, sent + 1);
}

TEST_F(HostPacketsTest, WhatADeadPeerSentIsRead) {
  a_.post(8);
  EXPECT_TRUE(a_.send());
  a_.packets.reset();
  a_.end.adapter().objects().set_direct_path(nullptr);
  a_.end.path.reset();
  EXPECT_EQ(b_.receive(), 1);
  EXPECT_TRUE(b_.send());
  EXPECT_GT(b_.by_udp, 0) << "there is nobody to write to";
}

// A peer may write anything into its own ring.
TEST_F(HostPacketsTest, APathThatIsNotOfThisHostIsRefused) {
  RingProgress nobody;
  RingWriter ring(a_.end.path->peers().ring_to(2), nobody);
  struct {
    Gid source = Gid::from_ipv4(0x0A00'0001);
    Gid destination = local_gid;
    std::array<std::uint32_t, 3> rest{};
    std::array<std::byte, 28> packet{};
  } forged;
  const auto write = [&](std::size_t bytes, std::uint32_t marks) {
    std::memcpy(ring.reserve(bytes), &forged, bytes);
    ring.publish(bytes, marks);
  };
  write(72, 0);  // without a path
  write(72, PacketRing::has_path);
  write(72, 0);
  write(43, PacketRing::has_path);  // shorter than a path
  EXPECT_EQ(b_.receive(), 4);
  EXPECT_EQ(b_.handled(), 0u);
  EXPECT_EQ(b_.packets->counters().refused, 2u);
  // The host gets the address, and this process learns of it later than the peer.
  write(72, PacketRing::has_path);
  EXPECT_EQ(b_.receive(), 1);
  EXPECT_EQ(b_.handled(), 0u);
  b_.second_gid = forged.source;
  write(28, 0);
  EXPECT_EQ(b_.receive(), 1);
  EXPECT_EQ(b_.handled(), 1u);
  forged.source = local_gid;
  write(72, PacketRing::has_path);  // reserved bytes, which are no packet
  write(44, PacketRing::has_path);  // a path alone
  EXPECT_EQ(b_.receive(), 2);
  EXPECT_EQ(b_.handled(), 2u);
  EXPECT_EQ(b_.packets->counters().refused, 4u);
  EXPECT_EQ(b_.end.completions(), 0);
}

TEST_F(HostPacketsTest, APeerThatFillsItsRingForEverDoesNotKeepTheReader) {
  RingWriter ring(a_.end.path->peers().ring_to(2),
                  b_.end.path->peers().table().inboxes[1].progress);
  const auto fill = [&] {
    while (ring.reserve(0) != nullptr) ring.publish(0);
  };
  fill();
  const int taken = b_.receive();
  EXPECT_EQ(b_.handled(), 0u);
  EXPECT_LT(taken, 1'000);
  EXPECT_TRUE(b_.packets->is_unfinished());
}

// --- payloads that stay in their writer's memory ---

constexpr std::uint32_t long_bytes = 60'000;  // 15 packets
constexpr int long_packets = 15;

class PayloadReferenceTest : public HostPacketsTest {
 protected:
  void SetUp() override {
    HostPacketsTest::SetUp();
    let_b_read_memory(true);
    a_.fill_buffer();
  }
  // Sends as much as a trial of a way takes.
  void send_some() {
    for (std::uint64_t came = 0; came < PayloadWay::trial_bytes; came += long_bytes) {
      b_.post_receive();
      a_.post(long_bytes);
      exchange();
      a_.end.completions();
      b_.end.completions();
    }
  }
  bool is_asked_for_references() {
    return b_.end.path->peers().table().inboxes[1].reads_memory == 1;
  }
  bool has_arrived(std::size_t bytes) {
    return std::memcmp(b_.end.buffer.data(), a_.end.buffer.data(), bytes) == 0;
  }
  // Posts a receive request with SGEs of that many bytes, one after the other.
  void post_receive_of(std::initializer_list<std::uint32_t> lengths) {
    std::vector<verbs::Sge> sges;
    std::uint64_t address = b_.end.address();
    for (const std::uint32_t length : lengths) {
      sges.push_back({address, length, b_.end.region->lkey()});
      address += length;
    }
    verbs::ReceiveRequest request;
    request.sges = sges;
    ASSERT_EQ(b_.end.adapter().post_receive(*b_.end.qp, request), VerbsStatus::ok);
  }
  // Sends a message, lets something happen that gives its bytes back to the program, and changes
  // them before the reader comes.
  template <typename Event>
  void expect_no_arrival_after(Event event) {
    b_.post_receive();
    a_.post(long_bytes);
    EXPECT_TRUE(a_.send());
    event();
    std::ranges::fill(a_.end.buffer, std::byte{0xEE});
    EXPECT_EQ(b_.receive(), long_packets);
    EXPECT_EQ(b_.end.completions(), 0);
    EXPECT_EQ(b_.packets->counters().recalled, 15u);
    for (const std::byte byte : b_.end.buffer) ASSERT_EQ(byte, std::byte{});
  }
  verbs::CompletionStatus next_status(Side& side) {
    verbs::Completion completion;
    EXPECT_TRUE(side.end.poll(completion));
    return completion.status;
  }
};

TEST_F(PayloadReferenceTest, ALongMessageStaysWhereItIsUntilItsReaderCopiesIt) {
  b_.post_receive();
  a_.post(long_bytes);
  EXPECT_TRUE(a_.send());
  EXPECT_EQ(a_.packets->counters().referred, 15u);
  a_.end.buffer[7] = std::byte{0xEE};
  EXPECT_EQ(b_.receive(), long_packets);
  EXPECT_TRUE(has_arrived(long_bytes));
  exchange();
  EXPECT_EQ(a_.end.completions(), 1);
  EXPECT_EQ(b_.end.completions(), 1);
}

TEST_F(PayloadReferenceTest, AShortMessageGoesThroughTheRing) {
  b_.post_receive();
  a_.post(HostPackets::reference_bytes_min - 1);
  EXPECT_TRUE(a_.send());
  EXPECT_EQ(a_.packets->counters().referred, 0u);
  a_.end.buffer[7] = std::byte{0xEE};
  b_.receive();
  EXPECT_NE(b_.end.buffer[7], std::byte{0xEE});
  EXPECT_EQ(b_.end.completions(), 1);
}

// The reader says whether it can read the writer's memory.
TEST_F(PayloadReferenceTest, WhereTheReaderMayNotReadPayloadsGoThroughTheRing) {
  let_b_read_memory(false);
  b_.post_receive();
  a_.post(long_bytes);
  exchange();
  EXPECT_EQ(a_.packets->counters().referred, 0u);
  EXPECT_TRUE(has_arrived(long_bytes));
  EXPECT_EQ(b_.end.completions(), 1);
}

TEST_F(PayloadReferenceTest, AReaderThatPollsTriesTheWritersMemory) {
  let_b_read_memory(false);
  send_some();
  EXPECT_FALSE(is_asked_for_references()) << "it sleeps";
  b_.packets->set_polled(true);
  send_some();
  EXPECT_TRUE(is_asked_for_references());
  b_.packets->set_polled(false);
  EXPECT_FALSE(is_asked_for_references());
  b_.packets->set_polled(true);
  EXPECT_TRUE(is_asked_for_references());
  send_some();
  EXPECT_GT(a_.packets->counters().referred, 0u);
  EXPECT_TRUE(has_arrived(long_bytes));
}

// The kernel may refuse to read what the writer's processor can read. What comes again comes
// through the ring.
TEST_F(PayloadReferenceTest, AfterAPayloadThatCannotBeReadTheRingServes) {
  let_b_read_memory(false);
  b_.packets->set_polled(true);
  send_some();
  ASSERT_TRUE(is_asked_for_references());
  b_.post_receive();
  a_.post(long_bytes);
  device::Datagram datagram;
  ASSERT_TRUE(a_.end.adapter().pull_datagram(a_.now, datagram));
  const auto* const nowhere = reinterpret_cast<const std::byte*>(std::uintptr_t{4'096});
  datagram.pieces[0] = {nowhere, datagram.pieces[0].size()};
  EXPECT_EQ(a_.packets->offer(datagram, a_.now), Offer::taken);
  const std::uint64_t referred = a_.packets->counters().referred;
  EXPECT_EQ(b_.receive(), 1);
  EXPECT_FALSE(is_asked_for_references());
  exchange();
  exchange();
  EXPECT_EQ(b_.end.completions(), 1);
  EXPECT_TRUE(has_arrived(long_bytes));
  EXPECT_EQ(a_.packets->counters().referred, referred);
}

TEST_F(PayloadReferenceTest, AWriteWithImmediateIsCopiedToItsRegion) {
  Side c{3}, d{4};
  c.end.open(d.end);
  d.end.open(c.end);
  c.start();
  d.start();
  const auto access = verbs::AccessFlags(Access::remote_write);
  c.end.connect(d.end, access, {1, 1, verbs::Mtu::b4096, true});
  d.end.connect(c.end, access, {1, 1, verbs::Mtu::b4096, true});
  c.packets->meet_peers();
  d.packets->meet_peers();
  d.end.path->peers().table().inboxes[3].reads_memory = 1;
  c.fill_buffer();
  d.post_receive();
  c.end.post(*c.end.qp, SendOpcode::write_with_immediate, d.end.address() + 100,
             d.end.region->rkey(), long_bytes);
  EXPECT_TRUE(c.send());
  EXPECT_EQ(c.packets->counters().referred, 15u);
  EXPECT_EQ(d.receive(), long_packets);
  EXPECT_EQ(d.end.completions(), 1);
  EXPECT_EQ(std::memcmp(d.end.buffer.data() + 100, c.end.buffer.data(), long_bytes), 0);
  EXPECT_EQ(d.end.buffer[99], std::byte{});
  EXPECT_EQ(d.end.buffer[long_bytes + 100], std::byte{});
}

TEST_F(PayloadReferenceTest, AReceiveRequestInPiecesIsFilledInOrder) {
  post_receive_of({100, 0, 8'192, 4'096, 9'999, 40'000});
  a_.post(long_bytes);
  exchange();
  EXPECT_EQ(b_.end.completions(), 1);
  EXPECT_TRUE(has_arrived(long_bytes));
}

TEST_F(PayloadReferenceTest, MessagesOfTwoQueuePairsAndManyRequestsKeepTheirOrder) {
  b_.receive_much();
  a_.post_much();
  for (int i = 0; i < 20; ++i) {
    if (a_.packets->resume(a_.now)) a_.send();
    b_.receive();
    b_.send();
    a_.receive();
  }
  EXPECT_EQ(a_.end.completions(), 8);
  EXPECT_EQ(b_.end.completions(), 8);
  EXPECT_TRUE(has_arrived(60'000));
  EXPECT_EQ(a_.packets->counters().referred, 8u * 15);
}

TEST_F(PayloadReferenceTest, AReferenceThatWaitsForRoomStaysAReference) {
  b_.post_receive();
  a_.post(long_bytes);
  device::Datagram datagram;
  ASSERT_TRUE(a_.end.adapter().pull_datagram(a_.now, datagram));
  int offered = 1;
  while (a_.packets->offer(datagram, a_.now) != Offer::kept) ASSERT_LT(++offered, 10'000);
  EXPECT_FALSE(a_.packets->resume(a_.now));
  EXPECT_EQ(b_.receive(), 256);
  EXPECT_TRUE(a_.packets->resume(a_.now));
  EXPECT_EQ(a_.packets->counters().referred, static_cast<std::uint64_t>(offered));
  while (b_.receive() > 0) continue;
  EXPECT_EQ(b_.handled(), static_cast<std::uint64_t>(offered));
  EXPECT_EQ(b_.packets->counters().recalled, 0u);
}

// A message that is longer than its receive request touches nothing behind it.
TEST_F(PayloadReferenceTest, ATooShortReceiveRequestFailsAndIsNotOverrun) {
  post_receive_of({20'000});
  a_.post(long_bytes);
  exchange();
  EXPECT_EQ(next_status(b_), verbs::CompletionStatus::local_length_error);
  EXPECT_EQ(next_status(a_), verbs::CompletionStatus::remote_invalid_request_error);
  for (std::size_t i = 20'000; i < b_.end.buffer.size(); ++i) {
    ASSERT_EQ(b_.end.buffer[i], std::byte{}) << i;
  }
}

TEST_F(PayloadReferenceTest, WithoutAReceiveRequestTheMessageComesAgain) {
  a_.post(long_bytes);
  exchange();
  EXPECT_EQ(b_.end.completions(), 0);
  b_.post_receive();
  for (int i = 0; i < 100 && a_.end.completions() == 0; ++i) {
    a_.now = a_.now + Time::milliseconds(10);
    if (a_.end.adapter().next_deadline() <= a_.now) a_.end.adapter().handle_deadline(a_.now);
    exchange();
  }
  EXPECT_EQ(b_.end.completions(), 1);
  EXPECT_TRUE(has_arrived(long_bytes));
}

// The bytes belong to the program again when its request has been flushed, and it may have written
// others there before the reader comes.
TEST_F(PayloadReferenceTest, AMessageWhoseQueuePairFailsDoesNotArrive) {
  expect_no_arrival_after([&] { a_.end.move_qp(verbs::QpState::error); });
}

TEST_F(PayloadReferenceTest, AMessageWhoseQueuePairIsResetDoesNotArrive) {
  expect_no_arrival_after([&] { a_.end.move_qp(verbs::QpState::reset); });
}

// The peer says nothing, and the last retry ends in an error.
TEST_F(PayloadReferenceTest, AMessageThatIsGivenUpDoesNotArrive) {
  b_.post_receive();
  a_.post(long_bytes);
  EXPECT_TRUE(a_.send());
  const std::uint64_t offered = a_.packets->counters().sent;
  verbs::Completion completion;
  for (int i = 0; i < 1'000 && !a_.end.poll(completion); ++i) {
    a_.now = a_.now + Time::seconds(1);
    if (a_.end.adapter().next_deadline() <= a_.now) a_.end.adapter().handle_deadline(a_.now);
    a_.send();
  }
  EXPECT_EQ(completion.status, verbs::CompletionStatus::retry_exceeded_error);
  std::ranges::fill(a_.end.buffer, std::byte{0xEE});
  EXPECT_GE(b_.receive(), static_cast<int>(offered));
  EXPECT_EQ(b_.end.completions(), 0);
  for (const std::byte byte : b_.end.buffer) ASSERT_EQ(byte, std::byte{});
}

// Another queue pair of the process loses nothing by that.
TEST_F(PayloadReferenceTest, AQueuePairThatFailsTakesNothingFromAnother) {
  b_.post_receive(*b_.end.second_qp);
  a_.post(*a_.end.second_qp, long_bytes);
  a_.post(long_bytes);
  EXPECT_TRUE(a_.send());
  a_.end.move_qp(verbs::QpState::error);
  while (b_.receive() > 0) continue;
  EXPECT_EQ(b_.end.completions(), 1);
  EXPECT_TRUE(has_arrived(long_bytes));
  EXPECT_EQ(b_.packets->counters().recalled, 15u);
}

TEST_F(PayloadReferenceTest, AMessageWhoseQueuePairIsDestroyedDoesNotArrive) {
  expect_no_arrival_after([&] { a_.end.destroy_qp(); });
}

// The writer's program gets its bytes back at any moment while the reader copies them. A message
// that completes has the bytes from before.
TEST_F(PayloadReferenceTest, ARecallDuringTheCopyIsSeen) {
  constexpr int rounds = 5'000;
  const std::vector<std::byte> sent(a_.end.buffer.begin(), a_.end.buffer.end());
  std::atomic<int> begun{0};
  std::atomic<int> changed{0};
  auto& recalls = a_.end.path->peers().table().recalls[PeerTable::recall_of(a_.end.qp->number)];
  std::thread program([&] {
    for (int round = 1; round <= rounds; ++round) {
      while (begun < round) std::this_thread::yield();
      const auto now = [] { return std::chrono::steady_clock::now(); };
      const auto until = now() + std::chrono::nanoseconds(round % 100 * 200);
      while (now() < until) continue;
      recalls.fetch_add(1);
      std::ranges::fill(a_.end.buffer, std::byte{0xEE});
      changed = round;
    }
  });
  for (int round = 1; round <= rounds; ++round) {
    std::ranges::copy(sent, a_.end.buffer.begin());
    b_.post_receive();
    a_.post(long_bytes);
    EXPECT_TRUE(a_.send());
    begun = round;
    b_.receive();
    while (changed < round) std::this_thread::yield();
    const bool is_complete = b_.end.completions() == 1;
    const bool is_as_sent = std::memcmp(b_.end.buffer.data(), sent.data(), long_bytes) == 0;
    EXPECT_TRUE(!is_complete || is_as_sent) << round;
    b_.send();
    a_.receive();
    for (Side* side : {&a_, &b_}) {
      Side& peer = side == &a_ ? b_ : a_;
      side->end.move_qp(verbs::QpState::reset);
      side->end.connect(*side->end.qp, peer.end.qp->number, {}, {1, 1, verbs::Mtu::b4096, true});
    }
  }
  program.join();
}

TEST_F(PayloadReferenceTest, AMessageOfADeadWriterDoesNotArrive) {
  expect_no_arrival_after([&] {
    a_.packets.reset();
    a_.end.adapter().objects().set_direct_path(nullptr);
    a_.end.path.reset();
  });
}

// When the acknowledgement is lost, the message comes again. Its receive request is the program's
// by then, and so may the writer's bytes be.
TEST_F(PayloadReferenceTest, ADuplicateWritesNothing) {
  b_.post_receive();
  a_.post(long_bytes);
  EXPECT_TRUE(a_.send());
  EXPECT_EQ(b_.receive(), long_packets);
  EXPECT_EQ(b_.end.completions(), 1);
  std::ranges::fill(b_.end.buffer, std::byte{0x11});
  b_.post_receive();
  const std::uint64_t referred = a_.packets->counters().referred;
  for (int i = 0; i < 1'000 && a_.packets->counters().referred == referred; ++i) {
    a_.now = a_.now + Time::milliseconds(100);
    if (a_.end.adapter().next_deadline() <= a_.now) a_.end.adapter().handle_deadline(a_.now);
    a_.send();
  }
  EXPECT_GT(b_.receive(), 0);
  EXPECT_EQ(b_.end.adapter().counters().transport.duplicate_requests, 15u);
  for (const std::byte byte : b_.end.buffer) ASSERT_EQ(byte, std::byte{0x11});
}

// A peer may write any reference into its own ring.
TEST_F(PayloadReferenceTest, ReferencesThatNoWriterOfOursMakesAreRefused) {
  a_.post(8);  // so that the reader knows the path
  EXPECT_TRUE(a_.send());
  b_.receive();
  const std::uint64_t before = b_.handled();
  RingProgress nobody;
  RingWriter ring(a_.end.path->peers().ring_to(2), nobody);
  const std::uint64_t start = b_.end.path->peers().table().inboxes[1].progress.taken;
  struct Forged {
    std::uint32_t recalls = 0;
    std::uint32_t recall = 0;
    std::uint32_t pieces = 1;
    std::uint32_t unused = 0;
    std::uint64_t address = 4'096;  // where no memory is
    std::uint32_t bytes = 4'096;
    std::uint32_t unused_as_well = 0;
    std::array<std::byte, 64> packet{};
  };
  std::uint64_t written = 0;
  const auto write = [&](const Forged& forged, std::size_t bytes) {
    for (; written < start; written += PacketRing::line_bytes) {
      ASSERT_NE(ring.reserve(0), nullptr);
      ring.publish(0);
    }
    std::memcpy(ring.reserve(bytes), &forged, bytes);
    ring.publish(bytes, PacketRing::has_reference);
  };
  Forged forged;
  write(forged, 4);  // shorter than a reference
  forged.pieces = 0;
  write(forged, sizeof forged);
  forged.pieces = 255;
  write(forged, sizeof forged);
  forged.pieces = 1;
  forged.recall = PeerTable::recalls_max;
  write(forged, sizeof forged);
  forged.recall = 0;
  forged.bytes = 4'097;
  write(forged, sizeof forged);
  forged.bytes = 0;
  write(forged, sizeof forged);
  forged.bytes = 4'096;
  write(forged, 32);             // without headers
  write(forged, sizeof forged);  // reserved bytes, which are no packet
  EXPECT_EQ(b_.receive(), 8);
  EXPECT_EQ(b_.packets->counters().refused, 8u);
  EXPECT_EQ(b_.handled(), before);
}

}  // namespace
}  // namespace tulle::live
