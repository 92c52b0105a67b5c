#include "live/fabric/fabrics.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/folder_test.h"
#include "live/fabric/client.h"
#include "live/fabric/fabric_folder.h"

namespace tulle::live {
namespace {

namespace fs = std::filesystem;

// This user's folder is a temporary one.
class FabricsTest : public testing::Test {
 protected:
  FabricsTest() { setenv("XDG_RUNTIME_DIR", fs::canonical(folder_.path()).c_str(), 1); }
  ~FabricsTest() override {
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("TULLE_FABRIC");
  }

  const Warn warn = [this](const std::string& line) { warnings.push_back(line); };
  std::vector<std::string> warnings;

 private:
  Folder folder_;
};

TEST_F(FabricsTest, AFabricGoesByItsNameAndNamespace) {
  EXPECT_EQ(fabric_name(""), "default");
  auto usual = fabric_folder("", warn);
  auto named = fabric_folder("a/b", warn);
  ASSERT_TRUE(usual && named);
  EXPECT_EQ(fs::path(*usual).filename(), "fabric_default_" + fabrics_namespace());
  EXPECT_EQ(fs::path(*named).filename(), "fabric_a_b_" + fabrics_namespace());
  auto address = fabric_address("", warn);
  ASSERT_TRUE(address);
  EXPECT_EQ(*address, fabric_socket(*usual));
  EXPECT_TRUE(warnings.empty());
}

TEST_F(FabricsTest, AHostKnowsItsOwnFabric) {
  const std::string socket = fabric_socket(*fabric_folder("lab", warn));
  setenv("TULLE_FABRIC", socket.c_str(), 1);
  EXPECT_EQ(*fabric_address("", warn), socket);
  EXPECT_EQ(fs::path(*fabric_address("other", warn)).parent_path().filename(),
            "fabric_other_" + fabrics_namespace());
}

TEST_F(FabricsTest, AStartedFabricIsFoundUntilItEnds) {
  EXPECT_TRUE(find_fabrics(warn).empty());
  FabricOptions options;
  options.name = "lab";
  options.topology = usual_topology();
  options.folder = *fabric_folder("lab", warn);
  options.has_manager = true;
  auto started = start_fabric(options);
  ASSERT_TRUE(started) << started.error().message;
  ASSERT_EQ(started->status, 0);
  EXPECT_NE(started->network, "");
  const std::vector<FoundFabric> found = find_fabrics(warn);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "lab");
  EXPECT_EQ(found[0].network_namespace, fabrics_namespace());
  EXPECT_EQ(found[0].switches, 2u);
  EXPECT_EQ(found[0].hosts, 4u);
  FabricHello stop;
  stop.purpose = FabricPurpose::stop;
  EXPECT_TRUE(command_fabric(fabric_socket(options.folder), stop));
  EXPECT_TRUE(find_fabrics(warn).empty());
}

TEST_F(FabricsTest, AFabricThatCannotBeginHasAStatus) {
  FabricOptions options;
  options.topology = usual_topology();
  options.folder = "/proc/none";
  testing::internal::CaptureStderr();
  auto started = start_fabric(options);
  EXPECT_NE(testing::internal::GetCapturedStderr(), "");
  ASSERT_TRUE(started);
  EXPECT_NE(started->status, 0);
}

TEST_F(FabricsTest, ASubnetHasBounds) {
  EXPECT_TRUE(check_subnet(usual_topology()));
  fabric::Topology wide = usual_topology();
  wide.ports[wide.adapters()] = 255;
  auto checked = check_subnet(wide);
  ASSERT_FALSE(checked);
  EXPECT_NE(checked.error().message.find("has 255 ports; a switch of InfiniBand has at most 254"),
            std::string::npos);
}

TEST_F(FabricsTest, NodesGoToMachines) {
  FabricOptions options;
  options.topology = usual_topology();
  EXPECT_TRUE(place_nodes(options, "lab.toml"));
  EXPECT_TRUE(options.machine_of.empty());
  options.machines.resize(1);
  options.machines[0].name = "a";
  options.key_file = "/proc/none";
  EXPECT_FALSE(place_nodes(options, "lab.toml"));
}

}  // namespace
}  // namespace tulle::live
