#pragma once

// Ranks and the process that leads them talk over a stream socket, by frames of a kind and some
// bytes, which are fields (os/codec.h) or a text. All processes have the same byte order, which the
// greeting shows.

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "os/codec.h"
#include "os/unique_fd.h"

namespace tulle::ranks {

enum class FrameKind : std::uint32_t {
  greeting = 1,  // a rank: Greeting
  addresses,     // a rank: Address for each of its links; the leader: those of its peers
  ready,         // a rank: how many values were wrong, 8 bytes; it waits for `go`
  done,          // a rank: Done; it waits for `go`
  alive,         // a rank, each second while it works; the leader, to a rank that waits
  failed,        // a rank or the leader: a line for a person
  go,            // the leader, when all ranks wait
  end,           // the leader: a rank may exit
  waits,         // a rank, each second while it waits for the leader
};

struct Greeting {
  static constexpr std::uint64_t tulle = 0x5475'6C6C'652D'7232;  // "Tulle-r2"
  std::uint64_t magic = tulle;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;
  std::uint64_t work = 0;        // a number that differs where the command lines do
  std::array<char, 64> token{};  // zeros behind it
};
template <typename Archive>
void fields(Archive& archive, Greeting& greeting) {
  archive(greeting.magic, greeting.rank, greeting.ranks, greeting.work, greeting.token);
}

// A rank says how long an iteration took it.
struct Done {
  std::uint64_t nanoseconds = 0;
  std::uint64_t processor_nanoseconds = 0;  // of all its threads
};
template <typename Archive>
void fields(Archive& archive, Done& done) {
  archive(done.nanoseconds, done.processor_nanoseconds);
}

// An address says how to reach one end of a connection between two ranks.
struct Address {
  std::uint32_t peer = 0;  // the other rank
  std::uint32_t channel = 0;
  std::uint32_t qp = 0;
  std::uint32_t slots = 0;  // chunks that may be under way to this end
  std::array<std::uint8_t, 16> gid{};
  std::uint64_t staging = 0;  // where chunks to be added go
  std::uint64_t target = 0;   // the buffer in which messages arrive
  std::uint32_t staging_key = 0;
  std::uint32_t target_key = 0;
};
template <typename Archive>
void fields(Archive& archive, Address& address) {
  archive(address.peer, address.channel, address.qp, address.slots, address.gid, address.staging,
          address.target, address.staging_key, address.target_key);
}

struct Frame {
  FrameKind kind = FrameKind::alive;
  std::vector<std::byte> bytes;

  std::string text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
  // Returns nothing if the frame is not one T.
  template <typename T>
  std::optional<T> as() const {
    return from_fields<T>(bytes);
  }
};

// Waits until one of poll's events holds for the descriptor, but not longer than that. Returns true
// if one does.
bool wait_for(int fd, short events, std::chrono::milliseconds limit);

// One end of such a socket. A frame that is longer than `longest` is an error, and no more than
// that is kept of it.
class FrameSocket {
 public:
  // An address for each of 64 ranks and 64 channels.
  static constexpr std::uint32_t addresses_max = 64 * 64;
  static constexpr std::uint32_t longest_frame = 4 + addresses_max * sizeof(Address);

  FrameSocket() = default;
  // The socket becomes non-blocking.
  explicit FrameSocket(UniqueFd fd, std::uint32_t longest = longest_frame);

  int fd() const { return fd_.get(); }
  void allow(std::uint32_t longest) { longest_ = longest; }
  void close() { fd_.reset(); }

  // Sends a frame. Waits for the peer to read if it must, but not longer than that.
  Result<void> send_bytes(FrameKind kind, std::span<const std::byte> bytes,
                          std::chrono::milliseconds limit);
  template <typename T>
  Result<void> send(FrameKind kind, const T& value, std::chrono::milliseconds limit) {
    return send_bytes(kind, fields_of(value), limit);
  }
  Result<void> send(FrameKind kind, std::chrono::milliseconds limit) {
    return send_bytes(kind, {}, limit);
  }
  Result<void> send_text(FrameKind kind, std::string_view text, std::chrono::milliseconds limit) {
    return send_bytes(kind, std::as_bytes(std::span(text)), limit);
  }

  // Reads what has come. Returns false if the peer has closed the socket, and an error if it is
  // broken or the peer sends nonsense.
  Result<bool> read();
  // Takes the next frame that has come completely.
  std::optional<Frame> take();

 private:
  struct Head {
    std::uint32_t bytes = 0;
    FrameKind kind = FrameKind::alive;
  };
  UniqueFd fd_;
  std::uint32_t longest_ = longest_frame;
  std::vector<std::byte> read_;
};

}  // namespace tulle::ranks
