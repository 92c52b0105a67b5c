#include "live/fabric/captures.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "fabric/subnet.h"
#include "live/fabric/data_ports.h"

namespace tulle::live {
namespace {

class FabricCapturesTest : public testing::Test {
 protected:
  auto add(pid_t process) { return captures_.add(++client_, process, {}); }

  Time now_ = Time::seconds(1);
  fabric::Subnet subnet_{now_, *fabric::single_switch({2, {}})};
  DataPorts ports_{now_, subnet_};
  std::uint32_t client_ = 0;
  Captures captures_{ports_.traffic()};
};

// One program does not keep others from a capture.
TEST_F(FabricCapturesTest, AProcessHasAShare) {
  for (std::size_t i = 0; i < Captures::captures_of_process_max; ++i) ASSERT_TRUE(add(7));
  auto refused = add(7);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "process 7 has 2 captures of the fabric, which is the most for one process");
  EXPECT_TRUE(add(8));
  captures_.remove(1);
  EXPECT_TRUE(add(7));
  for (pid_t process = 100; process < 100 + 5; ++process) EXPECT_TRUE(add(process));
  EXPECT_FALSE(add(200)) << "there are eight";
}

TEST_F(FabricCapturesTest, UnknownProcessesHaveAShare) {
  for (std::size_t i = 0; i < Captures::captures_of_unknown_max; ++i) ASSERT_TRUE(add(0));
  auto refused = add(0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "programs of other PID namespaces have 4 captures of the fabric, which is the most for "
            "them");
  EXPECT_TRUE(add(7));
}

}  // namespace
}  // namespace tulle::live
