#include "rdma/device/adapter.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <set>

namespace {

// Counts the allocations of the whole program, so that a test can show that a stretch of code makes
// none.
std::atomic<std::uint64_t> allocations{0};
std::atomic<std::uint64_t> allocated_bytes{0};

void* allocate(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  allocated_bytes.fetch_add(bytes, std::memory_order_relaxed);
  void* memory = std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// GCC 12 warns of a mismatch where it sees through `operator delete` and not `operator new`.
[[gnu::noinline]] void release(void* memory) { std::free(memory); }

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }

namespace tulle::device {
namespace {

using verbs::Access;
using verbs::AccessFlags;
using verbs::CompletionStatus;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::QpType;
using verbs::SendOpcode;
using verbs::VerbsStatus;

void must(VerbsStatus status) { TULLE_CHECK(status == VerbsStatus::ok); }

// An adapter with memory and a completion queue.
struct Node {
  explicit Node(int number, std::uint32_t cq_entries = 4'096)
      : adapter(configuration(number)), gid(Gid::from_ipv4(0x0A00'0001 + number)) {
    adapter.set_gids({&gid, 1});
    VerbsStatus status{};
    pd = adapter.objects().create_pd(status);
    cq = adapter.objects().create_cq(cq_entries, nullptr, status);
    const auto access = AccessFlags(Access::local_write) | Access::remote_write |
                        Access::remote_read | Access::remote_atomic;
    region = adapter.objects().register_memory(*pd, memory.data(), memory.size(), 0x1000, access,
                                               status);
    must(status);
  }
  static Configuration configuration(int number) {
    Configuration out;
    out.seed = 40 + static_cast<std::uint64_t>(number);
    out.first_qp = QpNumber(0x100 + 0x4000 * number);
    return out;
  }
  transport::QueuePairInit init(QpType type = QpType::rc) const {
    transport::QueuePairInit out;
    out.type = type;
    out.pd = pd;
    out.send_cq = out.receive_cq = cq;
    out.send_work_requests = out.receive_work_requests = 64;
    out.send_sges = out.receive_sges = 2;
    return out;
  }
  transport::QueuePair* create(QpType type = QpType::rc) {
    VerbsStatus status{};
    transport::QueuePair* qp = adapter.create_qp(init(type), status);
    must(status);
    return qp;
  }
  void connect(transport::QueuePair& qp, QpNumber to, const Gid& where) {
    transport::QueuePairAttributes a;
    const bool ud = qp.type() == QpType::ud, rc = qp.type() == QpType::rc;
    a.state = QpState::init;
    a.pkey_index = pkey_index;
    a.access = AccessFlags(Access::remote_write) | Access::remote_read | Access::remote_atomic;
    auto mask = QpAttributeMask(QpAttribute::state) | QpAttribute::pkey_index | QpAttribute::port;
    must(adapter.modify(qp, a, mask | (ud ? QpAttribute::qkey : QpAttribute::access_flags)));
    a.state = QpState::rtr;
    a.path_mtu = verbs::Mtu::b1024;
    a.destination_qp = to;
    a.address.destination = where;
    a.max_dest_rd_atomic = 8;
    a.min_rnr_timer = 1;
    mask = QpAttribute::state;
    if (!ud) {
      mask |= QpAttributeMask(QpAttribute::address_vector) | QpAttribute::path_mtu |
              QpAttribute::destination_qp | QpAttribute::rq_psn;
    }
    if (rc) mask |= QpAttributeMask(QpAttribute::max_dest_rd_atomic) | QpAttribute::min_rnr_timer;
    must(adapter.modify(qp, a, mask));
    a.state = QpState::rts;
    a.timeout = 10;
    a.retry_count = a.rnr_retry = 7;
    a.max_rd_atomic = 8;
    mask = QpAttributeMask(QpAttribute::state) | QpAttribute::sq_psn;
    if (rc) {
      mask |= QpAttributeMask(QpAttribute::timeout) | QpAttribute::retry_count |
              QpAttribute::rnr_retry | QpAttribute::max_rd_atomic;
    }
    must(adapter.modify(qp, a, mask));
  }
  void post(transport::QueuePair& qp, SendOpcode opcode, std::uint32_t bytes, const Node& to) {
    const verbs::Sge sge{0x1000, bytes, region->lkey()};
    verbs::SendRequest request;
    request.opcode = opcode;
    request.flags = verbs::SendFlag::signaled;
    request.sges = {&sge, 1};
    request.remote_address = 0x1000 + 32'768;
    request.rkey = to.region->rkey();
    must(adapter.post_send(qp, request));
  }
  void post_receive(transport::QueuePair& qp, std::uint32_t bytes) {
    const verbs::Sge sge{0x1000 + 16'384, bytes, region->lkey()};
    must(adapter.post_receive(qp, {0, {&sge, 1}}));
  }
  std::uint32_t drain(CompletionStatus expected = CompletionStatus::success) {
    std::uint32_t count = 0;
    for (verbs::Completion completion; cq->poll({&completion, 1}) == 1; ++count) {
      EXPECT_EQ(completion.status, expected);
    }
    return count;
  }

  std::vector<std::byte> memory = std::vector<std::byte>(65'536);
  Adapter adapter;
  Gid gid;
  std::uint16_t pkey_index = 0;
  verbs::ProtectionDomain* pd = nullptr;
  verbs::CompletionQueue* cq = nullptr;
  verbs::MemoryRegion* region = nullptr;
};

// Passes datagrams between two nodes as bytes, without faults, until neither has any.
struct Wire {
  void run(Node& a, Node& b, Time now = {}) {
    while (move(a, b, now) || move(b, a, now)) {
    }
  }
  bool move(Node& from, Node& to, Time now) {
    bool any = false;
    while (from.adapter.pull_datagram(now, datagram)) {
      any = true;
      datagram.finish_frame(0);
      std::byte* at = bytes.data();
      const auto put = [&at](const std::byte* data, std::size_t size) {
        if (size > 0) std::memcpy(at, data, size);
        at += size;
      };
      put(datagram.frame.head.data(), datagram.frame.head_bytes);
      for (int i = 0; i < datagram.piece_count; ++i) {
        put(datagram.pieces[i].data(), datagram.pieces[i].size());
      }
      put(datagram.frame.tail.data(), datagram.frame.tail_bytes);
      const auto size = static_cast<std::size_t>(at - bytes.data());
      EXPECT_EQ(size, datagram.udp_payload_bytes());
      EXPECT_EQ(to.adapter.handle_datagram(now, datagram.ip(), true, {bytes.data(), size}),
                port::Verdict::ok);
    }
    return any;
  }
  Datagram datagram;
  std::vector<std::byte> bytes = std::vector<std::byte>(port::udp_payload_bytes_max);
};

// An RNR NAK makes the sender wait for less than its time-out, which was set before.
TEST(Adapter, AnAnswerThatSetsAnEarlierTimerMovesTheDeadline) {
  Node a(0), b(1);
  Wire wire;
  auto *from = a.create(), *to = b.create();
  a.connect(*from, to->number, b.gid);
  b.connect(*to, from->number, a.gid);
  a.post(*from, SendOpcode::send, 100, b);
  EXPECT_TRUE(wire.move(a, b, {}) && wire.move(b, a, {}));
  const Time due = Time::microseconds(10);  // IBTA table 46: code 1
  EXPECT_EQ(a.adapter.next_deadline(), due) << "before anything else is asked";
  b.post_receive(*to, 100);
  a.adapter.handle_deadline(due);
  wire.run(a, b, due);
  EXPECT_EQ(a.drain(), 1u);
  EXPECT_EQ(b.drain(), 1u);
}

TEST(Adapter, NoAllocationPerPacket) {
  Node a(0), b(1);
  Wire wire;
  auto *from = a.create(), *to = b.create();
  a.connect(*from, to->number, b.gid);
  b.connect(*to, from->number, a.gid);
  const auto round = [&] {
    for (int i = 0; i < 8; ++i) {
      b.post_receive(*to, 8'192);
      a.post_receive(*from, 8'192);
      a.post(*from, SendOpcode::send, 5'000, b);
      a.post(*from, SendOpcode::write, 5'000, b);
      a.post(*from, SendOpcode::read, 5'000, b);
      a.post(*from, SendOpcode::fetch_add, 8, b);
      b.post(*to, SendOpcode::send, 5'000, a);
    }
    wire.run(a, b);
    EXPECT_EQ(a.drain(), 40u);
    EXPECT_EQ(b.drain(), 16u);
  };
  for (int i = 0; i < 3; ++i) round();
  const std::uint64_t before = allocations, packets = a.adapter.counters().packets_sent;
  for (int i = 0; i < 40; ++i) round();
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_GT(a.adapter.counters().packets_sent - packets, 3'000u);
}

// Makes the same check with lost packets and expiring timers.
TEST(Adapter, NoAllocationPerRetry) {
  Node a(0), b(1);
  Wire wire;
  auto *from = a.create(), *to = b.create();
  a.connect(*from, to->number, b.gid);
  b.connect(*to, from->number, a.gid);
  Time now;
  const auto round = [&] {
    b.post_receive(*to, 8'192);
    a.post(*from, SendOpcode::send, 5'000, b);
    while (a.adapter.pull_datagram(now, wire.datagram)) {
    }
    now = a.adapter.next_deadline();
    a.adapter.handle_deadline(now);
    wire.run(a, b, now);
    EXPECT_EQ(a.drain(), 1u);
    EXPECT_EQ(b.drain(), 1u);
  };
  for (int i = 0; i < 10; ++i) round();
  const std::uint64_t before = allocations;
  for (int i = 0; i < 500; ++i) round();
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_EQ(a.adapter.counters().transport.ack_timeouts, 510u);
}

TEST(Adapter, AnIdleQueuePairIsSmall) {
  Node a(0);
  transport::QueuePairInit init = a.init();
  init.send_work_requests = init.receive_work_requests = 4'096;
  init.send_sges = init.receive_sges = 16;
  init.inline_bytes = 512;
  constexpr std::uint64_t count = 1'000;
  const std::uint64_t before = allocated_bytes;
  VerbsStatus status{};
  for (std::uint64_t i = 0; i < count; ++i) {
    transport::QueuePair* qp = a.adapter.create_qp(init, status);
    ASSERT_NE(qp, nullptr);
    a.connect(*qp, QpNumber(1), a.gid);
  }
  EXPECT_LE((allocated_bytes - before) / count, 16'384u);
}

TEST(Adapter, AThousandQueuePairsTakeTurns) {
  Node a(0, 65'536), b(1, 65'536);
  Wire wire;
  std::vector<transport::QueuePair*> from, to;
  std::set<std::uint32_t> numbers;
  constexpr std::uint32_t count = 1'000;
  for (std::uint32_t i = 0; i < count; ++i) {
    from.push_back(a.create());
    to.push_back(b.create());
    EXPECT_TRUE(numbers.insert(from.back()->number.value).second);
    EXPECT_GE(from.back()->number.value, 0x100u);
    EXPECT_LT(from.back()->number.value, 0x100u + 16'384);
    a.connect(*from.back(), to.back()->number, b.gid);
    b.connect(*to.back(), from.back()->number, a.gid);
  }
  EXPECT_EQ(a.adapter.queue_pairs_in_use(), count);
  for (auto* qp : to) b.post_receive(*qp, 16'384);
  // One queue pair has much to send, and all others a little. The others do not wait for the first.
  for (int i = 0; i < 8; ++i) a.post(*from[0], SendOpcode::write, 16'384, b);
  for (auto* qp : from) a.post(*qp, SendOpcode::send, 100, b);
  Datagram datagram;
  std::uint32_t of_first = 0;
  std::set<std::uint32_t> seen;
  while (seen.size() < count && a.adapter.pull_datagram({}, datagram)) {
    of_first += datagram.packet.destination_qp == to[0]->number ? 1 : 0;
    seen.insert(datagram.packet.destination_qp.value);
  }
  EXPECT_EQ(seen.size(), count);
  EXPECT_LE(of_first, 64u);
  // The pulled datagrams are lost, and the timers retransmit them all.
  for (Time now; a.cq->size() < count + 8;) {
    now = a.adapter.next_deadline();
    ASSERT_FALSE(now.is_never());
    a.adapter.handle_deadline(now);
    wire.run(a, b, now);
  }
  EXPECT_EQ(a.drain(), count + 8);
  EXPECT_EQ(b.drain(), count);
  for (auto* qp : from) must(a.adapter.destroy(qp));
  EXPECT_EQ(a.adapter.queue_pairs_in_use(), 0u);
}

TEST(Adapter, CountsWhatItDrops) {
  Node a(0), b(1);
  auto *from = a.create(), *to = b.create();
  a.connect(*from, to->number, b.gid);
  b.connect(*to, from->number, a.gid);
  b.post_receive(*to, 100);
  a.post(*from, SendOpcode::send, 10, b);
  Datagram datagram;
  ASSERT_TRUE(a.adapter.pull_datagram({}, datagram));
  const wire::Packet good = datagram.packet;
  const std::byte payload[10] = {};
  const auto hand_over = [&](const wire::Packet& packet) {
    b.adapter.handle_packet({}, packet, {payload, 10}, datagram.ip());
  };
  auto unknown = good;
  unknown.destination_qp = QpNumber(0xFF'FFFE);
  hand_over(unknown);
  EXPECT_EQ(b.adapter.counters().unknown_queue_pair, 1u);
  auto foreign = good;
  foreign.pkey = Pkey(0x8001);
  hand_over(foreign);
  EXPECT_EQ(b.adapter.counters().transport.dropped_packets, 1u);
  auto notification = good;
  notification.opcode = wire::congestion_notification;
  hand_over(notification);
  EXPECT_EQ(b.adapter.counters().congestion_notifications, 1u);
  EXPECT_EQ(b.cq->size(), 0u);
  auto limited = good;
  limited.pkey = Pkey(0x7FFF);  // a limited member may talk to a full member
  hand_over(limited);
  EXPECT_EQ(b.drain(), 1u);
  // The bytes of `nothing` are no packet, and `noise` is a damaged one.
  const std::byte nothing[3] = {};
  EXPECT_EQ(b.adapter.handle_datagram({}, datagram.ip(), true, nothing), port::Verdict::truncated);
  std::vector<std::byte> noise(64, std::byte{0x11});
  EXPECT_EQ(b.adapter.handle_datagram({}, datagram.ip(), true, noise), port::Verdict::bad_icrc);
  const Counters& counters = b.adapter.counters();
  EXPECT_EQ(counters.unknown_queue_pair, 1u) << "what is no packet is for nobody";
  EXPECT_EQ(counters.packets_received, 2u);
  EXPECT_EQ(counters.received_by_verdict[static_cast<std::size_t>(port::Verdict::truncated)], 1u);
  EXPECT_EQ(counters.received_by_verdict[static_cast<std::size_t>(port::Verdict::bad_icrc)], 1u);
  EXPECT_EQ(a.adapter.counters().packets_sent, 1u);
  EXPECT_EQ(a.adapter.counters().bytes_sent, 12u + 10 + 2 + 4);
}

// IBTA 10.9.3: a queue pair of one kind of member sends to one of another.
TEST(Adapter, QueuePairsTalkWithinTheirPartition) {
  constexpr Pkey full{0x8001}, limited{0x0001}, other{0x8002};
  struct Case {
    Pkey from, to;
    bool arrives;
  };
  for (const Case& c :
       {Case{full, full, true}, Case{full, limited, true}, Case{limited, full, true},
        Case{limited, limited, false}, Case{full, other, false}}) {
    Node a(0), b(1);
    const Pkey of_a[] = {default_pkey, c.from}, of_b[] = {default_pkey, c.to};
    a.adapter.set_pkeys(of_a);
    b.adapter.set_pkeys(of_b);
    auto *from = a.create(), *to = b.create();
    a.pkey_index = b.pkey_index = 1;
    a.connect(*from, to->number, b.gid);
    b.connect(*to, from->number, a.gid);
    b.post_receive(*to, 100);
    a.post(*from, SendOpcode::send, 10, b);
    Datagram datagram;
    ASSERT_TRUE(a.adapter.pull_datagram({}, datagram));
    EXPECT_EQ(datagram.packet.pkey, c.from);
    const std::byte payload[10] = {};
    b.adapter.handle_packet({}, datagram.packet, {payload, 10}, datagram.ip());
    EXPECT_EQ(b.cq->size(), c.arrives ? 1u : 0u);
    EXPECT_EQ(b.adapter.counters().pkey_violations, c.arrives ? 0u : 1u);
    b.drain();
  }
  Node c(2);

  auto* qp = c.create();
  transport::QueuePairAttributes attributes;
  attributes.state = verbs::QpState::init;
  attributes.pkey_index = 1;
  EXPECT_EQ(c.adapter.modify(*qp, attributes,
                             verbs::QpAttributeMask(verbs::QpAttribute::state) |
                                 verbs::QpAttribute::pkey_index | verbs::QpAttribute::port |
                                 verbs::QpAttribute::access_flags),
            VerbsStatus::invalid_argument)
      << "the table has one entry";
}

TEST(Adapter, TimersOfManyQueuePairs) {
  Node a(0), b(1);
  std::vector<transport::QueuePair*> qps;
  for (int i = 0; i < 3; ++i) {
    qps.push_back(a.create());
    a.connect(*qps.back(), QpNumber(0x4100), b.gid);
  }
  EXPECT_TRUE(a.adapter.next_deadline().is_never());
  const Time timeout = transport::ack_timeout(10);
  Datagram datagram;
  for (int i = 0; i < 3; ++i) {
    const Time now = Time::microseconds(10 * i);
    a.post(*qps[static_cast<std::size_t>(i)], SendOpcode::send, 8, b);
    while (a.adapter.pull_datagram(now, datagram)) {
    }
  }
  EXPECT_EQ(a.adapter.next_deadline(), timeout);
  // A queue pair that is gone causes no wake-up.
  must(a.adapter.destroy(qps[0]));
  a.adapter.handle_deadline(timeout);
  EXPECT_FALSE(a.adapter.pull_datagram(timeout, datagram));
  EXPECT_EQ(a.adapter.next_deadline(), timeout + Time::microseconds(10));
  a.adapter.handle_deadline(timeout + Time::microseconds(20));
  int again = 0;
  while (a.adapter.pull_datagram(timeout + Time::microseconds(20), datagram)) ++again;
  EXPECT_EQ(again, 2);
}

TEST(Adapter, ADestroyedQueuePairGetsNoPackets) {
  Node a(0), b(1);
  auto *from = a.create(), *to = b.create();
  a.connect(*from, to->number, b.gid);
  b.connect(*to, from->number, a.gid);
  for (int i = 0; i < 2; ++i) b.post_receive(*to, 100);
  for (int i = 0; i < 2; ++i) a.post(*from, SendOpcode::send, 10, b);
  const std::byte payload[10] = {};
  Datagram datagram;
  ASSERT_TRUE(a.adapter.pull_datagram({}, datagram));
  b.adapter.handle_packet({}, datagram.packet, {payload, 10}, datagram.ip());
  EXPECT_EQ(b.drain(), 1u);
  must(b.adapter.destroy(to));
  ASSERT_TRUE(a.adapter.pull_datagram({}, datagram));
  b.adapter.handle_packet({}, datagram.packet, {payload, 10}, datagram.ip());
  EXPECT_EQ(b.adapter.counters().unknown_queue_pair, 1u);
}

TEST(Adapter, TheMemoryOfDestroyedQueuePairsIsUsedAgain) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer does not reuse memory for a while.";
#endif
  Node node(0);
  std::set<const transport::QueuePair*> places;
  for (int i = 0; i < 100; ++i) {
    transport::QueuePair* qp = node.create();
    places.insert(qp);
    must(node.adapter.destroy(qp));
  }
  EXPECT_LT(places.size(), 10u);
}

TEST(Adapter, ASharedQueuesLimitIsAtMostItsCapacity) {
  Node a(0);
  VerbsStatus status{};
  Objects& objects = a.adapter.objects();
  auto* srq = objects.create_srq(*a.pd, 8, 1, nullptr, status);
  must(status);
  const std::uint32_t capacity = srq->queue.capacity();
  const std::uint32_t more = capacity + 1, fewer = capacity - 1;
  must(objects.modify(*srq, nullptr, &capacity));
  EXPECT_EQ(srq->limit, capacity);
  EXPECT_EQ(objects.modify(*srq, nullptr, &more), VerbsStatus::invalid_argument);
  EXPECT_EQ(objects.modify(*srq, &fewer, &capacity), VerbsStatus::invalid_argument);
  EXPECT_EQ(srq->queue.capacity(), capacity);
  EXPECT_EQ(srq->limit, capacity);
  must(objects.destroy(srq));
}

TEST(Adapter, ARegionWithABoundWindowIsBusy) {
  Node a(0);
  VerbsStatus status{};
  Objects& objects = a.adapter.objects();
  const AccessFlags access = AccessFlags(Access::local_write) | Access::bind_window;
  std::array<std::byte, 64> bytes{};
  auto* region = objects.register_memory(*a.pd, bytes.data(), bytes.size(), 0, access, status);
  must(status);
  auto* window = objects.create_window(*a.pd, verbs::WindowType::type1, status);
  must(status);
  region->bound_windows = 1;
  Objects::Reregistration change;
  change.change_access = true;
  change.access = Access::local_write;
  EXPECT_EQ(objects.reregister(*region, change), VerbsStatus::busy);
  EXPECT_EQ(region->access, access);
  EXPECT_EQ(objects.destroy(region), VerbsStatus::busy);
  region->bound_windows = 0;
  must(objects.reregister(*region, change));
  EXPECT_EQ(region->access, AccessFlags(Access::local_write));
  must(objects.destroy(window));
  must(objects.destroy(region));
}

TEST(Adapter, ARegionThatIsRegisteredAgainNamesItsNewMemory) {
  Node a(0), b(1);
  std::array<std::byte, 64> moved{};
  Objects::Reregistration change;
  change.change_range = true;
  change.address = moved.data();
  change.length = moved.size();
  change.iova = 0x1000;
  const std::uint32_t key = a.region->lkey().value;
  must(a.adapter.objects().reregister(*a.region, change));
  EXPECT_NE(a.region->lkey().value, key) << "an old key must not reach the new memory";
  Wire wire;
  auto *from = a.create(), *to = b.create();
  a.connect(*from, to->number, b.gid);
  b.connect(*to, from->number, a.gid);
  std::fill(b.memory.begin(), b.memory.end(), std::byte{7});
  a.post(*from, SendOpcode::read, 64, b);
  wire.run(a, b);
  EXPECT_EQ(a.drain(), 1u);
  EXPECT_EQ(moved.back(), std::byte{7});
  EXPECT_EQ(a.memory.front(), std::byte{0});
}

// IBTA 10.2.4.4: the completions of a queue pair go with it.
TEST(Adapter, AQueuePairThatIsDestroyedLeavesNoCompletions) {
  Node a(0);
  VerbsStatus status{};
  verbs::CompletionQueue* sends = a.adapter.objects().create_cq(8, nullptr, status);
  verbs::CompletionQueue* receives = a.adapter.objects().create_cq(8, nullptr, status);
  transport::QueuePairInit init = a.init();
  init.send_cq = sends;
  init.receive_cq = receives;
  transport::QueuePair* qp = a.adapter.create_qp(init, status);
  must(status);
  a.connect(*qp, QpNumber(9), Gid::from_ipv4(0x0A00'0009));
  a.post(*qp, SendOpcode::send, 10, a);
  a.post_receive(*qp, 10);
  transport::QueuePairAttributes to;
  to.state = QpState::error;
  must(a.adapter.modify(*qp, to, QpAttribute::state));
  EXPECT_EQ(sends->size(), 1u);
  EXPECT_EQ(receives->size(), 1u);
  must(a.adapter.destroy(qp));
  EXPECT_EQ(sends->size(), 0u);
  EXPECT_EQ(receives->size(), 0u);
}

TEST(Adapter, ObjectsInUseAreBusy) {
  Node a(0);
  VerbsStatus status{};
  transport::QueuePair* qp = a.create();
  auto* srq = a.adapter.objects().create_srq(*a.pd, 8, 1, nullptr, status);
  must(status);
  EXPECT_EQ(a.adapter.objects().destroy(a.pd), VerbsStatus::busy);
  EXPECT_EQ(a.adapter.objects().destroy(a.cq), VerbsStatus::busy);
  auto init = a.init();
  init.srq = srq;
  transport::QueuePair* shared = a.adapter.create_qp(init, status);
  must(status);
  EXPECT_EQ(a.adapter.objects().destroy(srq), VerbsStatus::busy);
  must(a.adapter.destroy(shared));
  must(a.adapter.objects().destroy(srq));
  must(a.adapter.destroy(qp));
  must(a.adapter.objects().destroy(a.cq));
  must(a.adapter.objects().destroy(a.region));
  must(a.adapter.objects().destroy(a.pd));
}

TEST(Adapter, WhatIsOutOfRangeIsRefused) {
  Node a(0);
  VerbsStatus status{};
  std::byte byte{};
  EXPECT_EQ(a.adapter.objects().register_memory(*a.pd, &byte, 1, 0, Access::remote_write, status),
            nullptr);
  EXPECT_EQ(status, VerbsStatus::invalid_argument) << "a remote right without the local one";
  EXPECT_EQ(a.adapter.objects().register_memory(*a.pd, &byte, 16, ~std::uint64_t{7}, {}, status),
            nullptr);
  EXPECT_EQ(a.adapter.objects().create_cq(0, nullptr, status), nullptr);
  EXPECT_EQ(a.adapter.objects().create_srq(*a.pd, 1, 17, nullptr, status), nullptr);
  auto init = a.init();
  init.send_sges = 17;
  EXPECT_EQ(a.adapter.create_qp(init, status), nullptr);
  init = a.init();
  init.pd = nullptr;
  EXPECT_EQ(a.adapter.create_qp(init, status), nullptr);
  verbs::AddressVector to;
  to.source_gid_index = 1;
  EXPECT_EQ(a.adapter.create_ah(*a.pd, to, status), nullptr);
}

TEST(Adapter, DomainsAddressHandlesAndSharedQueuesAreLimited) {
  Configuration configuration = Node::configuration(0);
  configuration.limits.shared_receive_queues = 1;
  configuration.limits.protection_domains = 1;
  configuration.limits.address_handles = 1;
  Adapter adapter(configuration);
  const Gid gid = Gid::from_ipv4(0x0A00'0001);
  adapter.set_gids({&gid, 1});
  VerbsStatus status{};
  verbs::ProtectionDomain* pd = adapter.objects().create_pd(status);
  ASSERT_NE(pd, nullptr);
  EXPECT_EQ(adapter.objects().create_pd(status), nullptr);
  EXPECT_EQ(status, VerbsStatus::out_of_memory);
  verbs::AddressVector to;
  to.destination = gid;
  verbs::AddressHandle* handle = adapter.create_ah(*pd, to, status);
  ASSERT_NE(handle, nullptr);
  EXPECT_EQ(adapter.create_ah(*pd, to, status), nullptr);
  EXPECT_EQ(status, VerbsStatus::out_of_memory);
  verbs::SharedReceiveQueue* srq = adapter.objects().create_srq(*pd, 8, 1, nullptr, status);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(adapter.objects().create_srq(*pd, 8, 1, nullptr, status), nullptr);
  EXPECT_EQ(status, VerbsStatus::out_of_memory);
  must(adapter.objects().destroy(srq));
  must(adapter.destroy(handle));
  must(adapter.objects().destroy(pd));
  EXPECT_NE(adapter.objects().create_pd(status), nullptr) << "there is room again";
}

// A receiver that is not ready is asked again after its time, which is sooner than the time-out.
TEST(Adapter, AnAnswerMovesTheDeadlineOfItsQueuePair) {
  Node a(0), b(1);
  Wire wire;
  auto *from = a.create(), *to = b.create();
  a.connect(*from, to->number, b.gid);
  b.connect(*to, from->number, a.gid);
  a.post(*from, SendOpcode::send, 10, b);
  wire.run(a, b);
  EXPECT_EQ(a.adapter.counters().transport.rnr_naks_received, 1u);
  EXPECT_EQ(a.adapter.next_deadline(), Time::microseconds(10));
  b.post_receive(*to, 100);
  a.adapter.handle_deadline(Time::microseconds(10));
  wire.run(a, b, Time::microseconds(10));
  EXPECT_EQ(a.drain(), 1u);
}

TEST(Adapter, EventsOfOthersStay) {
  Node a(0);
  VerbsStatus status{};
  auto* srq = a.adapter.objects().create_srq(*a.pd, 8, 1, nullptr, status);
  auto init = a.init();
  init.srq = srq;
  transport::QueuePair* qp = a.adapter.create_qp(init, status);
  must(status);
  a.connect(*qp, QpNumber(1), a.gid);
  transport::QueuePairAttributes to;
  to.state = QpState::error;
  must(a.adapter.modify(*qp, to, QpAttribute::state));
  must(a.adapter.objects().destroy(a.adapter.objects().create_cq(8, nullptr, status)));
  must(a.adapter.objects().destroy(a.adapter.objects().create_srq(*a.pd, 8, 1, nullptr, status)));
  must(a.adapter.destroy(a.create()));
  Event event;
  ASSERT_TRUE(a.adapter.pull_event(event));
  EXPECT_EQ(event.type, verbs::EventType::last_wqe_reached);
  EXPECT_EQ(event.qp, qp);
}

TEST(Adapter, EventsOfWhatIsGoneAreGone) {
  Node a(0);
  VerbsStatus status{};
  auto* cq = a.adapter.objects().create_cq(8, nullptr, status);
  auto init = a.init();
  init.send_cq = init.receive_cq = cq;
  transport::QueuePair* qp = a.adapter.create_qp(init, status);
  a.connect(*qp, QpNumber(1), a.gid);
  a.adapter.objects().request_notification(*cq, false);
  transport::QueuePairAttributes to;
  to.state = QpState::error;
  a.post_receive(*qp, 8);
  must(a.adapter.modify(*qp, to, QpAttribute::state));
  must(a.adapter.destroy(qp));
  must(a.adapter.objects().destroy(cq));
  Event event;
  EXPECT_FALSE(a.adapter.pull_event(event));
}

}  // namespace
}  // namespace tulle::device
