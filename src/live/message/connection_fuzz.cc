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
  if (!decode(bytes, message)) return;
  TULLE_CHECK(encode(message) == bytes);
  if constexpr (std::is_same_v<Message, EventMessage>) {
    TULLE_CHECK(endpoint_of(message.event) == counted_with(message.event) ||
                type_of(message.event) == ConnectionEventType::connect_request);
  }
  // A message of another version or of another program is none.
  for (const std::size_t at : {0u, 4u, 6u}) {
    std::vector<std::byte> other = bytes;
    other[at] ^= std::byte{0x40};
    const bool has_any_version = Message::kind == MessageKind::refused && at == 4;
    TULLE_CHECK(decode(other, message) == has_any_version);
  }
}

// Addresses come from the sockets of programs.
void check_address(std::span<const std::uint8_t> body) {
  sockaddr_storage name{};
  std::memcpy(&name, body.data(), std::min(body.size(), sizeof(name)));
  const auto address = SocketAddress::from(reinterpret_cast<const sockaddr*>(&name), body.size());
  if (!address) return;
  TULLE_CHECK(address->family == AF_INET || address->family == AF_INET6);
  sockaddr_storage written{};
  const socklen_t bytes = address->copy_to(written);
  TULLE_CHECK(bytes > 0 && bytes <= body.size());
  TULLE_CHECK(SocketAddress::from(reinterpret_cast<const sockaddr*>(&written), bytes) == *address);
  TULLE_CHECK(address->gid().is_ipv4_mapped() || address->family == AF_INET6);
}

template <typename... Messages>
void check_one_of(std::uint8_t which, std::span<const std::uint8_t> body) {
  std::uint8_t position = 0;
  ((which % sizeof...(Messages) == position++ ? check<Messages>(body) : void()), ...);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  if (data[0] == 0xFF) {
    check_address({data + 1, size - 1});
    return 0;
  }
  check_one_of<
      // to the agent
      CommandMessage, Hello, Rejoin, GidsHeld, Expose, Membership,
      // to a process
      EventMessage, ReplyMessage, ChannelOpened, Refused, Devices, Opened, AgentStatus,
      ProcessStatus, StartCapture, CaptureSource, DeviceChanged, Attribute, PeerProcess,
      MembershipChanged>(data[0], {data + 1, size - 1});
  return 0;
}
