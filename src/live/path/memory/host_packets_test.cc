#include "live/path/memory/host_packets.h"

#include <atomic>
#include <cstring>
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
    packets = std::make_unique<HostPackets>(end.path->peers(), [this](const Gid& gid) {
      return gid == local_gid || gid == second_gid;
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
          break;
        case Offer::kept:
          return false;
      }
    }
    packets->ring_doorbells();
    return true;
  }
  int receive() {
    return packets->receive([&](const wire::IpUdp& ip, auto head, auto bytes) {
      port::Arrival arrival{ip, true, head};
      EXPECT_EQ(end.adapter().handle_frame(now, arrival, bytes), port::Verdict::ok);
    });
  }

  End end;
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
    a_.end.connect(b_.end, {}, {1, 1, verbs::Mtu::b4096});
    b_.end.connect(a_.end, {}, {1, 1, verbs::Mtu::b4096});
    a_.packets->meet_peers();
    b_.packets->meet_peers();
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
  a_.now = a_.now + HostPackets::patience - Time::nanoseconds(1);
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
    std::uint64_t rest = 0;
    std::array<std::byte, 32> packet{};
  } forged;
  const auto write = [&](std::size_t bytes, std::uint32_t marks) {
    std::memcpy(ring.reserve(bytes), &forged, bytes);
    ring.publish(bytes, marks);
  };
  int handled = 0;
  const auto receive = [&] {
    return b_.packets->receive([&](const wire::IpUdp& ip, auto head, auto bytes) {
      ++handled;
      port::Arrival arrival{ip, true, head};
      b_.end.adapter().handle_frame({}, arrival, bytes);
    });
  };
  write(72, 0);  // without a path
  write(72, PacketRing::has_path);
  write(72, 0);
  write(39, PacketRing::has_path);  // shorter than a path
  EXPECT_EQ(receive(), 4);
  EXPECT_EQ(handled, 0);
  EXPECT_EQ(b_.packets->counters().refused, 2u);
  // The host gets the address, and this process learns of it later than the peer.
  write(72, PacketRing::has_path);
  EXPECT_EQ(receive(), 1);
  EXPECT_EQ(handled, 0);
  b_.second_gid = forged.source;
  write(32, 0);
  EXPECT_EQ(receive(), 1);
  EXPECT_EQ(std::exchange(handled, 0), 1);
  forged.source = local_gid;
  write(72, PacketRing::has_path);  // reserved bytes, which are no packet
  write(40, PacketRing::has_path);  // a path alone
  EXPECT_EQ(receive(), 2);
  EXPECT_EQ(handled, 2);
  EXPECT_EQ(b_.end.completions(), 0);
}

TEST_F(HostPacketsTest, APeerThatFillsItsRingForEverDoesNotKeepTheReader) {
  RingWriter ring(a_.end.path->peers().ring_to(2),
                  b_.end.path->peers().table().inboxes[1].progress);
  const auto fill = [&] {
    while (ring.reserve(0) != nullptr) ring.publish(0);
  };
  fill();
  int calls = 0;
  const int taken = b_.packets->receive([&](auto&&...) { ++calls; });
  EXPECT_EQ(calls, 0);
  EXPECT_LT(taken, 1'000);
  EXPECT_TRUE(b_.packets->is_unfinished());
}

}  // namespace
}  // namespace tulle::live
