// Two machines of a fabric, in one process and in virtual time, over UDP sockets.

#include "live/fabric/other_machines.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/folder_test.h"
#include "fabric/subnet.h"
#include "fabric/subnet_traffic.h"
#include "live/slots.h"
#include "os/free_ports_test.h"

namespace tulle::live {
namespace {

// Returns machines at UDP ports that nobody has at the moment.
std::vector<fabric::Machine> two_machines() {
  const auto ports = free_ports(SOCK_DGRAM, 2);
  return {{"a", "127.0.0.1:" + ports[0], {}}, {"b", "127.0.0.1:" + ports[1], {}}};
}

TEST(MachineSocketTest, IsAtTheFirstAddressThatIsFree) {
  const auto machines = two_machines();
  auto first = MachineSocket::open(machines, "", "");
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->own(), 0u);
  // Another fabric's process on this machine is the next one.
  auto second = MachineSocket::open(machines, "b", "");
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->own(), 1u);
  auto taken = MachineSocket::open(machines, "a", "");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().error_number, EADDRINUSE);
  EXPECT_FALSE(MachineSocket::open(machines, "c", ""));
}

TEST(MachineSocketTest, IsAtNoAddressOfOthers) {
  auto opened = MachineSocket::open({{"a", "192.0.2.7", {}}, {"b", "192.0.2.8", {}}}, "", "");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().message, "none of the machines' addresses is this machine's");
}

class OtherMachinesTest : public testing::Test {
 protected:
  struct Side {
    Side(Time now, std::uint32_t number, const std::vector<fabric::Machine>& machines,
         const fabric::Topology& topology, const std::vector<std::uint32_t>& machine_of,
         const std::string& key_file)
        : subnet(now, topology, fabric::Tunnels::elsewhere({machine_of, 0, number, 0})),
          traffic(now, subnet, slot_of) {
      auto socket = MachineSocket::open(machines, machines[number].name, key_file);
      EXPECT_TRUE(socket);
      if (!socket) return;
      others.emplace(now, std::move(*socket), machines, machine_of, subnet, traffic);
    }
    fabric::Subnet subnet;
    fabric::SubnetTraffic traffic;
    std::optional<OtherMachines> others;
  };

  // With key files, by side; empty: nothing is sealed.
  void start(const std::array<std::string, 2>& key_files = {}) {
    const auto machines = two_machines();
    const fabric::Topology topology = *fabric::single_switch({2, {}});
    auto placed = fabric::place(topology, machines);
    ASSERT_TRUE(placed);
    for (std::uint32_t i = 0; i < 2; ++i) {
      sides_.push_back(std::make_unique<Side>(now_, i, machines, topology, *placed, key_files[i]));
      ASSERT_TRUE(sides_.back()->others);
    }
  }
  std::string key_file(const std::string& name, char digit) {
    std::string path = files_.path(name);
    std::ofstream(path) << std::string(64, digit) << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    return path;
  }
  std::string state(std::size_t of, std::size_t about) {
    return sides_[of]->others->status()[about].state;
  }
  void talk() {
    for (int round = 0; round < 10; ++round) {
      for (std::size_t from = 0; from < 2; ++from) {
        speak(*sides_[from]);
        Side& to = *sides_[1 - from];
        if (!has_input(to)) continue;
        to.others->wake();
        while (to.others->read(now_)) {
        }
      }
    }
  }
  // Lets one side say what is due.
  void speak(Side& side) {
    while (side.others->next_event() > now_) now_ = now_ + Time::milliseconds(10);
    side.others->run(now_);
    side.others->send();
  }
  bool has_input(const Side& side) {
    pollfd entry{side.others->descriptor(), POLLIN, 0};
    return poll(&entry, 1, 1'000) == 1;
  }

  const Folder files_;
  Time now_ = Time::seconds(1);
  std::vector<std::unique_ptr<Side>> sides_;
};

// The fabric does not sleep while there is more to read, and is woken once something has come.
TEST_F(OtherMachinesTest, ReadsUntilNothingIsLeft) {
  start();
  Side& a = *sides_[0];
  Side& b = *sides_[1];
  EXPECT_FALSE(b.others->read(now_)) << "nothing has come";
  speak(a);
  ASSERT_TRUE(has_input(b));
  b.others->wake();
  EXPECT_TRUE(b.others->read(now_)) << "there may be more";
  EXPECT_FALSE(b.others->read(now_));
  EXPECT_FALSE(b.others->read(now_)) << "and it stays so until it is woken";
}

TEST_F(OtherMachinesTest, HearOneAnother) {
  start();
  EXPECT_EQ(state(0, 0), "this machine");
  EXPECT_EQ(state(0, 1), "nothing is received from it");
  talk();
  EXPECT_EQ(state(0, 1), "connected");
  EXPECT_EQ(state(1, 0), "connected");
}

TEST_F(OtherMachinesTest, HearOneAnotherSealed) {
  const std::string key = key_file("key", 'a');
  start({key, key});
  talk();
  EXPECT_EQ(state(0, 1), "connected");
  EXPECT_EQ(state(1, 0), "connected");
}

// Any user of a machine that is down may have its address and port.
TEST_F(OtherMachinesTest, AMachineWithoutTheKeyIsNotHeard) {
  start({key_file("key", 'a'), ""});
  talk();
  EXPECT_EQ(state(0, 1), "nothing is received from it");
  EXPECT_EQ(state(1, 0), "nothing is received from it");
}

TEST_F(OtherMachinesTest, AMachineWithAnotherKeyIsNotHeard) {
  start({key_file("key", 'a'), key_file("other", 'b')});
  talk();
  EXPECT_EQ(state(0, 1), "nothing is received from it");
  EXPECT_EQ(state(1, 0), "nothing is received from it");
}

}  // namespace
}  // namespace tulle::live
