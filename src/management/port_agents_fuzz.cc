// Any management datagram gets its own answer, or none. An answer is a response with the
// transaction ID of its question, nothing answers a response, and an answer that needs no counters
// has none.

#include <array>
#include <cstring>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "management/port_agents.h"
#include "rdma/wire/pma.h"
#include "rdma/wire/smp.h"

namespace tulle::management {
namespace {

using Mad = std::array<std::byte, wire::mad_bytes>;

Mad any_mad(base::Script& script) {
  constexpr std::array<std::uint8_t, 4> classes = {wire::performance_class, wire::subnet_class,
                                                   wire::subnet_directed_class, 0x07};
  constexpr std::array<std::uint8_t, 4> methods = {method_get, method_set, method_get_response, 5};
  Mad mad{};
  wire::MadHeader header;
  header.management_class = classes[script.below(4)];
  header.class_version = 1;
  header.method = methods[script.below(4)];
  header.transaction_id = script.word();
  header.attribute_id =
      script.one_in(8) ? script.half() : static_cast<std::uint16_t>(script.below(32));
  header.attribute_modifier = script.one_in(4) ? script.word() : script.below(4);
  std::memcpy(mad.data(), &header, sizeof(header));
  // A request for a port's counters names the port behind the class's header (IBTA 16.1.3.5).
  mad[65] = static_cast<std::byte>(script.below(3) == 2 ? 0xFF : script.below(2));
  for (unsigned i = script.below(16); i > 0; --i) {
    const std::size_t at = script.byte();
    mad[at] = static_cast<std::byte>(script.byte());
  }
  return mad;
}

void check(const Mad& request, const performance::Counters& counters) {
  subnet::Identity identity;
  identity.node_guid = identity.port_guid = 0x0123'4567'89AB'CDEF;
  identity.state = 4;
  identity.physical_state = 5;
  identity.mtu_code = 3;
  identity.description =
      "a node whose description is longer than the sixty-four bytes of a NodeDesc";
  static_cast<void>(way_of(request));
  Mad written;
  written.fill(std::byte{0xEE});
  const wire::MadHeader asked = header_of(Request(request));
  if (!answer(request, identity, counters, written)) {
    for (const std::byte each : written) TULLE_CHECK(each == std::byte{0xEE});
    return;
  }
  const wire::MadHeader header = header_of(Request(written));
  TULLE_CHECK(asks(asked));
  TULLE_CHECK(header.method == method_get_response);
  TULLE_CHECK(header.transaction_id == asked.transaction_id);
  TULLE_CHECK(header.management_class == asked.management_class);
  // The answer may be written over its question.
  Mad same = request;
  TULLE_CHECK(answer(same, identity, counters, same) && same == written);
  if (!needs_counters(request)) {
    Mad without;
    TULLE_CHECK(answer(request, identity, {}, without) && without == written);
  }
}

}  // namespace
}  // namespace tulle::management

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tulle::base::Script script(data, size);
  while (!script.is_over()) {
    const auto mad = tulle::management::any_mad(script);
    tulle::management::performance::Counters counters;
    counters.bytes_sent = script.number();
    counters.packets_received = counters.receive_errors = script.number();
    tulle::management::check(mad, counters);
  }
  return 0;
}
