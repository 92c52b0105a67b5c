#include "ranks/frames.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tulle::ranks {

using Clock = std::chrono::steady_clock;

FrameSocket::FrameSocket(UniqueFd fd, std::uint32_t longest)
    : fd_(std::move(fd)), longest_(longest) {
  fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
}

bool wait_for(int fd, short events, std::chrono::milliseconds limit) {
  std::array waiting{pollfd{fd, events, 0}};
  return poll(waiting.data(), waiting.size(), static_cast<int>(limit.count())) > 0;
}

Result<void> FrameSocket::send_bytes(FrameKind kind, std::span<const std::byte> bytes,
                                     std::chrono::milliseconds limit) {
  const Head head{static_cast<std::uint32_t>(bytes.size()), kind};
  std::vector<std::byte> all(sizeof head + bytes.size());
  std::memcpy(all.data(), &head, sizeof head);
  std::ranges::copy(bytes, all.begin() + sizeof head);
  const auto deadline = Clock::now() + limit;
  for (std::size_t sent = 0; sent < all.size();) {
    const ssize_t n = ::send(fd(), &all[sent], all.size() - sent, MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<std::size_t>(n);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return Error{std::strerror(errno), errno};
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left <= left.zero()) return Error{"it does not read", ETIMEDOUT};
    wait_for(fd(), POLLOUT, left);
  }
  return {};
}

Result<bool> FrameSocket::read() {
  std::array<std::byte, 16'384> some;
  for (;;) {
    const ssize_t n = recv(fd(), some.data(), some.size(), 0);
    if (n == 0) return false;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n < 0 && errno == ECONNRESET) return false;
    if (n < 0) return Error{std::strerror(errno), errno};
    read_.insert(read_.end(), some.begin(), some.begin() + n);
    Head head;
    if (read_.size() < sizeof head) continue;
    std::memcpy(&head, read_.data(), sizeof head);
    if (head.bytes > longest_) return Error{"it sent something that is no message of a rank"};
    // A rank that sends many frames at once waits until these were taken.
    if (read_.size() >= sizeof head + head.bytes) return true;
  }
}

std::optional<Frame> FrameSocket::take() {
  Head head;
  if (read_.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, read_.data(), sizeof head);
  if (head.bytes > longest_ || read_.size() < sizeof head + head.bytes) return std::nullopt;
  const auto begin = read_.begin() + sizeof head;
  Frame frame{head.kind, {begin, begin + head.bytes}};
  read_.erase(read_.begin(), begin + head.bytes);
  return frame;
}

}  // namespace tulle::ranks
