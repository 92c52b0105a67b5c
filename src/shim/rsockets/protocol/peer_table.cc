#include "shim/rsockets/protocol/peer_table.h"

namespace tulle::rsockets {

PeerKey PeerKey::of(const sockaddr& from) {
  PeerKey key;
  key.family = from.sa_family;
  if (from.sa_family == AF_INET) {
    sockaddr_in address;
    std::memcpy(&address, &from, sizeof address);
    key.port = address.sin_port;
    std::memcpy(key.address.data(), &address.sin_addr, sizeof address.sin_addr);
  } else if (from.sa_family == AF_INET6) {
    sockaddr_in6 address;
    std::memcpy(&address, &from, sizeof address);
    key.port = address.sin6_port;
    key.scope = address.sin6_scope_id;
    std::memcpy(key.address.data(), &address.sin6_addr, sizeof address.sin6_addr);
  }
  return key;
}

}  // namespace tulle::rsockets
