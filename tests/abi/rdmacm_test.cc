// Tests the drop-in librdmacm where it asks no host agent: how each call answers arguments that
// mean nothing, and what the library answers by itself.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "shim/rdmacm/newer.h"

namespace tulle::shim {
namespace {

struct Call {
  const char* name;
  std::function<long()> make;
};

void expect_refused(const std::vector<Call>& calls, int error) {
  for (const Call& call : calls) {
    errno = 0;
    EXPECT_EQ(call.make(), -1) << call.name;
    EXPECT_EQ(errno, error) << call.name;
  }
}

TEST(Rdmacm, NullIsAnInvalidArgument) {
  rdma_cm_id* id = nullptr;
  expect_refused(
      {{"create_id", [] { return rdma_create_id(nullptr, nullptr, nullptr, RDMA_PS_TCP); }},
       {"destroy_id", [&] { return rdma_destroy_id(id); }},
       {"bind_addr", [&] { return rdma_bind_addr(id, nullptr); }},
       {"resolve_addr", [&] { return rdma_resolve_addr(id, nullptr, nullptr, 1); }},
       {"resolve_route", [&] { return rdma_resolve_route(id, 1); }},
       {"create_qp", [&] { return rdma_create_qp(id, nullptr, nullptr); }},
       {"create_qp_ex", [&] { return rdma_create_qp_ex(id, nullptr); }},
       {"create_srq", [&] { return rdma_create_srq(id, nullptr, nullptr); }},
       {"create_srq_ex", [&] { return rdma_create_srq_ex(id, nullptr); }},
       {"connect", [&] { return rdma_connect(id, nullptr); }},
       {"establish", [&] { return rdma_establish(id); }},
       {"listen", [&] { return rdma_listen(id, 1); }},
       {"get_request", [&] { return rdma_get_request(id, &id); }},
       {"accept", [&] { return rdma_accept(id, nullptr); }},
       {"reject", [&] { return rdma_reject(id, nullptr, 0); }},
       {"reject_ece", [&] { return rdma_reject_ece(id, nullptr, 0); }},
       {"notify", [&] { return rdma_notify(id, IBV_EVENT_COMM_EST); }},
       {"disconnect", [&] { return rdma_disconnect(id); }},
       {"resolve_addrinfo", [&] { return rdma_resolve_addrinfo(id, "::1", nullptr, nullptr); }},
       {"query_addrinfo", [&] { return rdma_query_addrinfo(id, nullptr); }},
       {"write_cm_event",
        [&] { return rdma_write_cm_event(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, 0); }},
       {"join_multicast", [&] { return rdma_join_multicast(id, nullptr, nullptr); }},
       {"join_multicast_ex", [&] { return rdma_join_multicast_ex(id, nullptr, nullptr); }},
       {"leave_multicast", [&] { return rdma_leave_multicast(id, nullptr); }},
       {"get_cm_event", [] { return rdma_get_cm_event(nullptr, nullptr); }},
       {"ack_cm_event", [] { return rdma_ack_cm_event(nullptr); }},
       {"set_option", [&] { return rdma_set_option(id, 0, 0, nullptr, 0); }},
       {"migrate_id", [&] { return rdma_migrate_id(id, nullptr); }},
       {"init_qp_attr", [&] { return rdma_init_qp_attr(id, nullptr, nullptr); }},
       {"set_local_ece", [&] { return rdma_set_local_ece(id, nullptr); }},
       {"get_remote_ece", [&] { return rdma_get_remote_ece(id, nullptr); }},
       {"create_ep", [] { return rdma_create_ep(nullptr, nullptr, nullptr, nullptr); }},
       {"getaddrinfo", [] { return rdma_getaddrinfo(nullptr, nullptr, nullptr, nullptr); }}},
      EINVAL);
}

TEST(Rdmacm, NullToWhatReturnsNothingIsLeftAlone) {
  rdma_destroy_event_channel(nullptr);
  rdma_destroy_qp(nullptr);
  rdma_destroy_srq(nullptr);
  rdma_destroy_ep(nullptr);
  rdma_free_devices(nullptr);
  rdma_freeaddrinfo(nullptr);
  EXPECT_EQ(rdma_get_src_port(nullptr), 0);
  EXPECT_EQ(rdma_get_dst_port(nullptr), 0);
}

TEST(Rdmacm, EveryEventHasItsName) {
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED");
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_ESTABLISHED), "RDMA_CM_EVENT_ESTABLISHED");
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
}

TEST(Rdmacm, AddressesOfTheActiveSide) {
  rdma_addrinfo hints = {};
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* found = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &found), 0);
  ASSERT_EQ(found->ai_dst_len, sizeof(sockaddr_in));
  EXPECT_EQ(reinterpret_cast<sockaddr_in*>(found->ai_dst_addr)->sin_port, htons(7471));
  EXPECT_EQ(found->ai_family, AF_INET);
  EXPECT_EQ(found->ai_qp_type, IBV_QPT_RC);
  EXPECT_EQ(found->ai_port_space, RDMA_PS_TCP);
  EXPECT_EQ(found->ai_src_addr, nullptr);
  EXPECT_EQ(found->ai_route_len, 0u);
  rdma_freeaddrinfo(found);
}

TEST(Rdmacm, AddressesOfThePassiveSide) {
  rdma_addrinfo hints = {};
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_UDP;
  hints.ai_qp_type = IBV_QPT_UD;
  rdma_addrinfo* found = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("::1", "7471", &hints, &found), 0);
  EXPECT_EQ(found->ai_src_len, sizeof(sockaddr_in6));
  EXPECT_EQ(found->ai_family, AF_INET6);
  EXPECT_EQ(found->ai_qp_type, IBV_QPT_UD);
  EXPECT_NE(found->ai_flags & RAI_PASSIVE, 0);
  EXPECT_EQ(found->ai_dst_addr, nullptr);
  rdma_freeaddrinfo(found);
}

TEST(Rdmacm, AddressesOfHintsAlone) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  rdma_addrinfo hints = {};
  hints.ai_dst_addr = reinterpret_cast<sockaddr*>(&address);
  hints.ai_dst_len = sizeof address;
  hints.ai_src_addr = reinterpret_cast<sockaddr*>(&address);
  hints.ai_src_len = sizeof address;
  rdma_addrinfo* found = nullptr;
  ASSERT_EQ(rdma_getaddrinfo(nullptr, nullptr, &hints, &found), 0);
  EXPECT_EQ(found->ai_dst_len, sizeof address);
  EXPECT_EQ(found->ai_src_len, sizeof address);
  EXPECT_NE(found->ai_dst_addr, hints.ai_dst_addr);
  rdma_freeaddrinfo(found);
}

TEST(Rdmacm, NamesThatDoNotResolveAnswerAsTheResolverDoes) {
  rdma_addrinfo hints = {};
  hints.ai_flags = RAI_NUMERICHOST;
  rdma_addrinfo* found = nullptr;
  EXPECT_EQ(rdma_getaddrinfo("no number", nullptr, &hints, &found), EAI_NONAME);
  EXPECT_EQ(found, nullptr);
}

TEST(Rsocket, KnowsNoOtherKinds) {
  expect_refused({{"domain", [] { return rsocket(AF_UNIX, SOCK_STREAM, 0); }},
                  {"type", [] { return rsocket(AF_INET, SOCK_RAW, 0); }},
                  {"protocol", [] { return rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP); }}},
                 ENOTSUP);
}

TEST(Rsocket, ADescriptorThatIsNoneIsBad) {
  char byte = 0;
  sockaddr_in address = {};
  auto* name = reinterpret_cast<sockaddr*>(&address);
  socklen_t bytes = sizeof address;
  iovec vector = {&byte, 1};
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  expect_refused({{"bind", [&] { return rbind(-1, name, bytes); }},
                  {"listen", [] { return rlisten(-1, 1); }},
                  {"accept", [] { return raccept(-1, nullptr, nullptr); }},
                  {"connect", [&] { return rconnect(-1, name, bytes); }},
                  {"shutdown", [] { return rshutdown(-1, SHUT_RDWR); }},
                  {"close", [] { return rclose(-1); }},
                  {"recv", [&] { return rrecv(-1, &byte, 1, 0); }},
                  {"recvfrom", [&] { return rrecvfrom(-1, &byte, 1, 0, nullptr, nullptr); }},
                  {"recvmsg", [&] { return rrecvmsg(-1, &message, 0); }},
                  {"send", [&] { return rsend(-1, &byte, 1, 0); }},
                  {"sendto", [&] { return rsendto(-1, &byte, 1, 0, nullptr, 0); }},
                  {"sendmsg", [&] { return rsendmsg(-1, &message, 0); }},
                  {"read", [&] { return rread(-1, &byte, 1); }},
                  {"readv", [&] { return rreadv(-1, &vector, 1); }},
                  {"write", [&] { return rwrite(-1, &byte, 1); }},
                  {"writev", [&] { return rwritev(-1, &vector, 1); }},
                  {"getpeername", [&] { return rgetpeername(-1, name, &bytes); }},
                  {"getsockname", [&] { return rgetsockname(-1, name, &bytes); }},
                  {"setsockopt", [&] { return rsetsockopt(-1, SOL_SOCKET, 0, &byte, 1); }},
                  {"getsockopt", [&] { return rgetsockopt(-1, SOL_SOCKET, 0, &byte, &bytes); }},
                  {"fcntl", [] { return rfcntl(-1, F_GETFL); }},
                  {"iomap", [&] { return riomap(-1, &byte, 1, 0, 0, -1); }},
                  {"iounmap", [&] { return riounmap(-1, &byte, 1); }},
                  {"iowrite", [&] { return static_cast<long>(riowrite(-1, &byte, 1, 0, 0)); }}},
                 EBADF);
}

TEST(Rsocket, NullsAreRefused) {
  expect_refused({{"recvmsg", [] { return rrecvmsg(0, nullptr, 0); }},
                  {"sendmsg", [] { return rsendmsg(0, nullptr, 0); }},
                  {"readv", [] { return rreadv(0, nullptr, 1); }},
                  {"writev", [] { return rwritev(0, nullptr, -1); }}},
                 EINVAL);
  expect_refused({{"poll", [] { return rpoll(nullptr, 1, 0); }}}, EFAULT);
}

// librspreload asks so for the family of a socket that it makes an ordinary one.
TEST(Rsocket, TheLengthOfANameIsToldWithoutRoomForIt) {
  for (const int domain : {AF_INET, AF_INET6}) {
    const int fd = rsocket(domain, SOCK_STREAM, 0);
    ASSERT_GE(fd, 0);
    socklen_t bytes = 0;
    EXPECT_EQ(rgetsockname(fd, nullptr, &bytes), 0);
    EXPECT_EQ(bytes, domain == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    errno = 0;
    EXPECT_EQ(rgetsockname(fd, nullptr, &bytes), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(rclose(fd), 0);
  }
}

// rpoll() and rselect() wait for other descriptors as poll and select do.
class ForeignDescriptor : public testing::Test {
 protected:
  ~ForeignDescriptor() override { close(fd); }
  void make_readable() const {
    const std::uint64_t one = 1;
    ASSERT_EQ(write(fd, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  int fd = eventfd(0, EFD_CLOEXEC);
};

TEST_F(ForeignDescriptor, Poll) {
  pollfd waiting = {fd, POLLIN, 0};
  EXPECT_EQ(rpoll(&waiting, 1, 0), 0);
  EXPECT_EQ(rpoll(&waiting, 1, 20), 0);
  make_readable();
  EXPECT_EQ(rpoll(&waiting, 1, -1), 1);
  EXPECT_EQ(waiting.revents, POLLIN);
}

TEST_F(ForeignDescriptor, Select) {
  fd_set readable;
  FD_ZERO(&readable);
  FD_SET(fd, &readable);
  timeval soon = {0, 1000};
  EXPECT_EQ(rselect(fd + 1, &readable, nullptr, nullptr, &soon), 0);
  EXPECT_FALSE(FD_ISSET(fd, &readable));
  make_readable();
  FD_SET(fd, &readable);
  fd_set writable = readable;
  EXPECT_EQ(rselect(fd + 1, &readable, &writable, nullptr, nullptr), 2);
  EXPECT_TRUE(FD_ISSET(fd, &readable));
  EXPECT_TRUE(FD_ISSET(fd, &writable));
}

TEST_F(ForeignDescriptor, SelectOfAClosedOne) {
  const int closed = dup(fd);
  close(closed);
  fd_set readable;
  FD_ZERO(&readable);
  FD_SET(closed, &readable);
  timeval now = {};
  errno = 0;
  EXPECT_EQ(rselect(closed + 1, &readable, nullptr, nullptr, &now), -1);
  EXPECT_EQ(errno, EBADF);
}

class PollSet : public ForeignDescriptor {
 protected:
  ~PollSet() override { EXPECT_EQ(rclose(set), 0); }
  int control(int operation, int member, std::uint32_t events, std::uint64_t data = 0) const {
    epoll_event event = {};
    event.events = events;
    event.data.u64 = data;
    return repoll_ctl(set, operation, member, &event);
  }
  int set = repoll_create(EPOLL_CLOEXEC);
};

TEST_F(PollSet, ReportsLevelsWithTheCallersData) {
  ASSERT_GE(set, 0);
  std::array<epoll_event, 4> events = {};
  EXPECT_EQ(repoll_wait(set, events.data(), 4, 0), 0);
  ASSERT_EQ(control(EPOLL_CTL_ADD, fd, EPOLLIN, 77), 0);
  EXPECT_EQ(repoll_wait(set, events.data(), 4, 10), 0);
  make_readable();
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(repoll_wait(set, events.data(), 4, -1), 1);
    EXPECT_EQ(events[0].events, std::uint32_t{EPOLLIN});
    EXPECT_EQ(events[0].data.u64, 77u);
  }
  ASSERT_EQ(control(EPOLL_CTL_MOD, fd, EPOLLOUT, 78), 0);
  ASSERT_EQ(repoll_wait(set, events.data(), 4, -1), 1);
  EXPECT_EQ(events[0].events, std::uint32_t{EPOLLOUT});
  EXPECT_EQ(events[0].data.u64, 78u);
  ASSERT_EQ(control(EPOLL_CTL_DEL, fd, 0), 0);
  EXPECT_EQ(repoll_wait(set, events.data(), 4, 0), 0);
}

TEST_F(PollSet, AOneShotMemberIsReportedOnceUntilItIsChanged) {
  std::array<epoll_event, 4> events = {};
  ASSERT_EQ(control(EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLONESHOT), 0);
  make_readable();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(repoll_wait(set, events.data(), 4, 1'000), 1);
    EXPECT_EQ(repoll_wait(set, events.data(), 4, 10), 0);
    ASSERT_EQ(control(EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT), 0);
  }
}

TEST_F(PollSet, EveryMemberHasItsTurn) {
  const int other = dup(fd);
  ASSERT_EQ(control(EPOLL_CTL_ADD, fd, EPOLLOUT, 1), 0);
  ASSERT_EQ(control(EPOLL_CTL_ADD, other, EPOLLOUT, 2), 0);
  for (const std::uint64_t expected : {1u, 2u, 1u, 2u}) {
    epoll_event event = {};
    ASSERT_EQ(repoll_wait(set, &event, 1, -1), 1);
    EXPECT_EQ(event.data.u64, expected);
  }
  close(other);
  std::array<epoll_event, 4> events = {};
  EXPECT_EQ(repoll_wait(set, events.data(), 4, -1), 1) << "a closed one is forgotten";
  EXPECT_EQ(events[0].data.u64, 1u);
}

TEST_F(PollSet, AThreadThatWaitsSeesAChange) {
  std::vector<std::thread> waiters;
  std::array<int, 3> counts = {};
  waiters.reserve(counts.size());
  for (int& count : counts) {
    waiters.emplace_back([this, &count] {
      epoll_event event = {};
      count = repoll_wait(set, &event, 1, 10'000);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  make_readable();
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(control(EPOLL_CTL_ADD, fd, 0), 0);
  ASSERT_EQ(control(EPOLL_CTL_MOD, fd, EPOLLIN), 0);
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(counts, (std::array<int, 3>{1, 1, 1}));
}

TEST_F(PollSet, WhatMeansNothingIsRefused) {
  epoll_event event = {};
  event.events = EPOLLIN;
  const int closed = dup(fd);
  close(closed);
  expect_refused(
      {{"of a closed one", [&] { return repoll_ctl(closed, EPOLL_CTL_ADD, fd, &event); }},
       {"a closed one", [&] { return repoll_ctl(set, EPOLL_CTL_ADD, closed, &event); }},
       {"negative", [&] { return repoll_ctl(set, EPOLL_CTL_ADD, -1, &event); }},
       {"wait of none", [&] { return repoll_wait(closed, &event, 1, 0); }}},
      EBADF);
  expect_refused({{"itself", [&] { return repoll_ctl(set, EPOLL_CTL_ADD, set, &event); }},
                  {"of no set", [&] { return repoll_ctl(fd, EPOLL_CTL_ADD, fd, &event); }},
                  {"no operation", [&] { return repoll_ctl(set, 9, fd, &event); }},
                  {"flags", [] { return repoll_create(1); }},
                  {"room for none", [&] { return repoll_wait(set, &event, 0, 0); }},
                  {"wait of no set", [&] { return repoll_wait(fd, &event, 1, 0); }}},
                 EINVAL);
  expect_refused({{"null", [&] { return repoll_ctl(set, EPOLL_CTL_ADD, fd, nullptr); }},
                  {"null events", [&] { return repoll_wait(set, nullptr, 1, 0); }}},
                 EFAULT);
  expect_refused({{"change of none", [&] { return control(EPOLL_CTL_MOD, fd, EPOLLIN); }},
                  {"removal of none", [&] { return control(EPOLL_CTL_DEL, fd, EPOLLIN); }}},
                 ENOENT);
  ASSERT_EQ(control(EPOLL_CTL_ADD, fd, EPOLLIN), 0);
  expect_refused({{"twice", [&] { return control(EPOLL_CTL_ADD, fd, EPOLLIN); }}}, EEXIST);
}

}  // namespace
}  // namespace tulle::shim
