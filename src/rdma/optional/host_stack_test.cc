#include "rdma/optional/host_stack.h"
#include "rdma/optional/transports.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>

namespace tulle::device {
namespace {

using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::VerbsStatus;

void must(VerbsStatus status) { ASSERT_EQ(status, VerbsStatus::ok); }

struct Frame {
  wire::Tcp tcp;
  std::uint32_t payload_bytes = 0;
};

Configuration with_streams(Configuration configuration) {
  configuration.transports = &transport::all_transports();
  return configuration;
}

// A host with a stack, one stream, and a driver that keeps frames in a list.
struct Host : HostStack::Driver {
  Host(const HostStackSettings& settings, const Configuration& configuration, std::uint32_t number)
      : gid(Gid::from_ipv4(number)),
        adapter(with_streams(configuration)),
        stack(settings, adapter, *this) {
    adapter.set_gids({&gid, 1});
    VerbsStatus status{};
    pd = adapter.objects().create_pd(status);
    cq = adapter.objects().create_cq(64, nullptr, status);
    memory = adapter.objects().register_memory(
        *pd, nullptr, 1ull << 40, 0, verbs::AccessFlags(verbs::Access::local_write), status);
    transport::QueuePairInit init;
    init.type = verbs::QpType::stream;
    init.pd = pd;
    init.send_cq = init.receive_cq = cq;
    init.send_work_requests = init.receive_work_requests = 8;
    init.send_sges = init.receive_sges = 1;
    init.signal_all = true;
    qp = adapter.create_qp(init, status);
    flow = HostStack::flow_of(qp->number);
  }
  // Connects to the peer, with one receive request of so many bytes that is posted beforehand.
  void connect(const Host& peer, std::uint32_t early_bytes) {
    transport::QueuePairAttributes to;
    const auto step = [&](QpState state, QpAttributeMask mask) {
      to.state = state;
      must(adapter.modify(*qp, to, QpAttributeMask(QpAttribute::state) | mask));
    };
    step(QpState::init,
         QpAttributeMask(QpAttribute::pkey_index) | QpAttribute::port | QpAttribute::access_flags);
    const verbs::Sge early{0, early_bytes, memory->lkey()};
    if (early_bytes > 0) must(adapter.post_receive(*qp, {1, {&early, 1}}));
    to.destination_qp = peer.qp->number;
    to.address.destination = peer.gid;
    step(QpState::rtr, QpAttributeMask(QpAttribute::address_vector) | QpAttribute::path_mtu |
                           QpAttribute::destination_qp | QpAttribute::rq_psn |
                           QpAttribute::max_dest_rd_atomic | QpAttribute::min_rnr_timer);
    step(QpState::rts, QpAttributeMask(QpAttribute::timeout) | QpAttribute::retry_count |
                           QpAttribute::rnr_retry | QpAttribute::sq_psn |
                           QpAttribute::max_rd_atomic);
  }
  void deliver(HostStack::FrameHandle frame) override {
    wire::IpUdp ip;
    ip.source = peer_gid;
    const Frame& held = (*frames)[frame];
    adapter.handle_segment(now, held.tcp, {nullptr, held.payload_bytes}, ip);
    ++delivered;
  }
  HostStack::FrameHandle keep(const Datagram& datagram) override {
    frames->push_back({datagram.tcp, datagram.payload_bytes});
    return static_cast<HostStack::FrameHandle>(frames->size() - 1);
  }

  Gid gid, peer_gid;
  Adapter adapter;
  HostStack stack;
  verbs::ProtectionDomain* pd = nullptr;
  verbs::CompletionQueue* cq = nullptr;
  verbs::MemoryRegion* memory = nullptr;
  transport::QueuePair* qp = nullptr;
  std::uint32_t flow = 0;
  std::vector<Frame>* frames = nullptr;
  Time now;
  std::uint64_t delivered = 0;
  std::uint64_t frames_sent = 0;
};

// Two hosts and a link that takes no time.
struct Pair {
  explicit Pair(const HostStackSettings& settings, const Configuration& configuration = {},
                std::uint32_t early_bytes = 0)
      : a(settings, configuration, 1), b(settings, configuration, 2) {
    a.frames = b.frames = &frames;
    a.peer_gid = b.gid;
    b.peer_gid = a.gid;
    a.connect(b, 0);
    b.connect(a, early_bytes);
  }
  void send(std::uint32_t bytes) {
    const verbs::Sge to{0, bytes, b.memory->lkey()};
    must(b.adapter.post_receive(*b.qp, {1, {&to, 1}}));
    send_alone(bytes);
  }
  void send_alone(std::uint32_t bytes) {
    const verbs::Sge from{0, bytes, a.memory->lkey()};
    verbs::SendRequest request;
    request.sges = {&from, 1};
    must(a.adapter.post_send(*a.qp, request));
    a.now = now;
    a.stack.attend(now);
  }
  // Runs until nothing happens, or for so many moments. Returns the time at which the receiver had
  // all the data.
  Time run(int moments = std::numeric_limits<int>::max()) {
    Time read = Time::never();
    for (; moments > 0; --moments) {
      carry(a, b);
      carry(b, a);
      const Time next = std::min({a.stack.next_deadline(), b.stack.next_deadline(),
                                  a.adapter.next_deadline(), b.adapter.next_deadline()});
      if (next.is_never()) return read;
      now = std::max(now, next);
      for (Host* host : {&a, &b}) {
        host->now = now;
        if (host->adapter.next_deadline() <= now) {
          host->adapter.handle_deadline(now);
          host->stack.attend(now);
        }
        while (host->stack.next_deadline() <= now) host->stack.run(now);
      }
      std::array<verbs::Completion, 4> done;
      if (b.cq->poll(done) > 0 && read.is_never()) read = now;
    }
    return read;
  }
  void carry(Host& from, Host& to) {
    while (from.stack.has_frame()) {
      const auto frame = from.stack.pull(now);
      ++from.frames_sent;
      to.now = now;
      if (loses_at_arrival && !to.stack.arrive(now, frame, to.flow, frames[frame].payload_bytes)) {
        ++lost;
      }
    }
  }

  std::vector<Frame> frames;
  Host a, b;
  Time now;
  bool loses_at_arrival = true;
  std::uint64_t lost = 0;
};

constexpr std::int64_t us = 1'000'000;

HostStackSettings costs() {
  HostStackSettings settings;
  settings.cores = 2;
  settings.system_call = Time{1 * us};
  settings.transmit = Time{2 * us};
  settings.interrupt = Time{3 * us};
  settings.receive_frame = Time{4 * us};
  settings.receive = Time{5 * us};
  settings.acknowledgement = Time{1 * us};
  settings.wake_up = Time{6 * us};
  return settings;
}

TEST(HostStack, ASmallMessageTakesTheSumOfItsParts) {
  Pair pair(costs());
  pair.send(8);
  // The parts are: system call, down the stack; interrupt, up the stack; wake-up and system call.
  EXPECT_EQ(pair.run(), Time{(1 + 2 + 3 + 4 + 5 + 6 + 1) * us});
  const HostStack::Counters a = pair.a.stack.counters(), b = pair.b.stack.counters();
  EXPECT_EQ(a.busy_application, Time{1 * us});
  EXPECT_EQ(b.busy_application, Time{7 * us});
  // The acknowledgement goes down the stack on one side and, with an interrupt, up on the other.
  EXPECT_EQ(b.busy_kernel, Time{(3 + 4 + 5 + 2) * us});
  EXPECT_EQ(a.busy_kernel, Time{(2 + 3 + 4 + 1) * us});
  EXPECT_EQ(b.interrupts, 1u);
}

// A program may post its receive requests before it connects.
TEST(HostStack, AReceiveThatWasPostedBeforeTheConnectionIsFilled) {
  Pair pair(costs(), {}, 5'000);
  pair.send_alone(5'000);
  EXPECT_FALSE(pair.run().is_never());
}

TEST(HostStack, ModerationAndIdleStatesDelayWithoutWork) {
  HostStackSettings settings = costs();
  settings.interrupt_delay = Time{8 * us};
  settings.idle_exit = Time{10 * us};
  settings.idle_after = Time{20 * us};
  Pair pair(settings);
  pair.send(8);
  EXPECT_EQ(pair.run(), Time{(22 + 8 + 10 + 10) * us});
  EXPECT_EQ(pair.b.stack.counters().busy_application, Time{7 * us});
}

TEST(HostStack, WithoutModerationAFrameInterruptsWhenItArrives) {
  Pair pair(costs());
  pair.send(8);
  HostStack& stack = pair.a.stack;
  while (!stack.has_frame()) stack.run(pair.now = stack.next_deadline());
  pair.carry(pair.a, pair.b);
  EXPECT_EQ(pair.b.stack.counters().interrupts, 1u);
  EXPECT_EQ(pair.b.stack.next_deadline(), pair.now + Time{(3 + 4 + 5) * us});
}

TEST(HostStack, EnoughFramesDoNotWaitForTheInterruptsTime) {
  HostStackSettings settings;
  settings.cores = 2;
  settings.interrupt_delay = Time{1'000 * us};
  settings.interrupt_frames = 5;
  Pair pair(settings);
  pair.send(5 * 8'960);
  EXPECT_LT(pair.run(), Time{10 * us});
  Pair other(settings);
  other.send(4 * 8'960);
  EXPECT_GE(other.run(), Time{1'000 * us});
}

// The receiving application's core copies a byte in 100 ps, and everything else costs nothing: 10
// GB/s.
TEST(HostStack, TheBusiestCoreIsTheRate) {
  HostStackSettings settings;
  settings.cores = 2;
  settings.copy_bits_per_second = 80'000'000'000;
  Pair pair(settings);
  constexpr std::uint32_t bytes = 100'000'000;
  pair.send(bytes);
  const Time took = pair.run();
  EXPECT_NEAR(took.to_seconds(), bytes / 10e9, 0.02 * bytes / 10e9);
  EXPECT_NEAR(pair.b.stack.counters().busy_most.to_seconds(), bytes / 10e9, 0.01 * bytes / 10e9);
  // On one core, the kernel's work is added to that.
  settings.cores = 1;
  settings.receive_frame = Time{8'960 * 100};
  Pair one(settings);
  one.send(bytes);
  EXPECT_NEAR(one.run().to_seconds(), 2 * bytes / 10e9, 0.05 * bytes / 10e9);
}

// GRO: frames that arrive together are answered by one acknowledgement.
TEST(HostStack, MergedFramesAreAcknowledgedTogether) {
  HostStackSettings settings = costs();
  settings.receive_frame = Time{1 * us};
  Pair pair(settings);
  pair.send(20'000'000);
  pair.run();
  HostStackSettings apart = settings;
  apart.merges = false;
  Pair other(apart);
  other.send(20'000'000);
  other.run();
  EXPECT_LT(3 * pair.b.frames_sent, other.b.frames_sent);
  EXPECT_LT(pair.b.stack.counters().busy_kernel, other.b.stack.counters().busy_kernel);
}

TEST(HostStack, ChunksAreCutByTheAdapterOrCostEach) {
  HostStackSettings whole;
  whole.cores = 2;
  whole.transmit = Time{1 * us};
  Pair pair(whole);
  pair.send(8'960 * 100);
  pair.run();
  HostStackSettings cut = whole;
  cut.chunk_bytes = 0;
  Pair other(cut);
  other.send(8'960 * 100);
  other.run();
  EXPECT_EQ(other.a.adapter.counters().transport.retransmitted_packets, 0u);
  EXPECT_EQ(other.a.adapter.counters().transport.tail_probes, 0u);
  EXPECT_EQ(other.a.frames_sent, 100u);
  EXPECT_EQ(other.a.stack.counters().busy_kernel, Time{100 * us});
  EXPECT_LT(pair.a.stack.counters().busy_kernel, Time{40 * us});
}

TEST(HostStack, AFullRingLosesAndTcpRepeats) {
  HostStackSettings settings = costs();
  settings.receive_ring_frames = 4;
  settings.receive_frame = Time{50 * us};
  Pair pair(settings);
  pair.send(2'000'000);
  EXPECT_FALSE(pair.run().is_never());
  EXPECT_GT(pair.lost, 0u);
  EXPECT_EQ(pair.b.stack.counters().receive_ring_drops, pair.lost);
}

TEST(HostStack, AFullTransmitQueueHoldsSendersBackAndLetsThemGoOn) {
  HostStackSettings settings = costs();
  settings.transmit_queue_bytes = 20'000;
  Pair pair(settings);
  pair.send(2'000'000);
  EXPECT_FALSE(pair.run().is_never());
  EXPECT_EQ(pair.a.adapter.counters().transport.ack_timeouts, 0u);
}

// A sender is held back until half of the queue has left, whether or not the peer answers.
TEST(HostStack, ASenderThatWasHeldBackGoesOnWhenHalfOfTheQueueHasLeft) {
  HostStackSettings settings = costs();
  settings.transmit_queue_bytes = 20'000;
  Pair pair(settings);
  pair.send(2'000'000);
  HostStack& stack = pair.a.stack;
  const auto work = [&] {
    for (; !stack.next_deadline().is_never(); stack.run(pair.now)) {
      pair.now = std::max(pair.now, stack.next_deadline());
    }
  };
  int frames = 0;
  for (work(); stack.has_frame(); work()) {
    stack.pull(pair.now);
    ++frames;
  }
  EXPECT_EQ(frames, 10) << "not the initial window of segments";
  EXPECT_FALSE(pair.a.adapter.next_deadline().is_never()) << "nobody would notice the losses";
}

TEST(HostStack, AStreamThatIsGoneIsNobodysJob) {
  for (const std::uint32_t cores : {1u, 2u}) {
    HostStackSettings settings = costs();
    settings.cores = cores;
    // At each moment other jobs wait for the stream.
    for (int moments = 0; moments < 60; ++moments) {
      Pair pair(settings);
      pair.send(1'000'000);
      EXPECT_TRUE(pair.run(moments).is_never());
      must(pair.a.adapter.destroy(pair.a.qp));
      EXPECT_TRUE(pair.run().is_never());
    }
  }
}

// A call of the application is done in parts, and enters the kernel once.
TEST(HostStack, ACallCostsOnceWhateverItsLength) {
  HostStackSettings settings;
  settings.cores = 2;
  settings.system_call = Time{1 * us};
  constexpr std::uint32_t part = 65'536;
  const auto calls_of = [&](std::uint32_t call_bytes) {
    settings.call_bytes = call_bytes;
    Pair pair(settings);
    pair.send(8 * part);
    pair.run();
    return pair.a.stack.counters().busy_application.ps / us;
  };
  EXPECT_EQ(calls_of(part), 8);
  EXPECT_EQ(calls_of(4 * part), 2);
  EXPECT_EQ(calls_of(8 * part), 1);
}

}  // namespace
}  // namespace tulle::device
