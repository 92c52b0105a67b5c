#pragma once

// The process that makes the namespaces of a fabric's hosts (host_networks.h), and the messages to
// and from it (os/codec.h).

#include <cstdint>
#include <string>
#include <vector>

namespace tulle::live {

// The keeper's first message. A descriptor of the bridge's namespace comes with it, which would
// otherwise go with the keeper.
struct KeeperReady {
  std::string fault{};          // why there is no bridge; empty if there is one
  std::string no_interfaces{};  // why there can be no IP over InfiniBand; empty if there can
};
template <typename Archive>
void fields(Archive& archive, KeeperReady& ready) {
  archive(ready.fault, ready.no_interfaces);
}

// The descriptors of a host's namespaces come with a request, if they have been made.
struct KeeperRequest {
  enum class Kind : std::uint8_t {
    host,       // makes the namespaces of a host
    interface,  // makes an interface of a host that has packets from and to this process
    mtu,        // changes the longest packet of an interface
  };
  Kind kind = Kind::host;
  std::uint32_t host = 0;
  std::string name{};  // of the interface
  std::uint32_t mtu = 0;
  std::vector<std::string> addresses{};  // of the interface, each with the length of its prefix
};
template <typename Archive>
void fields(Archive& archive, KeeperRequest& request) {
  archive(request.kind, request.host, request.name, request.mtu, request.addresses);
}

// Descriptors come with an answer: of the namespaces, or of the interface and a socket that tells
// of its addresses.
struct KeeperAnswer {
  KeeperRequest::Kind kind = KeeperRequest::Kind::host;
  std::uint32_t host = 0;
  std::string name{};
  std::uint32_t index = 0;  // of the interface
  std::string fault{};      // why there are no descriptors
};
template <typename Archive>
void fields(Archive& archive, KeeperAnswer& answer) {
  archive(answer.kind, answer.host, answer.name, answer.index, answer.fault);
}

// Runs in the keeper's process, which has one thread, until the other end of `socket` is closed, or
// sends what is no request. After KeeperReady, it answers each request, but for changes of the MTU.
// `file` has the names and addresses of all hosts, as in /etc/hosts.
void keep_networks(int socket, const std::string& file, std::uint32_t hosts);

}  // namespace tulle::live
