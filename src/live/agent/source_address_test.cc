#include "live/agent/source_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "live/private_network_test.h"

namespace tulle::live {
namespace {

SocketAddress address_of(const std::string& text, std::uint32_t scope = 0) {
  SocketAddress out;
  out.family = text.find(':') == std::string::npos ? AF_INET : AF_INET6;
  EXPECT_EQ(inet_pton(out.family, text.c_str(), out.address.data()), 1) << text;
  out.scope_id = scope;
  return out;
}

// What a UDP socket that is connected there says. Returns 0 or an errno.
int connected_source(SocketAddress& source, SocketAddress to) {
  const int fd = socket(to.family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  to.port = 1;
  sockaddr_storage name;
  socklen_t bytes = 0;
  int error = 0;
  if (source.family != 0) {
    bytes = source.copy_to(name);
    error = bind(fd, reinterpret_cast<sockaddr*>(&name), bytes) == 0 ? 0 : errno;
  }
  bytes = to.copy_to(name);
  if (error == 0) error = connect(fd, reinterpret_cast<sockaddr*>(&name), bytes) == 0 ? 0 : errno;
  bytes = sizeof name;
  if (error == 0 && getsockname(fd, reinterpret_cast<sockaddr*>(&name), &bytes) == 0) {
    source = *SocketAddress::from(reinterpret_cast<sockaddr*>(&name), bytes);
    source.port = 0;
  }
  close(fd);
  return error;
}

void expect_same(const SocketAddress& to, const SocketAddress& from, const std::string& what) {
  SocketAddress found = from, wanted = from;
  const int error = find_source_address(found, to);
  EXPECT_EQ(error, connected_source(wanted, to)) << what;
  if (error == 0) {
    EXPECT_EQ(found, wanted) << what;
  }
}

void expect_same_everywhere(std::uint32_t scope) {
  for (const char* to : {"127.0.0.1", "127.3.4.5", "0.0.0.0", "10.1.0.1", "10.1.0.9", "10.2.0.1",
                         "192.0.2.1", "224.0.0.1", "255.255.255.255", "10.1.0.255", "::1",
                         "::", "fd00:1::1", "fd00:1::9", "fd00:2::1", "2001:db8::1"}) {
    expect_same(address_of(to), {}, to);
    for (const char* from : {"127.0.0.1", "10.1.0.1", "::1", "fd00:1::1"}) {
      const SocketAddress source = address_of(from);
      SocketAddress probe = source;
      if (source.family != address_of(to).family) continue;
      if (connected_source(probe, source) != 0) continue;  // it is not this host's
      expect_same(address_of(to), source, std::string(to) + " from " + from);
    }
  }
  if (scope != 0) expect_same(address_of("fe80::9", scope), {}, "a neighbour on the link");
  SocketAddress none;
  EXPECT_EQ(find_source_address(none, address_of("fe80::9")), EINVAL);
}

TEST(SourceAddress, IsThatOfAConnectedSocket) { expect_same_everywhere(0); }

TEST(SourceAddress, FollowsRoutes) {
  constexpr int has_no_network = 77;
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (!enter_private_network()) _exit(has_no_network);
    for (const char* command :
         {"ip link add va type veth peer name vb", "ip link set va up", "ip link set vb up",
          "ip addr add 10.1.0.1/24 brd + dev va", "ip addr add fd00:1::1/64 dev va nodad",
          "ip route add 10.2.0.0/24 via 10.1.0.7", "ip route add fd00:2::/64 via fd00:1::7"}) {
      if (std::system(command) != 0) _exit(has_no_network);
    }
    usleep(100'000);
    expect_same_everywhere(if_nametoindex("va"));
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == has_no_network) GTEST_SKIP() << "this test may not make a network";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tulle::live
