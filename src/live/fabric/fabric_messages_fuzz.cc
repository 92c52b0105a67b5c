// Decodes what an untrusted process can send to the process of a fabric, and what that can send to
// a program. There must be no crash, and the bytes of a message that is accepted must be the only
// ones that mean it. The first byte chooses the message, and the rest is its body.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <vector>

#include "base/check.h"
#include "live/fabric/messages.h"

namespace {

using namespace tulle::live;

template <typename Message>
void check_fabric(std::span<const std::uint8_t> body) {
  const MessageHeader header{message_magic, protocol_version,
                             static_cast<std::uint16_t>(Message::kind)};
  std::vector<std::byte> bytes(sizeof(header) + body.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (!body.empty()) std::memcpy(bytes.data() + sizeof(header), body.data(), body.size());
  Message message;
  if (!decoded(bytes, message)) return;
  TULLE_CHECK(encoded(message) == bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr void (*checks[])(std::span<const std::uint8_t>) = {
      check_fabric<FabricHello>,    check_fabric<HostPort>,        check_fabric<PortOpened>,
      check_fabric<RegisterAgent>,  check_fabric<UnregisterAgent>, check_fabric<AgentRegistered>,
      check_fabric<Datagram>,       check_fabric<FabricNodes>,     check_fabric<FabricEnd>,
      check_fabric<DataPortOpened>, check_fabric<PortChanged>,     check_fabric<PortCounters>,
      check_fabric<HostEntered>};
  if (size == 0) return 0;
  checks[data[0] % std::size(checks)](std::span(data, size).subspan(1));
  return 0;
}
