#pragma once

// Two sides of a stream with their memory, and a network that carries writes from one to the other
// in order, for tests.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "shim/rsockets/protocol/stream.h"

namespace tulle::rsockets {

struct StreamSide {
  StreamSide(const SocketSizes& sizes, std::uint32_t first_key)
      : send(StreamSender::buffer_bytes(sizes)),
        receive(sizes.receive_buffer_bytes + behind_bytes),
        targets(StreamProtocol::targets_bytes(sizes)) {
    // Nothing may read the bytes behind the buffer.
    std::fill(receive.begin() + sizes.receive_buffer_bytes, receive.end(), behind);
    exposed = {{std::span(receive).first(sizes.receive_buffer_bytes), first_key},
               {targets, first_key + 1}};
    protocol.start({send, exposed[0], exposed[1]}, sizes);
  }

  // Sends as much of the text as may be sent now, in pieces of at most `piece_max` bytes. Returns
  // the number of bytes.
  std::size_t write(std::string_view text, std::size_t piece_max = 64 << 10) {
    std::size_t done = 0;
    while (done < text.size() && protocol.is_writable() && protocol.can_send()) {
      const iovec from = {const_cast<char*>(text.data()), text.size()};
      post(protocol.write_data({&from, 1}, done, std::min(text.size() - done, piece_max)));
      done += posted.back().bytes.size();
    }
    return done;
  }

  // Reads what has arrived, at most `max` bytes.
  std::string read(std::size_t max = 64 << 10, bool peek = false) {
    std::string text(max, '\0');
    const iovec into = {text.data(), text.size()};
    text.resize(protocol.read({&into, 1}, 0, peek));
    return text;
  }

  struct Posted {
    StreamWrite write;
    std::vector<std::byte> bytes;
  };
  void post(const StreamWrite& write) {
    posted.push_back({write, {write.bytes.begin(), write.bytes.end()}});
  }

  static constexpr std::size_t behind_bytes = 64 << 10;
  static constexpr std::byte behind{0xEE};

  std::vector<std::byte> send;
  std::vector<std::byte> receive;
  std::vector<std::byte> targets;
  std::vector<ExposedMemory> exposed;  // what the peer may write
  StreamProtocol protocol;
  std::deque<Posted> posted;
};

class StreamPair {
 public:
  explicit StreamPair(const SocketSizes& sizes) : a(sizes, 0x100), b(sizes, 0x200) {
    open(a, b);
    open(b, a);
  }

  static void open(StreamSide& side, const StreamSide& peer) {
    const ConnectionData data = peer.protocol.own_data();
    ASSERT_EQ(side.protocol.open(std::as_bytes(std::span(&data, 1))), 0);
  }

  // Carries all that was posted, without a word of credits.
  void carry() {
    carry(a, b);
    carry(b, a);
  }
  // Carries all that was posted and the credits that follow, until nothing is under way.
  void settle() {
    do {
      for (StreamSide* side : {&a, &b}) {
        if (const auto credits = side->protocol.next_credits()) side->post(*credits);
      }
      if (a.posted.empty() && b.posted.empty()) return;
      carry();
    } while (true);
  }

  // Carries one write of one side to the other.
  static void carry_one(StreamSide& from, StreamSide& to) {
    const StreamSide::Posted posted = from.posted.front();
    from.posted.pop_front();
    place(posted, to);
    if (posted.write.has_immediate) {
      to.protocol.handle_message(posted.write.message, posted.bytes.size());
    }
    from.protocol.handle_sent(posted.write.work_id, true);
  }

  StreamSide a;
  StreamSide b;

 private:
  static void carry(StreamSide& from, StreamSide& to) {
    while (!from.posted.empty()) carry_one(from, to);
  }

  static void place(const StreamSide::Posted& posted, StreamSide& to) {
    if (posted.bytes.empty()) return;
    for (const ExposedMemory& memory : to.exposed) {
      const std::uint64_t offset = posted.write.address - memory.address();
      if (posted.write.key != memory.key) continue;
      ASSERT_LE(offset + posted.bytes.size(), memory.bytes.size());
      std::memcpy(memory.bytes.data() + offset, posted.bytes.data(), posted.bytes.size());
      return;
    }
    FAIL() << "key " << posted.write.key << " is none of the peer's";
  }
};

}  // namespace tulle::rsockets
