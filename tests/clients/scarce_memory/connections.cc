// Fails each allocation of each call of librdmacm in turn, rsockets' included. rdmacm_test.py runs
// this program with a host agent in a network namespace.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "../../abi/scarce_memory.h"
#include "../../abi/scarce_probe.h"

namespace tulle::shim {
namespace {

using scarce_memory::Mode;
using scarce_memory::Probe;

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

sockaddr* generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

// Both ends of a connection, each of whose calls runs under the probe.
class Connection {
 public:
  explicit Connection(Probe& probe) : probe(probe) {}

  void run() {
    server = channel();
    client = channel();
    rdma_cm_id* listener = create(server);
    sockaddr_in address = loopback(0);
    EXPECT_EQ(probe("bind_addr", [&] { return rdma_bind_addr(listener, generic(address)); }), 0);
    EXPECT_EQ(probe("listen", [&] { return rdma_listen(listener, 4); }), 0);
    address = loopback(ntohs(rdma_get_src_port(listener)));
    rdma_cm_id* active = create(client);
    EXPECT_EQ(probe("resolve_addr",
                    [&] { return rdma_resolve_addr(active, nullptr, generic(address), 2000); }),
              0);
    take(client, RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(probe("resolve_route", [&] { return rdma_resolve_route(active, 2000); }), 0);
    take(client, RDMA_CM_EVENT_ROUTE_RESOLVED);
    create_qp(active);
    rdma_conn_param parameters = {};
    parameters.private_data = "hello";
    parameters.private_data_len = 5;
    EXPECT_EQ(probe("connect", [&] { return rdma_connect(active, &parameters); }), 0);
    rdma_cm_id* passive = take(server, RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_NE(passive, nullptr);
    create_qp(passive);
    parameters.private_data_len = 0;
    EXPECT_EQ(probe("accept", [&] { return rdma_accept(passive, &parameters); }), 0);
    take(client, RDMA_CM_EVENT_ESTABLISHED);
    take(server, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(probe("disconnect", [&] { return rdma_disconnect(active); }), 0);
    take(server, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(rdma_disconnect(passive), 0);
    take(client, RDMA_CM_EVENT_DISCONNECTED);
    for (rdma_cm_id* id : {active, passive}) rdma_destroy_qp(id);
    for (rdma_cm_id* id : {active, passive, listener}) {
      EXPECT_EQ(probe("destroy_id", [&] { return rdma_destroy_id(id); }), 0);
    }
    rdma_destroy_event_channel(client);
    rdma_destroy_event_channel(server);
  }

 private:
  rdma_event_channel* channel() {
    return probe("create_event_channel", [] { return rdma_create_event_channel(); });
  }

  rdma_cm_id* create(rdma_event_channel* on) {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(probe("create_id", [&] { return rdma_create_id(on, &id, nullptr, RDMA_PS_TCP); }), 0);
    return id;
  }

  // Returns the event's id.
  rdma_cm_id* take(rdma_event_channel* from, rdma_cm_event_type type) {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(probe("get_cm_event", [&] { return rdma_get_cm_event(from, &event); }), 0);
    if (event == nullptr) return nullptr;
    EXPECT_STREQ(rdma_event_str(event->event), rdma_event_str(type));
    EXPECT_EQ(event->status, 0);
    rdma_cm_id* id = event->id;
    EXPECT_EQ(rdma_ack_cm_event(event), 0);
    return id;
  }

  void create_qp(rdma_cm_id* id) {
    EXPECT_EQ(probe("create_qp",
                    [&] {
                      ibv_qp_init_attr attributes = {};
                      attributes.qp_type = IBV_QPT_RC;
                      attributes.cap = {4, 4, 1, 1, 0};
                      return rdma_create_qp(id, nullptr, &attributes);
                    }),
              0);
  }

  Probe& probe;
  rdma_event_channel* server = nullptr;
  rdma_event_channel* client = nullptr;
};

void connect(Probe& probe) { Connection(probe).run(); }

// An rsocket's listener in this thread, and a client in another. A stream that gets no memory for a
// transfer ends, so that transfers have memory all the time.
void stream(Probe& probe) {
  const int listener = probe("rsocket", [] { return rsocket(AF_INET, SOCK_STREAM, 0); });
  ASSERT_GE(listener, 0);
  sockaddr_in address = loopback(0);
  EXPECT_EQ(probe("rbind", [&] { return rbind(listener, generic(address), sizeof address); }), 0);
  EXPECT_EQ(probe("rlisten", [&] { return rlisten(listener, 4); }), 0);
  socklen_t bytes = sizeof address;
  EXPECT_EQ(rgetsockname(listener, generic(address), &bytes), 0);
  std::thread peer([&] {
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(rconnect(fd, generic(address), sizeof address), 0);
    std::array<char, 8> data = {};
    EXPECT_EQ(rrecv(fd, data.data(), data.size(), MSG_WAITALL), 8);
    EXPECT_EQ(rsend(fd, data.data(), data.size(), 0), 8);
    EXPECT_EQ(rrecv(fd, data.data(), data.size(), 0), 0);
    EXPECT_EQ(rclose(fd), 0);
  });
  const int fd = raccept(listener, nullptr, nullptr);
  EXPECT_GE(fd, 0);
  std::array<char, 8> data = {"abcdefg"};
  EXPECT_EQ(rsend(fd, data.data(), data.size(), 0), 8);
  EXPECT_EQ(rrecv(fd, data.data(), data.size(), MSG_WAITALL), 8);
  EXPECT_EQ(rshutdown(fd, SHUT_RDWR), 0);
  peer.join();
  EXPECT_EQ(rclose(fd), 0);
  EXPECT_EQ(rclose(listener), 0);
}

void walk(void (*run)(Probe&), Mode mode, unsigned failures_min) {
  Probe nothing_fails;
  run(nothing_fails);
  Probe probe(mode);
  run(probe);
  EXPECT_GT(probe.failures(), failures_min) << "allocations are not seen";
  run(nothing_fails);  // the process's device works as before
  std::printf("%u allocations failed in turn; %u calls worked all the same\n", probe.failures(),
              probe.unnoticed());
}

TEST(ScarceMemoryOfConnections, EachAllocationMayFail) { walk(connect, Mode::one_fails, 60); }
TEST(ScarceMemoryOfConnections, AllAllocationsMayFail) { walk(connect, Mode::all_fail, 60); }
TEST(ScarceMemoryOfStreams, EachAllocationMayFail) { walk(stream, Mode::one_fails, 10); }
TEST(ScarceMemoryOfStreams, AllAllocationsMayFail) { walk(stream, Mode::all_fail, 10); }

}  // namespace
}  // namespace tulle::shim
