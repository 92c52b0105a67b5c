#include "study/config/network.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/folder_test.h"

namespace tulle::config {
namespace {

constexpr char two_variants[] = R"(title = "Two variants"
[topology]
kind = "single-switch"
hosts = 3
[traffic]
pattern = "unknown here"
[[machine]]
name = "one"
address = "192.0.2.1"
[[machine]]
name = "two"
address = "192.0.2.2:7"
nodes = ["h1"]
[[variant]]
name = "a"
topology.hosts = 5
[[variant]]
name = "b"
topology.hosts = 7
)";

class NetworkFile : public testing::Test {
 protected:
  Result<Network> read(const std::string& text) const {
    folder.write("n.toml", text);
    return read_network(folder.path("n.toml"));
  }
  std::string error(const std::string& text) const {
    auto network = read(text);
    return network ? "" : network.error().message.substr(folder.path("").size());
  }

  Folder folder;
};

TEST_F(NetworkFile, HasTheTopologyOfTheFirstVariant) {
  auto network = read(two_variants);
  ASSERT_TRUE(network) << network.error().message;
  EXPECT_EQ(network->topology.hosts, 5u);
  ASSERT_EQ(network->machines.size(), 2u);
  EXPECT_EQ(network->machines[0].address, "192.0.2.1");
  EXPECT_EQ(network->machines[1].name, "two");
  EXPECT_EQ(network->machines[1].nodes, std::vector<std::string>{"h1"});
  EXPECT_TRUE(read("[topology]\nhosts = 2\n")->machines.empty());
}

TEST_F(NetworkFile, NamesTheLineOfAnError) {
  EXPECT_EQ(error("[topology]\nhosts = 2\nhost = 3\n").substr(0, 9), "n.toml:3:");
  EXPECT_EQ(error("[topology]\nhosts = \"two\"\n").substr(0, 9), "n.toml:2:");
  EXPECT_EQ(error("[topology]\n[[machine]]\nname = \"a\"\n").substr(0, 9), "n.toml:2:");
  EXPECT_EQ(error("variant = 1\n[topology]\n").substr(0, 9), "n.toml:1:");
  EXPECT_NE(error("title = \"None\"\n").find("topology: is required"), std::string::npos);
  EXPECT_NE(error("[topology\n"), "");
  EXPECT_FALSE(read_network(folder.path("absent.toml")));
}

TEST_F(NetworkFile, FindsATableOfLinksBesideItself) {
  folder.write("tables/links.csv", "a,b,gbps,delay_ns\n0,2,100,100\n1,2,100,100\n");
  const std::string topology = "[topology]\nkind = \"file\"\nfile = ";
  auto network = read(topology + "\"tables/links.csv\"\n");
  ASSERT_TRUE(network) << network.error().message;
  EXPECT_EQ(network->topology.hosts, 2u);
  EXPECT_TRUE(read("folder = \"tables\"\n" + topology + "\"links.csv\"\n"));
  EXPECT_FALSE(read(topology + "\"links.csv\"\n"));
}

}  // namespace
}  // namespace tulle::config
