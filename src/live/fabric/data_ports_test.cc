// Programs' rings and a subnet's switches, in one process and in virtual time.

#include "live/fabric/data_ports.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fabric/settle_test.h"
#include "fabric/subnet_managers.h"
#include "live/bell.h"
#include "live/message/socket.h"
#include "live/slots.h"
#include "rdma/port/framing/infiniband.h"
#include "rdma/wire/packet.h"

namespace tulle::live {
namespace {

using Bytes = std::vector<std::byte>;

fabric::Topology one_switch() {
  auto topology = fabric::from_csv("a,b,gbps,delay_ns\n0,3,100,1\n1,3,100,1\n2,3,100,1\n", "test");
  return std::move(*topology);
}

struct Program {
  std::uint32_t client = 0;
  std::uint32_t host = 0;
  DataPorts::Opened opened;
  Bell bell;
  std::unique_ptr<FabricRings> rings;
};

class DataPortsTest : public testing::Test {
 protected:
  DataPortsTest() {
    fabric::settle(now_, subnet_, managers_);
    ports_.emplace(now_, subnet_);
  }

  Result<DataPorts::Opened> open(std::uint32_t host, std::uint32_t client) {
    auto bell = create_bell();
    return ports_->open(now_, host, client, std::move(bell->button), static_cast<int>(client));
  }
  Program program(std::uint32_t host, std::uint32_t client, int process = 0) {
    Program made;
    made.client = client;
    made.host = host;
    auto bell = create_bell();
    made.bell.bell = std::move(bell->bell);
    auto opened = ports_->open(now_, host, client, std::move(bell->button), process);
    EXPECT_TRUE(opened) << opened.error().message;
    made.opened = std::move(*opened);
    auto rings =
        FabricRings::map(UniqueFd(dup(made.opened.memory.get())),
                         UniqueFd(dup(made.opened.button.get())), FabricRings::End::program);
    EXPECT_TRUE(rings);
    made.rings = std::make_unique<FabricRings>(std::move(*rings));
    return made;
  }
  Bytes packet(const Program& from, const Program& to, std::size_t payload,
               std::uint32_t number = 0, std::uint8_t level = 0) const {
    wire::LocalPath path;
    path.local.service_level = level;
    path.local.source = Lid(subnet_.node(from.host).port_info(1).lid);
    path.local.destination = Lid(subnet_.node(to.host).port_info(1).lid);
    wire::Packet packet;
    packet.opcode = wire::opcode(wire::TransportClass::uc, wire::Operation::send_only);
    packet.destination_qp = QpNumber(to.opened.first_qp + 3);
    packet.psn = Psn(number);
    Bytes bytes(8 + 12 + payload, static_cast<std::byte>(number));
    const std::size_t link = port::encode_link_headers(path, bytes.size() - 8, bytes);
    wire::encode(packet, std::span(bytes).subspan(link));
    return bytes;
  }
  // Returns false if the program's ring has no room.
  bool send(Program& from, const Bytes& bytes, std::uint32_t lane = 0) {
    std::byte* room = from.rings->reserve(bytes.size(), lane);
    if (room == nullptr) return false;
    std::memcpy(room, bytes.data(), bytes.size());
    from.rings->publish(bytes.size(), lane);
    from.rings->ring_if_asleep();
    return true;
  }
  Bytes receive(Program& program) {
    const auto record = program.rings->in().take();
    if (!record) return {};
    Bytes bytes(record->content.begin(), record->content.end());
    program.rings->tell();
    return bytes;
  }
  // Does what the fabric's process does when programs have rung.
  void turn(const std::vector<Program*>& programs) {
    for (const Program* each : programs) ports_->answer(each->client);
    while (ports_->progress(now_)) {
    }
  }

  Time now_ = Time::seconds(1);
  fabric::Subnet subnet_{now_, one_switch()};
  fabric::SubnetManagers managers_{now_, subnet_, {}};
  std::optional<DataPorts> ports_;
};

TEST_F(DataPortsTest, PacketsGoFromRingToRing) {
  Program a = program(0, 1), b = program(2, 2);
  for (std::uint32_t i = 0; i < 3'000; ++i) {
    const Bytes sent = packet(a, b, 4 * (i % 1'024), i);
    ASSERT_TRUE(send(a, sent));
    turn({&a, &b});
    ASSERT_TRUE(receive(b) == sent) << i;
    ASSERT_TRUE(receive(b).empty());
  }
  EXPECT_EQ(ports_->programs(0), 1u);
  EXPECT_EQ(ports_->programs(1), 0u);
}

// Other programs of the host find places, however many one program takes.
TEST_F(DataPortsTest, AProcessHasAShareOfTheSlots) {
  std::uint32_t client = 0;
  const auto open_as = [&](std::uint32_t host, int process) {
    auto bell = create_bell();
    return ports_->open(now_, host, ++client, std::move(bell->button), process);
  };
  for (std::size_t i = 0; i < DataPorts::slots_of_process_max; ++i) ASSERT_TRUE(open_as(0, 7)) << i;
  auto refused = open_as(0, 7);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "process 7 has the port of this host open 64 times, which is the most for one process");
  EXPECT_TRUE(open_as(0, 8));
  EXPECT_TRUE(open_as(1, 7));
  ports_->close(now_, 1);
  EXPECT_TRUE(open_as(0, 7));
}

TEST_F(DataPortsTest, UnknownProcessesHaveAShareOfTheSlots) {
  std::uint32_t client = 0;
  const auto open_as = [&](int process) {
    auto bell = create_bell();
    return ports_->open(now_, 0, ++client, std::move(bell->button), process);
  };
  for (std::size_t i = 0; i < DataPorts::slots_of_unknown_max; ++i) ASSERT_TRUE(open_as(0)) << i;
  auto refused = open_as(0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "programs of other PID namespaces have the port of this host open 63 times, which is "
            "the most for them");
  EXPECT_TRUE(open_as(8));
}

// However many parts of ports a process has, their packets take little more of a turn than those of
// a few. What is no packet costs no room in the switches, so nothing else would stop it.
TEST_F(DataPortsTest, AProcessHasAShareOfTheRounds) {
  constexpr std::uint32_t parts = 64;
  const Bytes junk(64, std::byte{0x5A});
  std::vector<Program> programs;
  for (std::uint32_t i = 0; i < parts; ++i) programs.push_back(program(0, i + 1, 7));
  programs.push_back(program(0, parts + 1, 8));
  for (Program& each : programs) {
    while (send(each, junk)) {
    }
    ports_->answer(each.client);
  }
  const auto before = ports_->counters().invalid;
  ports_->progress(now_);
  const std::uint64_t of_all = ports_->counters().invalid - before;
  EXPECT_LE(of_all, 16u * (4 * 64 + 64));
  EXPECT_GE(of_all, 4 * 64 + 64u) << "a round";
}

// The owner, which serves many programs, closes them elsewhere.
TEST_F(DataPortsTest, DescriptorsThatSlowlyCloseGoToTheCaller) {
  auto bell = create_bell();
  auto opened = ports_->open(now_, 0, 1, UniqueFd(dup(bell->button.get())));
  ASSERT_TRUE(opened);
  // The rings have closed theirs.
  const auto left = ports_->close(now_, 1);
  const auto has = [](const UniqueFd& each) { return static_cast<bool>(each); };
  ASSERT_EQ(left.size(), 2u);
  EXPECT_TRUE(std::ranges::all_of(left, has));
  UniqueFd no_button(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(ports_->open(now_, 0, 2, std::move(no_button)));
  EXPECT_TRUE(no_button);  // NOLINT(bugprone-use-after-move): it was refused
}

TEST_F(DataPortsTest, AProgramIsLookedAtWhenItHasRung) {
  Program a = program(0, 1), b = program(2, 2);
  ASSERT_TRUE(send(a, packet(a, b, 64)));
  while (ports_->progress(now_)) {
  }
  EXPECT_TRUE(receive(b).empty()) << "nobody has read the bell";
  turn({&a});
  EXPECT_FALSE(receive(b).empty());
}

TEST_F(DataPortsTest, AFullRingHoldsItsSenderAndLosesNothing) {
  Program a = program(0, 1), b = program(2, 2);
  std::uint32_t sent = 0, received = 0;
  while (received < 5'000) {
    while (sent < 5'000 && send(a, packet(a, b, 4'096, sent))) ++sent;
    turn({&a, &b});
    if (sent < 5'000) {
      EXPECT_LE(sent - received, 300u) << "two rings and some lanes";
    }
    const Bytes came = receive(b);
    ASSERT_TRUE(came == packet(a, b, 4'096, received)) << received;
    ++received;
  }
  EXPECT_EQ(ports_->counters().lost + ports_->counters().overdue, 0u);
}

// The fabric sleeps until somebody rings. What it could move by itself must not wait for that.
TEST_F(DataPortsTest, OneTurnMovesAllForWhichThereIsRoom) {
  Program a = program(0, 1), b = program(2, 2);
  constexpr std::uint32_t packets = 50;  // fewer than a ring has room for
  for (std::uint32_t i = 0; i < packets; ++i) ASSERT_TRUE(send(a, packet(a, b, 4'096, i)));
  turn({&a});
  for (std::uint32_t i = 0; i < packets; ++i) ASSERT_FALSE(receive(b).empty()) << i;
}

// A program that has made room rings for those who wait for some, and for nobody else.
TEST_F(DataPortsTest, WhoHasRoomIsNotRungForIt) {
  Program a = program(0, 1), b = program(2, 2);
  const auto has_rung = [&](const Program& by) {
    std::byte byte;
    return recv(ports_->bell(by.client), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
  };
  ASSERT_TRUE(send(a, packet(a, b, 64)));
  turn({&a, &b});
  EXPECT_FALSE(receive(b).empty());
  EXPECT_FALSE(has_rung(b));
  for (std::uint32_t sent = 0; send(a, packet(a, b, 4'096, sent)); ++sent) turn({&a});
  EXPECT_FALSE(receive(b).empty());
  EXPECT_TRUE(has_rung(b));
}

TEST_F(DataPortsTest, UsersInTheFabricsProcessSendAndReceive) {
  Program a = program(0, 1), b = program(2, 2);
  std::vector<Bytes> came, others;
  auto own = ports_->open_own(now_, 2, [&](Time, std::span<const std::byte> bytes) {
    came.emplace_back(bytes.begin(), bytes.end());
  });
  auto other = ports_->open_own(now_, 1, [&](Time, std::span<const std::byte> bytes) {
    others.emplace_back(bytes.begin(), bytes.end());
  });
  ASSERT_TRUE(own && other);
  Program user;
  user.host = 2;
  user.opened.first_qp = own->first_qp;
  const Bytes sent = packet(a, user, 256, 7);
  ASSERT_TRUE(send(a, sent));
  turn({&a, &b});
  EXPECT_EQ(came, std::vector<Bytes>{sent});
  EXPECT_TRUE(others.empty()) << "it was for another user";
  EXPECT_TRUE(receive(b).empty());
  const Bytes answer = packet(user, a, 256, 8);
  ASSERT_TRUE(ports_->send(now_, *own, answer));
  turn({&a, &b});
  EXPECT_TRUE(receive(a) == answer);
}

// Much that has come for a program wakes it while the fabric is still at work, so that both work at
// the same time. For a little, it is woken once, at the end.
TEST_F(DataPortsTest, ASleeperIsWokenEarlyByMuch) {
  Program a = program(0, 1), sleeper = program(1, 2);
  const auto is_woken = [&] {
    std::byte byte;
    return recv(sleeper.bell.bell.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
  };
  // Two others are given packets in the same turn, one of them after the sleeper.
  bool was_woken = false;
  std::array<Program, 2> others;
  for (Program& other : others) {
    auto own = ports_->open_own(
        now_, 2, [&](Time, std::span<const std::byte>) { was_woken = was_woken || is_woken(); });
    ASSERT_TRUE(own);
    other.host = 2;
    other.opened.first_qp = own->first_qp;
  }
  for (const std::uint32_t packets : {1, 8}) {
    sleeper.rings->fall_asleep();
    ASSERT_TRUE(send(a, packet(a, others[0], 64)));
    for (std::uint32_t i = 0; i < packets; ++i) ASSERT_TRUE(send(a, packet(a, sleeper, 4'096, i)));
    ASSERT_TRUE(send(a, packet(a, others[1], 64)));
    turn({&a});
    EXPECT_EQ(was_woken, packets > 1) << packets;
    EXPECT_TRUE(is_woken()) << packets;
    std::byte byte;
    EXPECT_EQ(recv(sleeper.bell.bell.get(), &byte, 1, MSG_DONTWAIT), 1);
    for (std::uint32_t i = 0; i < packets; ++i) EXPECT_FALSE(receive(sleeper).empty());
  }
}

TEST_F(DataPortsTest, AProgramThatReadsNothingHarmsNobodyForLong) {
  Program a = program(0, 1), stuck = program(2, 2), good = program(2, 3);
  while (send(a, packet(a, stuck, 4'096))) turn({&a});
  // Packets behind it in the sender's ring wait until the patience with the stuck program is over.
  for (int i = 0; i < 100; ++i) {
    now_ = now_ + Time::milliseconds(10);
    turn({&a});
  }
  ASSERT_TRUE(send(a, packet(a, good, 64, 9)));
  turn({&a, &good});
  EXPECT_TRUE(receive(good) == packet(a, good, 64, 9));
  EXPECT_GT(ports_->counters().overdue, 0u);
}

// It may wait for a processor.
TEST_F(DataPortsTest, AProgramThatIsNotStoppedIsWaitedForLonger) {
  Program a = program(0, 1), slow = program(2, 2, getpid()), good = program(2, 3);
  std::uint32_t sent = 0;
  while (send(a, packet(a, slow, 4'096, sent))) {
    ++sent;
    turn({&a});
  }
  const auto pass = [&](int milliseconds) {
    for (int i = 0; i < milliseconds / 10; ++i) {
      now_ = now_ + Time::milliseconds(10);
      turn({&a});
    }
  };
  pass(900);
  EXPECT_EQ(ports_->counters().overdue, 0u);
  for (std::uint32_t i = 0; i < sent; ++i) {
    ASSERT_TRUE(receive(slow) == packet(a, slow, 4'096, i)) << i;
    turn({&a, &slow});
  }
  EXPECT_EQ(ports_->counters().overdue + ports_->counters().lost, 0u);
  // It does not hold up its host for longer than a switch lets a packet wait.
  while (send(a, packet(a, slow, 4'096))) turn({&a});
  pass(3'000);
  EXPECT_GT(ports_->counters().overdue, 0u);
  ASSERT_TRUE(send(a, packet(a, good, 64, 9)));
  turn({&a, &good});
  const Bytes came = receive(good);
  EXPECT_TRUE(came == packet(a, good, 64, 9)) << came.size() << " bytes";
}

TEST_F(DataPortsTest, AProgramThatReadsAgainIsHeardAtOnce) {
  Program a = program(0, 1), stuck = program(2, 2);
  while (send(a, packet(a, stuck, 4'096))) turn({&a});
  for (int i = 0; i < 20; ++i) {
    now_ = now_ + Time::milliseconds(10);
    turn({&a});
  }
  EXPECT_GT(ports_->counters().overdue, 0u);
  while (!receive(stuck).empty()) turn({&a, &stuck});
  ASSERT_TRUE(send(a, packet(a, stuck, 64, 9)));
  turn({&a, &stuck});
  EXPECT_TRUE(receive(stuck) == packet(a, stuck, 64, 9));
}

// A program that reads nothing stops the lane of who sends to it. The sender's other lane goes on,
// to whom it likes.
TEST_F(DataPortsTest, AVictimOnAnotherLaneIsNotStopped) {
  Program a = program(0, 1), stuck = program(2, 2), good = program(1, 3);
  while (send(a, packet(a, stuck, 4'096))) turn({&a});
  for (std::uint32_t i = 0; i < 1'000; ++i) {
    const Bytes sent = packet(a, good, 1'024, i, 1);
    ASSERT_TRUE(send(a, sent, 1));
    turn({&a, &good});
    ASSERT_TRUE(receive(good) == sent) << i;
  }
  EXPECT_EQ(ports_->counters().overdue + ports_->counters().lost, 0u);
  // The slow one has lost nothing either.
  int slow = 0;
  for (int i = 0; i < 1'000; ++i) {
    while (!receive(stuck).empty()) ++slow;
    turn({&a, &stuck});
  }
  EXPECT_GT(slow, 64);
  EXPECT_EQ(ports_->counters().overdue + ports_->counters().lost, 0u);
}

TEST_F(DataPortsTest, AHostHasAsManyPlacesAsSlots) {
  std::uint32_t client = 1;
  for (; client <= fabric::SubnetTraffic::slots_max; ++client) ASSERT_TRUE(open(1, client));
  auto refused = open(1, client);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "127 programs have the port of this host open, which is the most");
  EXPECT_TRUE(open(0, client + 1)) << "another host has its own";
  ports_->close(now_, 5);
  EXPECT_TRUE(open(1, client + 2));
}

TEST_F(DataPortsTest, TheNextProgramInASlotHasOtherNumbers) {
  auto first = open(0, 1);
  ports_->close(now_, 1);
  auto second = open(0, 2);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->slot, second->slot);
  EXPECT_NE(first->first_qp, second->first_qp);
  for (const DataPorts::Opened* opened : {&*first, &*second}) {
    EXPECT_EQ(slot_of(QpNumber(opened->first_qp)), opened->slot);
    EXPECT_EQ(slot_of(QpNumber(opened->first_qp + opened->qp_count - 1)), opened->slot);
  }
}

TEST_F(DataPortsTest, PacketsToAProgramThatHasGoneAreDropped) {
  Program a = program(0, 1), b = program(2, 2);
  const Bytes sent = packet(a, b, 64);
  ports_->close(now_, 2);
  ASSERT_TRUE(send(a, sent));
  turn({&a});
  EXPECT_EQ(ports_->counters().unrouted, 1u);
  Program c = program(2, 3);
  turn({&a, &c});
  EXPECT_TRUE(receive(c).empty());
}

TEST_F(DataPortsTest, WhatAProgramSentBeforeItWentArrives) {
  Program a = program(0, 1), b = program(2, 2);
  for (std::uint32_t i = 0; i < 50; ++i) ASSERT_TRUE(send(a, packet(a, b, 64, i)));
  ports_->close(now_, 1);
  turn({&b});
  for (std::uint32_t i = 0; i < 50; ++i) EXPECT_EQ(receive(b).size(), 8u + 12 + 64) << i;
}

TEST_F(DataPortsTest, AProgramMustGiveASocketToBeWokenBy) {
  EXPECT_FALSE(ports_->open(now_, 0, 1, {}));
  EXPECT_FALSE(ports_->open(now_, 0, 1, UniqueFd(socket(AF_INET, SOCK_DGRAM, 0))));
  EXPECT_EQ(ports_->programs(0), 0u);
}

TEST_F(DataPortsTest, RecordsThatAreNoPacketsAreCounted) {
  Program a = program(0, 1), b = program(2, 2);
  ASSERT_TRUE(send(a, Bytes(1)));
  ASSERT_TRUE(send(a, Bytes(500, std::byte{0xFF})));
  ASSERT_TRUE(send(a, Bytes(16'000)));
  ASSERT_TRUE(send(a, packet(b, a, 64))) << "from another's LID";
  ASSERT_TRUE(send(a, packet(a, b, 64)));
  turn({&a, &b});
  EXPECT_EQ(ports_->counters().invalid, 4u);
  EXPECT_FALSE(receive(b).empty());
}

}  // namespace
}  // namespace tulle::live
