// Sends any bytes to the leader of a group of ranks, cut into pieces anywhere. The leader finds the
// same frames in them as a plain reader, none of them longer than allowed.
//
// The first byte chooses how long a frame may be, and the second one how long the pieces are.
// libFuzzer: -max_len=70000

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ranks/frames.h"

namespace tulle::ranks {
namespace {

struct Parsed {
  std::vector<std::pair<std::uint32_t, std::string>> frames;
  bool is_refused = false;  // a frame's head says more than is allowed
};

Parsed parse(std::span<const char> bytes, std::uint32_t longest) {
  Parsed parsed;
  std::array<std::uint32_t, 2> head{};  // bytes, kind
  while (bytes.size() >= sizeof head && !parsed.is_refused) {
    std::memcpy(head.data(), bytes.data(), sizeof head);
    parsed.is_refused = head[0] > longest;
    if (parsed.is_refused || bytes.size() - sizeof head < head[0]) break;
    const auto text = bytes.subspan(sizeof head, head[0]);
    parsed.frames.emplace_back(head[1], std::string(text.begin(), text.end()));
    bytes = bytes.subspan(sizeof head + head[0]);
  }
  return parsed;
}

void check(std::span<const char> bytes, std::uint32_t longest, std::size_t piece) {
  std::array<int, 2> ends{-1, -1};
  TULLE_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  UniqueFd stranger(ends[0]);
  FrameSocket leader(UniqueFd(ends[1]), longest);
  const Parsed expected = parse(bytes, longest);
  std::size_t count = 0;
  bool is_refused = false;
  while (!bytes.empty() && !is_refused) {
    const auto some = bytes.first(std::min(piece, bytes.size()));
    TULLE_CHECK(::send(stranger.get(), some.data(), some.size(), 0) ==
                static_cast<ssize_t>(some.size()));
    bytes = bytes.subspan(some.size());
    // More may have come than one call reads, since a sender of many frames waits.
    for (bool goes_on = true; goes_on && !is_refused;) {
      auto is_open = leader.read();
      is_refused = !is_open;
      TULLE_CHECK(is_refused || *is_open);
      goes_on = false;
      while (auto frame = leader.take()) {
        goes_on = true;
        TULLE_CHECK(count < expected.frames.size());
        const auto& [kind, text] = expected.frames[count++];
        TULLE_CHECK(static_cast<std::uint32_t>(frame->kind) == kind && frame->text() == text);
        TULLE_CHECK(frame->bytes.size() <= longest);
      }
    }
  }
  TULLE_CHECK(count == expected.frames.size());
  TULLE_CHECK(!is_refused || expected.is_refused);
}

}  // namespace
}  // namespace tulle::ranks

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto* text = reinterpret_cast<const char*>(data);
  const std::uint32_t longest = std::uint32_t{data[0]} * 8;
  tulle::ranks::check({text + 2, size - 2}, longest, std::size_t{data[1]} * 32 + 1);
  return 0;
}
