#include "fabric/waiting_ports.h"

#include <gtest/gtest.h>

#include <vector>

namespace tulle::fabric {
namespace {

constexpr NodePort a{0, 1}, b{2, 3};

std::vector<NodePort> checked(WaitingPorts& ports, Time now, bool waits) {
  std::vector<NodePort> all;
  ports.check(now, [&](NodePort at) {
    all.push_back(at);
    return waits;
  });
  return all;
}

TEST(WaitingPortsTest, APortIsCheckedUntilNoneWaits) {
  WaitingPorts ports;
  EXPECT_TRUE(ports.next_check().is_never());
  EXPECT_TRUE(checked(ports, Time::seconds(1), true).empty());
  Time now = Time::seconds(1);
  ports.add(now, a);
  ports.add(now + Time::milliseconds(1), b);
  ports.add(now, a);
  EXPECT_EQ(ports.next_check(), now + WaitingPorts::between_checks);
  EXPECT_TRUE(checked(ports, now, true).empty()) << "it is too early";
  now = ports.next_check();
  EXPECT_EQ(checked(ports, now, true), (std::vector{a, b}));
  EXPECT_EQ(ports.next_check(), now + WaitingPorts::between_checks);
  now = ports.next_check();
  EXPECT_EQ(checked(ports, now, false), (std::vector{a, b}));
  EXPECT_TRUE(ports.next_check().is_never());
}

TEST(WaitingPortsTest, ALateCheckWaitsOnceMore) {
  WaitingPorts ports;
  ports.add(Time::zero(), a);
  const Time late = ports.next_check() + WaitingPorts::late_after + Time::picoseconds(1);
  EXPECT_TRUE(checked(ports, late, false).empty());
  EXPECT_EQ(ports.next_check(), late + WaitingPorts::time_after_stop);
  EXPECT_EQ(checked(ports, ports.next_check(), false), std::vector{a});
}

}  // namespace
}  // namespace tulle::fabric
