// Interfaces of a host whose subnet has no manager, unless a test lets it work, where this machine
// lets the test make networks.

#include "live/fabric/ip_interfaces.h"

#include <gtest/gtest.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/folder_test.h"
#include "fabric/settle_test.h"
#include "live/bell.h"
#include "live/fabric/host_services.h"
#include "management/subnet/exchange.h"

namespace tulle::live {
namespace {

Time now() { return Time::seconds(1); }

class IpInterfacesTest : public testing::Test {
 protected:
  void SetUp() override {
    auto networks = HostNetworks::start(files_.path(), {false, false});
    if (!networks) GTEST_SKIP() << networks.error().message;
    if (!networks->no_interfaces().empty()) GTEST_SKIP() << networks->no_interfaces();
    networks_.emplace(std::move(*networks));
    interfaces_.emplace(
        now, subnet_, ports_, *networks_,
        [this](std::uint32_t) -> HostAdministration& { return administration_; },
        [this](int, IpInterfaces::Link& link, IpInterfaces::Source) { link_ = &link; });
  }
  // Gives the interfaces what the keeper answers, until the first of host 0 is there.
  void make() {
    ASSERT_TRUE(networks_->ask(0));
    pollfd entry{networks_->descriptor(), POLLIN, 0};
    while (link_ == nullptr) {
      ASSERT_EQ(poll(&entry, 1, 10'000), 1);
      networks_->take_answers([this](HostNetworks::Answer answer) {
        ASSERT_EQ(answer.reason, "");
        interfaces_->take(now(), std::move(answer));
      });
    }
  }
  // Gives the interfaces a socket in place of the interface in the host's network. Returns the end
  // that is the host's.
  UniqueFd make_with_socket() {
    std::array<int, 2> packets{}, addresses{};
    constexpr int kind = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC;
    EXPECT_EQ(socketpair(AF_UNIX, kind, 0, packets.data()), 0);
    EXPECT_EQ(socketpair(AF_UNIX, kind, 0, addresses.data()), 0);
    addresses_.reset(addresses[1]);
    packets_.reset(dup(packets[0]));
    interfaces_->take(now(), {0});
    interfaces_->take(now(), {0, "ib0", {}, 1, UniqueFd(packets[0]), UniqueFd(addresses[0])});
    EXPECT_NE(link_, nullptr);
    return UniqueFd(packets[1]);
  }

  // Gives host 0 another first entry in its table of P_Keys, as a manager does.
  void set_pkey(Pkey pkey) {
    const be16 first = pkey.value;
    management::subnet::AttributeData table{};
    std::memcpy(table.data(), &first, sizeof first);
    const auto& down = subnet_.wiring().peer(0, 0);
    management::subnet::Exchange exchange(9);
    exchange.ask(management::subnet::set_question(
        management::subnet::Route().by(1).by(static_cast<std::uint8_t>(down.port + 1)),
        wire::attribute_pkey_table, 0, table));
    subnet_.send(now(), 1, 1, *exchange.take_packet(now()));
    subnet_.run(now());
    while (const auto arrival = subnet_.take_arrival()) managers_.receive(now(), *arrival);
    ASSERT_EQ(subnet_.node(0).pkeys(host_port)[0], pkey.value);
  }

  const Folder files_;
  fabric::Subnet subnet_{now(), *fabric::single_switch({2, {}})};
  fabric::SubnetManagers managers_{now(), subnet_, {}};
  HostServices services_{subnet_, &managers_};
  HostAdministration administration_{0, 1u << 31, now, subnet_, services_};
  DataPorts ports_{now(), subnet_};
  std::optional<HostNetworks> networks_;
  std::optional<IpInterfaces> interfaces_;
  IpInterfaces::Link* link_ = nullptr;
  UniqueFd addresses_;
  UniqueFd packets_;  // the interface's end
};

// Returns whether an interface in a host's network has a carrier, as programs there see it; nothing
// if this process may not enter that network.
std::optional<bool> has_carrier(std::span<const UniqueFd> namespaces, const char* name) {
  std::optional<bool> found;
  std::thread([&] {
    bool is_there = false;
    for (const UniqueFd& one : namespaces) {
      is_there = is_there || setns(one.get(), CLONE_NEWNET) == 0;
    }
    const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ethtool_value value{};
    value.cmd = ETHTOOL_GLINK;
    ifreq request{};
    std::strcpy(request.ifr_name, name);
    request.ifr_data = reinterpret_cast<char*>(&value);
    if (is_there && ioctl(fd.get(), SIOCETHTOOL, &request) == 0) found = value.data != 0;
  }).join();
  return found;
}

TEST_F(IpInterfacesTest, WithoutAManagerAnInterfaceHasNoCarrier) {
  make();
  const auto status = interfaces_->status(0);
  ASSERT_EQ(status.size(), 1u);
  EXPECT_EQ(status[0].name, "ib0");
  EXPECT_EQ(status[0].problem, "");
  EXPECT_FALSE(status[0].is_running);
  const auto found = has_carrier(networks_->find(0), "ib0");
  if (!found) GTEST_SKIP() << "this test may not enter the host's network";
  EXPECT_FALSE(*found);
}

// Otherwise programs that have all of the port for a moment would leave a host without interfaces.
TEST_F(IpInterfacesTest, AnInterfaceIsMadeOnceThePortHasAPlace) {
  auto bell = create_bell();
  ASSERT_TRUE(bell);
  constexpr std::uint32_t client = 7;
  ASSERT_TRUE(ports_.open(now(), 0, client, std::move(bell->button), 1));
  while (ports_.open_own(now(), 0, [](Time, std::span<const std::byte>) {})) {
  }
  interfaces_->take(now(), {0});
  interfaces_->follow(now());
  EXPECT_TRUE(interfaces_->status(0).empty());
  ports_.close(now(), client);
  interfaces_->follow(now());
  EXPECT_EQ(interfaces_->status(0).size(), 1u);
}

// The fabric's process would never sleep if it were told that there is more to do.
TEST_F(IpInterfacesTest, AnInterfaceThatSendsNothingIsDone) {
  const UniqueFd host = make_with_socket();
  EXPECT_EQ(interfaces_->next_event(), Time::zero()) << "the port is new to it";
  EXPECT_FALSE(interfaces_->progress(now()));
  EXPECT_GT(interfaces_->next_event(), now());
}

// A host that sends much has its turn as others have theirs, however often its interface is seen to
// have packets.
TEST_F(IpInterfacesTest, AHostSendsSomePacketsInATurn) {
  const UniqueFd host = make_with_socket();
  const std::array<std::byte, 40> packet{};
  constexpr int packets = 100;
  for (int i = 0; i < packets; ++i) {
    ASSERT_EQ(write(host.get(), packet.data(), packet.size()), std::ssize(packet));
  }
  for (int i = 0; i < 5; ++i) interfaces_->read(now(), *link_, IpInterfaces::Source::packets);
  interfaces_->progress(now());
  EXPECT_EQ(interfaces_->next_event(), Time::zero()) << "it has more";
  int left = 0;
  std::array<std::byte, 64> buffer{};
  while (read(packets_.get(), buffer.data(), buffer.size()) > 0) ++left;
  EXPECT_GT(left, 0);
  EXPECT_LT(left, packets);
}

// The interface of another P_Key asks the same, under the same numbers.
TEST_F(IpInterfacesTest, AnAnswerForAnEarlierPkeyComesToNothing) {
  fabric::settle(now(), subnet_, managers_);
  const UniqueFd host = make_with_socket();
  std::vector<bool> is_running;
  const auto take = [&](const HostServices::Delivery& delivery) {
    administration_.take(delivery);
    is_running.push_back(interfaces_->status(0)[0].is_running);
  };
  interfaces_->follow(now());
  interfaces_->progress(now());  // asks for its broadcast group
  set_pkey(Pkey(0x8001));
  interfaces_->follow(now());
  interfaces_->progress(now());
  services_.progress(now(), take);
  ASSERT_GE(is_running.size(), 2u);
  EXPECT_FALSE(is_running[0]) << "the answer was for 0xffff";
}

}  // namespace
}  // namespace tulle::live
