#include "management/cm/offered_services.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

namespace tulle::management::cm {
namespace {

using Outcome = OfferedServices::Outcome;

constexpr std::uint64_t service = 7;
constexpr std::array<std::byte, wire::mad_bytes> mad{};

Gid gid_of(std::uint8_t number) {
  Gid gid;
  gid.bytes[15] = number;
  return gid;
}

class OfferedServicesTest : public ::testing::Test {
 protected:
  Outcome hold(std::uint8_t address, std::uint32_t id, std::uint64_t of = service) {
    Route route;
    route.local = local;
    route.remote = gid_of(address);
    return services.hold(now, route, mad, of, {route.remote, 0, id, false});
  }

  Gid local = gid_of(9);
  Time now = Time::seconds(1);
  OfferedServices services{{Time::seconds(5), Time::seconds(1), 4}};
};

TEST_F(OfferedServicesTest, AServiceIsOfferedUntilTheLastListenerStops) {
  EXPECT_FALSE(services.offers(service));
  EXPECT_TRUE(services.listen(service).empty());
  EXPECT_TRUE(services.listen(service).empty());
  services.stop_listening(service);
  EXPECT_TRUE(services.offers(service));
  services.stop_listening(service);
  EXPECT_FALSE(services.offers(service));
}

TEST_F(OfferedServicesTest, RequestsWaitForAnExpectedListener) {
  EXPECT_EQ(hold(1, 1), Outcome::refused);
  services.expect(now, service, 0);
  EXPECT_EQ(hold(1, 1), Outcome::held);
  EXPECT_EQ(hold(1, 1), Outcome::repeated);
  EXPECT_EQ(hold(1, 2), Outcome::held);
  EXPECT_EQ(hold(1, 3), Outcome::held);
  services.drop({gid_of(1), 0, 3, false});
  const auto returned = services.listen(service);
  ASSERT_EQ(returned.size(), 2u);
  EXPECT_EQ(std::get<2>(returned[0].from), 1u);
  EXPECT_EQ(std::get<2>(returned[1].from), 2u);
  EXPECT_EQ(services.held_count(), 0u);
  EXPECT_EQ(hold(1, 1), Outcome::refused) << "the service is there";
}

TEST_F(OfferedServicesTest, PatienceEnds) {
  services.expect(now, service, 0);
  EXPECT_TRUE(services.next_deadline().is_never());
  ASSERT_EQ(hold(1, 1), Outcome::held);
  EXPECT_EQ(services.next_deadline(), now + Time::seconds(1));
  EXPECT_TRUE(services.take_overdue(now).empty());
  now += Time::seconds(1);
  EXPECT_EQ(services.take_overdue(now).size(), 1u);
  EXPECT_EQ(hold(1, 1), Outcome::refused) << "the listener did not come back";
  services.expect(now, service, 0);
  now += Time::seconds(5);
  EXPECT_EQ(hold(1, 1), Outcome::refused) << "the window is over";
}

TEST_F(OfferedServicesTest, TheAddressThatHasMostMakesRoom) {
  services.expect(now, service, 0);
  for (std::uint32_t id = 1; id <= 3; ++id) ASSERT_EQ(hold(1, id), Outcome::held);
  ASSERT_EQ(hold(2, 1), Outcome::held);
  EXPECT_EQ(hold(1, 4), Outcome::refused) << "it has most itself";
  EXPECT_EQ(hold(2, 2), Outcome::held);
  EXPECT_EQ(services.held_count(), 4u);
  const auto returned = services.listen(service);
  EXPECT_EQ(std::get<2>(returned[0].from), 2u) << "the oldest of the first address has gone";
}

TEST_F(OfferedServicesTest, TheOwnerWhoExpectsMostMakesRoom) {
  for (std::uint64_t each = 1; each <= 3; ++each) services.expect(now, each, 1);
  services.expect(now, 10, 2);
  services.expect(now, 11, 2);
  EXPECT_EQ(hold(1, 1, 1), Outcome::refused) << "the first of the owner who has most";
  for (const std::uint64_t each : {2, 3, 10, 11})
    EXPECT_EQ(hold(1, 1, each), each == 2 ? Outcome::held : Outcome::repeated);
}

TEST_F(OfferedServicesTest, AnotherAddressIsAnotherService) {
  const Gid other = gid_of(10);
  services.expect(now, service, 1, other);
  EXPECT_EQ(hold(1, 1), Outcome::refused) << "it is expected elsewhere";
  services.expect(now, service, 2, local);
  EXPECT_TRUE(services.listen(service, other).empty());
  services.stop_listening(service);
  EXPECT_EQ(hold(1, 1), Outcome::held) << "a listener elsewhere does not return for this one";
  EXPECT_TRUE(services.listen(service, other).empty());
  EXPECT_EQ(services.listen(service, local).size(), 1u);
}

TEST_F(OfferedServicesTest, DeadlinesMoveWithTheClocksZero) {
  services.expect(now, service, 0);
  ASSERT_EQ(hold(1, 1), Outcome::held);
  services.rebase(Time::milliseconds(500));
  EXPECT_EQ(services.next_deadline(), Time::milliseconds(1'500));
}

}  // namespace
}  // namespace tulle::management::cm
