// Tests the tree of a kernel's files and the preloaded library that shows it, as a C client and
// everyday programs see them.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "live/message/protocol.h"
#include "live/message/socket.h"
#include "shim/paths/tree.h"

namespace tulle::shim {
namespace {

namespace fs = std::filesystem;

class Paths : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tulle-paths-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    base = name;
    device.name = "tulle0";
    device.node_guid = 0x0200'00FF'FE00'0001;
    device.gids.push_back({Gid::from_ipv4(0x7F00'0001), 1, "lo"});
    auto made = make_tree(base.string(), {&device, 1});
    ASSERT_TRUE(made) << made.error().message;
    root = *made;
  }
  void TearDown() override { fs::remove_all(base); }

  // Returns the output of a program that sees the tree, without its last line's end.
  std::string output(const std::string& command, const std::string& tree) {
    const std::string line =
        "LD_PRELOAD='" TULLE_PATHS_LIBRARY "' TULLE_SYSFS='" + tree + "' " + command + " 2>&1";
    FILE* pipe = popen(line.c_str(), "r");
    std::string text;
    std::array<char, 256> part;
    while (std::fgets(part.data(), part.size(), pipe) != nullptr) text += part.data();
    status = pclose(pipe);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }
  std::string output(const std::string& command) { return output(command, root); }

  std::string read(const std::string& path) const {
    std::ifstream file(root + "/" + path);
    std::string line;
    std::getline(file, line);
    return line;
  }

  fs::path base;
  std::string root;
  live::DeviceInfo device;
  int status = 0;
};

TEST_F(Paths, ProgramFindsTheDeviceInEveryWay) {
  EXPECT_EQ(output(TULLE_PATHS_CLIENT), "all found");
  EXPECT_EQ(status, 0);
}

TEST_F(Paths, RootMayBeReachedByALink) {
  const fs::path link = base / "link";
  fs::create_symlink(root, link);
  EXPECT_EQ(output(TULLE_PATHS_CLIENT, link.string() + "/"), "all found");
}

TEST_F(Paths, EverydayProgramsSeeIt) {
  EXPECT_EQ(output("ls /sys/class/infiniband"), "tulle0");
  EXPECT_EQ(output("ls /sys/class/infiniband/tulle0/device/net"), "lo");
  EXPECT_EQ(output("cat /sys/class/infiniband/tulle0/node_guid"), "0200:00ff:fe00:0001");
  EXPECT_EQ(output("ls -l /dev/infiniband/uverbs0").substr(0, 10), "crw-rw-rw-");
  EXPECT_EQ(output("sh -c 'test -c /dev/infiniband/uverbs0 && echo node'"), "node");
  EXPECT_EQ(output("sh -c 'cd /sys/class/infiniband/tulle0 && cat ports/1/state'"), "4: ACTIVE");
  EXPECT_EQ(output("readlink /sys/class/infiniband/tulle0/device/driver"),
            "../../../../bus/tulle/drivers/tulle");
}

TEST_F(Paths, WithoutATreeTheMachineIsAsItIs) {
  EXPECT_EQ(output("cat /proc/sys/kernel/ostype", ""), "Linux");
  if (!fs::exists("/sys/class/infiniband")) {
    (void)output("ls /sys/class/infiniband", "");
    EXPECT_NE(status, 0);
  }
}

TEST_F(Paths, TreeIsMadeAgainInPlace) {
  const std::string port = "sys/class/infiniband/tulle0/ports/1/";
  EXPECT_EQ(read(port + "gid_attrs/types/0"), "RoCE v2");
  EXPECT_EQ(read(port + "rate"), "100 Gb/sec (4X EDR)");
  EXPECT_EQ(read(port + "cap_mask"), "0x04000000");
  EXPECT_EQ(read("sys/class/infiniband/tulle0/fw_ver"), "tulle-0.1.0");
  EXPECT_EQ(read("sys/class/infiniband_verbs/uverbs0/dev"), "231:192");
  EXPECT_TRUE(fs::is_symlink(root + "/sys/class/infiniband/tulle0/device/net/lo"));
  device.gids.clear();
  device.port_active = false;
  auto again = make_tree(base.string(), {&device, 1}, {.connection_manager = true});
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, root);
  EXPECT_EQ(read(port + "gids/0"), "0000:0000:0000:0000:0000:0000:0000:0000");
  EXPECT_FALSE(fs::exists(root + "/" + port + "gid_attrs/types/0"));
  EXPECT_FALSE(fs::is_symlink(root + "/sys/class/infiniband/tulle0/device/net/lo"));
  EXPECT_EQ(read(port + "state"), "1: DOWN");
  EXPECT_TRUE(fs::is_character_file(root + "/dev/infiniband/rdma_cm"));
}

// Root may have another user's environment (su keeps it), and with it the device's name.
TEST_F(Paths, NoDeviceHasFilesOutsideTheTree) {
  for (const std::string& name : {std::string("../../../../outside"), (base / "outside").string(),
                                  std::string(".."), std::string("a\nb")}) {
    device.name = name;
    EXPECT_FALSE(make_tree((base / "tree").string(), {&device, 1})) << name;
    EXPECT_FALSE(fs::exists(base / "outside"));
    EXPECT_FALSE(fs::exists(base / "tree"));
  }
}

TEST_F(Paths, ReasonIsSaidWhereTheTreeCannotBe) {
  auto made = make_tree("/proc/none", {&device, 1});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("/proc/none"), std::string::npos);
  EXPECT_NE(made.error().error_number, 0);
}

// --- counters: opening a file asks for its content ---

// Returns the first connection to come within five seconds.
UniqueFd next_visitor(const UniqueFd& listener) {
  pollfd waiting{listener.get(), POLLIN, 0};
  if (poll(&waiting, 1, 5'000) <= 0) return {};
  return UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
}

// Answers one question as a host agent does that first says that it takes a while.
class Agent {
 public:
  explicit Agent(const std::string& path) : listener_(live::listen_at(path)) {
    TULLE_CHECK(static_cast<bool>(listener_));
    thread_ = std::thread([this] { serve(); });
  }
  ~Agent() { thread_.join(); }

 private:
  void serve() {
    const UniqueFd connection = next_visitor(*listener_);
    auto message = live::await_message(connection.get(), 5'000);
    live::Hello hello;
    if (!message || !decode(message->bytes, hello) || hello.purpose != live::Purpose::status)
      return;
    live::AgentStatus status;
    status.version = "a version of some length";
    status.counters[live::counter_index("bytes_sent")] = 4'000'000'000'007;
    status.counters[live::counter_index("received_truncated")] = 1;
    status.counters[live::counter_index("received_unknown_opcode")] = 20;
    status.counters[live::counter_index("received_bad_version")] = 300;
    status.counters[live::counter_index("received_bad_icrc")] = 4'000;
    static_cast<void>(live::send_message(connection.get(), live::encode(live::Wait{})));
    static_cast<void>(live::send_message(connection.get(), live::encode(status)));
  }

  Result<UniqueFd> listener_;
  std::thread thread_;
};

constexpr char counters_folder[] = "/sys/class/infiniband/tulle0/ports/1/counters";

class Counters : public Paths {
 protected:
  void SetUp() override {
    Paths::SetUp();
    address = (base / "agent of spaces").string();
    auto made = make_tree(base.string(), {&device, 1}, {.agent = address});
    ASSERT_TRUE(made) << made.error().message;
  }
  std::string file(const std::string& name) const { return counters_folder + ("/" + name); }

  std::string address;
};

TEST_F(Counters, have_the_value_of_the_moment) {
  const Agent agent(address);
  EXPECT_EQ(output("cat " + file("port_xmit_data")), "1000000000001");
}

TEST_F(Counters, add_up_what_is_counted_apart) {
  const Agent agent(address);
  EXPECT_EQ(output("cat " + file("port_rcv_errors")), "4321");
}

TEST_F(Counters, are_found_from_a_folder_too) {
  const Agent agent(address);
  EXPECT_EQ(output("sh -c 'cd " + std::string(counters_folder) + " && cat port_rcv_errors'"),
            "4321");
}

TEST_F(Counters, are_nothing_where_there_is_no_agent) {
  EXPECT_EQ(output("cat " + file("port_xmit_data")), "0");
}

TEST_F(Counters, are_as_long_as_attributes) {
  EXPECT_EQ(output("stat -c %s " + file("port_xmit_data")), "4096");
}

constexpr char port_folder[] = "/sys/class/infiniband/tulle0/ports/1/";

// Stands for a host agent that is asked for an attribute once.
class Attributes : public Counters {
 protected:
  void TearDown() override {
    if (thread.joinable()) thread.join();
    Counters::TearDown();
  }
  void answer(const live::Attribute& attribute) {
    auto listening = live::listen_at(address);
    ASSERT_TRUE(listening) << listening.error().message;
    thread = std::thread([this, attribute, listener = std::move(*listening)] {
      const UniqueFd connection = next_visitor(listener);
      auto message = live::await_message(connection.get(), 5'000);
      if (!message || !decode(message->bytes, hello)) return;
      static_cast<void>(live::send_message(connection.get(), live::encode(live::Wait{})));
      static_cast<void>(live::send_message(connection.get(), live::encode(attribute)));
    });
  }

  std::thread thread;
  live::Hello hello;
};

TEST_F(Attributes, are_those_of_the_moment) {
  answer({true, "1: DOWN"});
  EXPECT_EQ(output("cat " + std::string(port_folder) + "state"), "1: DOWN");
  thread.join();
  EXPECT_EQ(hello.purpose, live::Purpose::attribute);
  EXPECT_EQ(hello.device.name, "tulle0");
  EXPECT_EQ(hello.file, "state");
}

TEST_F(Attributes, that_are_not_readable_fail_as_a_kernels) {
  answer({false, ""});
  const std::string file = std::string(port_folder) + "gid_attrs/types/0";
  EXPECT_EQ(output("cat " + file), "cat: " + file + ": Invalid argument");
  EXPECT_NE(status, 0);
}

TEST_F(Attributes, are_as_they_were_where_there_is_no_agent) {
  EXPECT_EQ(output("cat " + std::string(port_folder) + "state"), "4: ACTIVE");
  EXPECT_EQ(output("cat " + std::string(port_folder) + "gids/0"),
            "0000:0000:0000:0000:0000:ffff:7f00:0001");
  EXPECT_EQ(output("cat " + std::string(port_folder) + "gid_attrs/ndevs/0"), "lo");
  (void)output("cat " + std::string(port_folder) + "gid_attrs/ndevs/1");
  EXPECT_NE(status, 0);
}

TEST_F(Attributes, have_no_control_characters) {
  answer({true, "1: D\x1b[2J\n"});
  EXPECT_EQ(output("cat " + std::string(port_folder) + "state"), "1: D?[2J?");
}

// Another user may take the name of an agent that has left.
TEST_F(Attributes, of_another_users_agent_do_not_count) {
  if (geteuid() != 0) GTEST_SKIP() << "only root has another user at hand";
  address = "@tulle-paths-test-" + std::to_string(getpid());
  ASSERT_TRUE(make_tree(base.string(), {&device, 1}, {.agent = address}));
  // The system call changes this thread alone. Peers see who called listen().
  constexpr long keep = -1;
  ASSERT_EQ(syscall(SYS_setresuid, keep, 65533L, keep), 0);
  answer({true, "9: FORGED"});
  ASSERT_EQ(syscall(SYS_setresuid, keep, 0L, keep), 0);
  const std::string state = std::string(port_folder) + "state";
  EXPECT_EQ(output("cat " + state), "4: ACTIVE");
  thread.join();
  // In a user namespace, the program's own user may have the number of all users without one.
  ASSERT_EQ(syscall(SYS_setresuid, keep, 65533L, keep), 0);
  answer({true, "9: FORGED"});
  ASSERT_EQ(syscall(SYS_setresuid, keep, 0L, keep), 0);
  const std::string seen = output("unshare --user --map-user=65534 cat " + state);
  if (status != 0) GTEST_SKIP() << seen;
  EXPECT_EQ(seen, "4: ACTIVE");
}

// A program's own file of that length stays unchanged, even if it begins like one of Tulle's.
TEST_F(Counters, other_files_are_left_alone) {
  for (const std::string& text :
       {std::string(4'096, 'x'), "tulle counter\n" + std::string(4'082, '9'),
        "tulle counter\n18 4 1\n" + std::string(4'075, '\n')}) {
    ASSERT_EQ(text.size(), 4'096u);
    std::ofstream(base / "own") << text;
    EXPECT_EQ(output("sh -c 'cd " + base.string() + " && cat own | wc -c'"), "4096");
  }
}

// Anybody may have made a file from which programs would be told what to send, and to whom.
TEST_F(Counters, a_recipe_outside_the_tree_is_a_file) {
  const Agent agent(address);
  fs::copy_file(root + file("port_xmit_data"), base / "planted");
  EXPECT_EQ(output("sh -c 'cd " + base.string() + " && cat planted | wc -c'"), "4096");
  EXPECT_EQ(output("sh -c 'cd " + root + " && cat ." + file("port_xmit_data") + "'"),
            "1000000000001");
}

TEST_F(Counters, who_writes_gets_the_file) {
  fs::permissions(root + file("port_xmit_data"), fs::perms::owner_all);
  EXPECT_EQ(output("sh -c 'wc -c <>" + file("port_xmit_data") + "'"), "4096");
}

}  // namespace
}  // namespace tulle::shim
