// The hosts of a subnet with a manager of its own, in one process and in virtual time.

#include "live/fabric/host_services.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/settle_test.h"
#include "management/answer.h"
#include "rdma/wire/cm.h"
#include "rdma/wire/mad.h"
#include "rdma/wire/sa.h"

namespace tulle::live {
namespace {

constexpr std::uint8_t vendor_class = 0x0A;

class HostServicesTest : public testing::Test {
 protected:
  HostServicesTest() { fabric::settle(now_, subnet_, managers_); }

  static management::subnet::ManagerSettings settings() {
    management::subnet::ManagerSettings settings;
    settings.lmc = 2;
    return settings;
  }
  // Sends a question of host 0, and returns what comes back as its program sees it, or, if it
  // arrives, what host 1's program sees.
  std::vector<Datagram> send(const Datagram& datagram) {
    std::vector<Datagram> came;
    const auto take = [&](const HostServices::Delivery& delivery) {
      came.push_back(services_.as_message(delivery.client, delivery));
    };
    services_.send(now_, 0, 0, datagram);
    services_.progress(now_, take);
    if (came.empty()) {
      now_ = now_ + Time::seconds(1);
      services_.progress(now_, take);
    }
    return came;
  }
  Datagram question(std::uint32_t agent, std::uint16_t lid) const {
    Datagram out;
    out.agent = agent;
    out.lid = lid;
    out.qp = 1;
    out.qkey = wire::general_services_qkey.value;
    out.timeout_milliseconds = 100;
    out.bytes.resize(wire::mad_bytes);
    wire::MadHeader header;
    header.management_class = vendor_class;
    header.class_version = 1;
    header.method = management::method_get;
    std::memcpy(out.bytes.data(), &header, sizeof header);
    return out;
  }

  Time now_ = Time::seconds(1);
  fabric::Subnet subnet_{now_, *fabric::single_switch({2, {}})};
  fabric::SubnetManagers managers_{now_, subnet_, settings()};
  HostServices services_{subnet_, &managers_};
};

// Linux shows data in words of four bytes, and these names.
TEST_F(HostServicesTest, CountersHaveThePlacesOfTheirNames) {
  auto& counted = subnet_.counters(1, host_port);
  counted = {};
  counted.bytes_sent = 400;
  counted.bytes_received = 80;
  counted.packets_sent = 3;
  counted.packets_received = 4;
  counted.transmit_discards = 5;
  counted.link_downed = 6;
  const PortCounters shown = services_.counters(1);
  const auto value = [&](std::string_view name) {
    const auto at = std::ranges::find(port_counter_names, name);
    return shown.values[static_cast<std::size_t>(at - port_counter_names.begin())];
  };
  EXPECT_EQ(value("port_xmit_data"), 100u);
  EXPECT_EQ(value("port_rcv_data"), 20u);
  EXPECT_EQ(value("port_xmit_packets"), 3u);
  EXPECT_EQ(value("port_rcv_packets"), 4u);
  EXPECT_EQ(value("port_xmit_discards"), 5u);
  EXPECT_EQ(value("link_downed"), 6u);
}

// The receiver answers to the queue pair and the LID from which a datagram came, by the path on
// which it came.
TEST_F(HostServicesTest, ADatagramSaysWhereItsAnswerGoes) {
  RegisterAgent asks{vendor_class, 1, 0, {}, false};
  const auto sender = services_.add(0, 0, asks);
  asks.methods[0] = 1u << management::method_get;
  const auto receiver = services_.add(1, 1, asks);
  ASSERT_EQ(sender.error + receiver.error, 0);
  for (const std::uint8_t bits : std::array<std::uint8_t, 4>{0, 1, 2, 3}) {
    Datagram sent = question(sender.agent, services_.port_of(1).lid + bits);
    sent.path_bits = 3 - bits;
    sent.timeout_milliseconds = 0;
    const auto came = send(sent);
    ASSERT_EQ(came.size(), 1u);
    EXPECT_EQ(came[0].agent, receiver.agent);
    EXPECT_EQ(came[0].status, 0u);
    EXPECT_EQ(came[0].qp, 1u);
    EXPECT_EQ(came[0].path_bits, bits);
    EXPECT_EQ(came[0].lid, services_.port_of(0).lid + 3 - bits);
  }
}

TEST_F(HostServicesTest, ADatagramWithoutAnAnswerSaysWhereItWent) {
  const auto sender = services_.add(0, 0, {vendor_class, 1, 0, {}, false});
  const std::uint16_t nobody = 0x4000;
  const auto came = send(question(sender.agent, nobody));
  ASSERT_EQ(came.size(), 1u);
  EXPECT_EQ(came[0].status, static_cast<std::uint32_t>(ETIMEDOUT));
  EXPECT_EQ(came[0].qp, 1u);
  EXPECT_EQ(came[0].lid, nobody);
}

// The bytes of a long datagram need not be read if it cannot be sent.
TEST_F(HostServicesTest, ALongDatagramIsCheckedByItsFirstBytes) {
  const auto sender = services_.add(0, 0, {vendor_class, 1, 0, {}, false});
  Datagram first = question(sender.agent, services_.port_of(1).lid);
  EXPECT_TRUE(services_.can_send(0, 0, first, wire::mad_bytes));
  EXPECT_FALSE(services_.can_send(0, 0, first, wire::mad_bytes + 1));
  ++first.agent;
  EXPECT_FALSE(services_.can_send(0, 0, first, wire::mad_bytes));
  std::vector<Datagram> came;
  const auto take = [&](HostServices::Delivery delivery) {
    came.push_back(services_.as_message(0, std::move(delivery)));
  };
  services_.give_back(0, 0, first);
  first.timeout_milliseconds = 0;  // nobody waits for it
  services_.give_back(0, 0, first);
  services_.progress(now_, take);
  ASSERT_EQ(came.size(), 1u);
  EXPECT_EQ(came[0].agent, first.agent);
  EXPECT_EQ(came[0].status, static_cast<std::uint32_t>(ETIMEDOUT));
}

// Otherwise the host's own connection manager would find it taken.
TEST_F(HostServicesTest, TheClassOfConnectionsIsTheFabrics) {
  RegisterAgent connections{wire::cm::management_class, wire::cm::class_version, 0, {}, false};
  connections.methods[0] = 1u << wire::cm::method_send;
  EXPECT_EQ(services_.add(0, 0, connections).error, EPERM);
  services_.add_own(0, 1, connections);
  for (const std::uint8_t other : std::array<std::uint8_t, 5>{0x01, 0x03, 0x04, 0x0A, 0x81}) {
    EXPECT_EQ(services_.add(0, 0, {other, 1, 0, connections.methods, false}).error, 0);
  }
}

// Two hosts without a switch, so that the fabric's manager is at the last host.
class SwitchlessTest : public testing::Test {
 protected:
  static fabric::Topology pair() {
    fabric::Topology pair;
    pair.hosts = 2;
    pair.ports = {1, 1};
    pair.links.push_back({0, 1, 0, 0, 100'000'000'000, Time::zero()});
    return pair;
  }
  void SetUp() override {
    progress();
    ASSERT_TRUE(managers_.is_at(1));
    ASSERT_EQ(services_.port_of(0).sm_lid, services_.port_of(1).lid);
    RegisterAgent wanted{
        wire::subnet_administration_class, wire::administration_version, 0, {}, false};
    agent_ = services_.add(0, asker, wanted).agent;
    wanted.methods[0] = 1u << management::method_get | 1u << wire::method_report;
    ASSERT_EQ(services_.add(1, taker, wanted).error, 0);
  }
  void progress() {
    services_.progress(now_, [this](const HostServices::Delivery& delivery) {
      (delivery.client == asker ? answers_ : taken_) += delivery.has_timed_out ? 0 : 1;
    });
  }
  // Sends a datagram of host 0 to the manager's host.
  void send(std::uint8_t method) {
    Datagram out;
    out.agent = agent_;
    out.lid = services_.port_of(1).lid;
    out.qp = 1;
    out.qkey = wire::general_services_qkey.value;
    out.timeout_milliseconds = 100;
    out.bytes.resize(wire::mad_bytes);
    wire::MadHeader header;
    header.management_class = wire::subnet_administration_class;
    header.class_version = wire::administration_version;
    header.method = method;
    header.attribute_id = wire::attribute_class_port_info;
    std::memcpy(out.bytes.data(), &header, sizeof header);
    services_.send(now_, 0, asker, out);
    progress();
  }

  static constexpr std::uint32_t asker = 10, taker = 11;
  Time now_ = Time::seconds(1);
  fabric::Subnet subnet_{now_, pair()};
  fabric::SubnetManagers managers_{now_, subnet_, {}};
  HostServices services_{subnet_, &managers_};
  std::uint32_t agent_ = 0;
  int answers_ = 0;  // that came to host 0
  int taken_ = 0;    // what came to the program on the manager's host
};

TEST_F(SwitchlessTest, NoProgramTakesTheQuestionsToTheFabricsAdministration) {
  send(management::method_get);
  EXPECT_EQ(answers_, 1);
  EXPECT_EQ(taken_, 0);
  send(wire::method_report);  // is for subscribers, which are programs
  EXPECT_EQ(taken_, 1);
}

TEST_F(SwitchlessTest, AProgramThatIsTheManagerTakesTheQuestionsToAdministration) {
  services_.set_manager(now_, 1, true);
  send(management::method_get);
  EXPECT_EQ(answers_, 0);
  EXPECT_EQ(taken_, 1);
}

}  // namespace
}  // namespace tulle::live
