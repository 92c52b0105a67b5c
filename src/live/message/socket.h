#pragma once

// SOCK_SEQPACKET connections between programs and the agent: messages with descriptors attached.

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "live/unique_fd.h"

namespace tulle::live {

struct ReceivedMessage {
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> fds;
};

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
};

// `address` is "@name" for Linux's abstract names, which belong to the network namespace as UDP
// ports do, or a path. The error_number says why: EADDRINUSE, ECONNREFUSED, ENOENT …
Result<UniqueFd> listen_at(const std::string& address);
Result<UniqueFd> connect_to(const std::string& address);
Result<Peer> peer_of(int socket);

// Never blocks; at most 250 descriptors. The error_number is EAGAIN where the other end does not
// read.
Result<void> send_message(int socket, std::span<const std::byte> bytes,
                          std::span<const int> fds = {});
// Never blocks. The error_number is EAGAIN where there is none, ECONNRESET where the other end is
// gone.
Result<ReceivedMessage> receive_message(int socket);
// The oldest message without taking it: its descriptors are duplicates.
Result<ReceivedMessage> peek_message(int socket);
// Waits for a message; the error_number is ETIMEDOUT after that time.
Result<ReceivedMessage> await_message(int socket, int timeout_milliseconds);

}  // namespace tulle::live
