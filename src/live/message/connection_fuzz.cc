// Decodes what an untrusted process can send to the host agent, and what an agent can send to a
// process. There must be no crash, and the bytes of a message that is accepted must be the only
// ones that mean it. The first byte chooses the message, and the rest is its body.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "live/message/connection.h"
#include "live/message/protocol.h"

namespace {

using namespace tulle::live;

template <typename Message>
void check(std::span<const std::uint8_t> body) {
  const MessageHeader header{message_magic, protocol_version,
                             static_cast<std::uint16_t>(Message::kind)};
  std::vector<std::byte> bytes(sizeof(header) + body.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), body.data(), body.size());
  Message message;
  if (decode(bytes, message)) TULLE_CHECK(encode(message) == bytes);
}

template <typename... Messages>
void check_one_of(std::uint8_t which, std::span<const std::uint8_t> body) {
  std::uint8_t position = 0;
  ((which % sizeof...(Messages) == position++ ? check<Messages>(body) : void()), ...);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  check_one_of<
      // to the agent
      CommandMessage, Hello, Rejoin, GidsHeld, Expose,
      // to a process
      EventMessage, ReplyMessage, ChannelOpened, Refused, Devices, Opened, AgentStatus,
      ProcessStatus, StartCapture, CaptureSource, DeviceChanged, Attribute, PeerProcess>(
      data[0], {data + 1, size - 1});
  return 0;
}
