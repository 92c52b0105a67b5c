#include "live/message/sender_closers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <span>

namespace tulle::live {
namespace {

// None of these calls asks the file's owner anything.
bool is_harmless(const UniqueFd& fd) {
  if (fcntl(fd.get(), F_GET_SEALS) >= 0) return true;
  int domain = 0;
  socklen_t size = sizeof domain;
  return getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

// Passes a message on, in a thread that has its own descriptors, and closes what came when it
// exits. If the message may not pass, the other end sees that at once.
void sift(int from, int to) {
  try {
    std::vector<UniqueFd> of_no_message;
    auto message = receive_message(from, &of_no_message);
    for (UniqueFd& fd : of_no_message) static_cast<void>(fd.release());
    if (message) {
      std::vector<int> numbers;
      const bool may_pass = std::ranges::all_of(message->fds, is_harmless);
      for (UniqueFd& fd : message->fds) numbers.push_back(fd.release());
      if (may_pass) static_cast<void>(send_message(to, message->bytes, numbers));
    }
  } catch (const std::exception&) {  // there is no memory
  }
  shutdown(to, SHUT_RDWR);
}

}  // namespace

Result<ReceivedMessage> SenderClosers::receive(Sender sender, int socket,
                                               std::vector<UniqueFd>* of_no_message) {
  constexpr int patience_milliseconds = 1'000;
  // As many as a user's programs may expose at once must count as fewer than a user may leave open.
  constexpr std::size_t counted = 4;
  if (!exiting_->is_possible()) return receive_message(socket, of_no_message);
  // A message may come at any time. Only one that was looked at is received here.
  auto has_descriptors = next_has_descriptors(socket);
  if (!has_descriptors) return has_descriptors.error();
  if (!*has_descriptors) return receive_bytes(socket);
  const Error refused{"a message with descriptors that nobody takes", EPROTO};
  std::array<int, 2> ends{};
  constexpr int kind = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC;
  if (socketpair(AF_UNIX, kind, 0, ends.data()) != 0) return refused;
  const UniqueFd passed(ends[0]);
  UniqueFd passing(ends[1]);
  const std::array<int, 2> files = {socket, passing.get()};
  const auto thread =
      exiting_->start(files, [](std::span<const int> numbers) { sift(numbers[0], numbers[1]); });
  if (!thread) return refused;
  files_.add(sender, *thread, counted);
  passing.reset();
  pollfd readable{passed.get(), POLLIN, 0};
  while (poll(&readable, 1, patience_milliseconds) < 0 && errno == EINTR) {
  }
  auto message = receive_message(passed.get());
  if (!message) return refused;
  return message;
}

}  // namespace tulle::live
