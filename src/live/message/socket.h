#pragma once

// SOCK_SEQPACKET connections between programs and the host agent. Their messages may carry
// descriptors.

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "os/unique_fd.h"

namespace tulle::live {

struct ReceivedMessage {
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> fds;
};

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
};

// `address` is a path, or "@name" for one of Linux's abstract names, which belong to the network
// namespace as UDP ports do. The error_number says why the call failed: EADDRINUSE, ECONNREFUSED,
// ENOENT …
Result<UniqueFd> listen_at(const std::string& address);
Result<UniqueFd> connect_to(const std::string& address);
// Does the same, and tries again for so long while more connect at once than the other end's queue
// has room for (EAGAIN).
Result<UniqueFd> connect_patiently(const std::string& address, int milliseconds);
Result<Peer> peer_of(int socket);
// Returns the number of the process at the other end, or 0 if the system does not say.
pid_t process_at(int socket);
// Returns a descriptor (pidfd) that is readable once the process that connected has ended. An older
// kernel than Linux 6.5 tells nothing of a process in another PID namespace: the result is none
// then. The error_number is ESRCH if the process has ended and was waited for.
Result<UniqueFd> watched_process(int socket);

// A message has at most so many descriptors (Linux's SCM_MAX_FD).
inline constexpr std::size_t fds_max = 253;
// Room for the descriptors of a message that recvmsg(2) receives.
struct RoomForDescriptors {
  alignas(cmsghdr) std::byte bytes[CMSG_SPACE(fds_max * sizeof(int))];
};
// Returns the descriptors of a received message.
std::vector<UniqueFd> descriptors_of(msghdr& header);

// Sends a message with at most `fds_max` descriptors. Never blocks. The error_number is EAGAIN if
// the peer does not read.
Result<void> send_message(int socket, std::span<const std::byte> bytes,
                          std::span<const int> fds = {});
// Receives a message. Never blocks. The error_number is EAGAIN if there is none, and ECONNRESET if
// the peer is gone. The descriptors of a message that is no message, being empty or too long, go to
// `of_no_message` if that is given, for callers who must not wait until they are closed.
Result<ReceivedMessage> receive_message(int socket, std::vector<UniqueFd>* of_no_message = nullptr);
// Returns the oldest message without taking it. Its descriptors are duplicates.
Result<ReceivedMessage> peek_message(int socket);
// Receives a message that has no descriptors. Those of another would not get here.
Result<ReceivedMessage> receive_bytes(int socket);
// Returns whether the oldest message has descriptors. It stays where it is, and if there is none,
// the next one may have any: the error_number is EAGAIN then, and ECONNRESET if the peer is gone.
Result<bool> next_has_descriptors(int socket);
// Returns true if the other end has read all that was sent, or is gone.
bool is_all_read(int socket);
// Takes the messages of a socket on which nothing more can come, up to the first that has
// descriptors. Returns true if none is left.
bool drop_messages(int socket);
// Waits for a message. The error_number is ETIMEDOUT if none comes within that time.
Result<ReceivedMessage> await_message(int socket, int timeout_milliseconds);

}  // namespace tulle::live
