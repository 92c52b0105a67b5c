#include "management/performance/agent.h"

#include <algorithm>
#include <limits>

#include "rdma/wire/pma.h"

namespace tulle::management::performance {
namespace {

constexpr std::uint8_t port = 1;
// The time is 4.096 us * 2^14 = 67 ms, since counters may have to be collected from several
// processes.
constexpr std::uint32_t response_time_code = 14;

// IBTA 16.1.3.5: a counter stays at its maximum.
template <typename Field>
Field saturated(std::uint64_t value) {
  return static_cast<Field>(std::min<std::uint64_t>(value, std::numeric_limits<Field>::max()));
}

// IBTA 16.1.3.5: data is counted in units of four bytes.
constexpr std::uint64_t words(std::uint64_t bytes) { return bytes / 4; }

wire::ClassPortInfo class_port_info() {
  wire::ClassPortInfo info;
  info.class_version = wire::performance_class_version;
  info.capability_mask = static_cast<std::uint16_t>(wire::performance_all_port_select |
                                                    wire::performance_extended_width_no_ietf);
  info.capability_mask2_response_time = response_time_code;
  return info;
}

wire::PortCounters port_counters(std::uint8_t select, const Counters& counters) {
  wire::PortCounters out;
  out.port_select = select;
  out.link_downed = saturated<std::uint8_t>(counters.link_downed);
  out.receive_errors = saturated<std::uint16_t>(counters.receive_errors);
  out.transmit_discards = saturated<std::uint16_t>(counters.transmit_discards);
  out.transmit_words = saturated<std::uint32_t>(words(counters.bytes_sent));
  out.receive_words = saturated<std::uint32_t>(words(counters.bytes_received));
  out.transmit_packets = saturated<std::uint32_t>(counters.packets_sent);
  out.receive_packets = saturated<std::uint32_t>(counters.packets_received);
  return out;
}

wire::PortCountersExtended port_counters_extended(std::uint8_t select, const Counters& counters) {
  wire::PortCountersExtended out;
  out.port_select = select;
  out.transmit_words = words(counters.bytes_sent);
  out.receive_words = words(counters.bytes_received);
  out.transmit_packets = counters.packets_sent;
  out.receive_packets = counters.packets_received;
  return out;
}

bool is_known(std::uint16_t attribute) {
  return attribute == wire::attribute_class_port_info ||
         attribute == wire::attribute_port_counters ||
         attribute == wire::attribute_port_counters_extended;
}

// Both counter attributes begin with a reserved byte and the port.
std::uint8_t port_select_of(Request request) {
  return std::to_integer<std::uint8_t>(request[wire::performance_data_offset + 1]);
}

// Returns the first error of the request (IBTA 13.4.7).
Status check(Request request, unsigned last_port, bool may_set) {
  const wire::MadHeader header = header_of(request);
  if (header.base_version != wire::MadHeader::current_base_version ||
      header.class_version != wire::performance_class_version) {
    return Status::bad_version;
  }
  const bool is_description = header.attribute_id == wire::attribute_class_port_info;
  const bool sets = header.method == method_set;
  if (!is_known(header.attribute_id) || (sets && (is_description || !may_set))) {
    return Status::attribute_not_supported;
  }
  if (is_description) return Status::ok;
  const std::uint8_t select = port_select_of(request);
  return select <= last_port || select == wire::all_ports ? Status::ok : Status::invalid_value;
}

Counters sum_of(std::span<const Counters> all) {
  Counters sum;
  for (const Counters& each : all) {
    sum.bytes_sent += each.bytes_sent;
    sum.bytes_received += each.bytes_received;
    sum.packets_sent += each.packets_sent;
    sum.packets_received += each.packets_received;
    sum.receive_errors += each.receive_errors;
    sum.transmit_discards += each.transmit_discards;
    sum.link_downed += each.link_downed;
  }
  return sum;
}

void write_answer(Request request, Status status, const Counters& counters, Answer answer) {
  const std::uint16_t attribute = header_of(request).attribute_id;
  const std::uint8_t select = port_select_of(request);
  begin_answer(request, status, 0, answer);
  if (status != Status::ok) return;
  constexpr std::size_t at = wire::performance_data_offset;
  switch (attribute) {
    case wire::attribute_class_port_info:
      put_attribute(class_port_info(), at, answer);
      break;
    case wire::attribute_port_counters:
      put_attribute(port_counters(select, counters), at, answer);
      break;
    default:
      put_attribute(port_counters_extended(select, counters), at, answer);
      break;
  }
}

// The one port is port 1, and its counters are those of all programs of the host, which belong to
// none of them: nothing can be set.
Status check_of_one_port(Request request) {
  const Status status = check(request, port, false);
  const bool names_port_0 = status == Status::ok && port_select_of(request) == 0 &&
                            header_of(request).attribute_id != wire::attribute_class_port_info;
  return names_port_0 ? Status::invalid_value : status;
}

}  // namespace

bool needs_counters(Request request) {
  return header_of(request).attribute_id != wire::attribute_class_port_info &&
         check_of_one_port(request) == Status::ok;
}

bool answer(Request request, const Counters& counters, Answer answer) {
  if (!asks(header_of(request))) return false;
  write_answer(request, check_of_one_port(request), counters, answer);
  return true;
}

bool answer_by_port(Request request, std::span<Counters> by_port, Answer answer) {
  const wire::MadHeader header = header_of(request);
  if (!asks(header)) return false;
  const Status status = check(request, static_cast<unsigned>(by_port.size() - 1), true);
  // Where an attribute names no port, the byte may be anything.
  const bool names_ports =
      status == Status::ok && header.attribute_id != wire::attribute_class_port_info;
  const std::uint8_t select = names_ports ? port_select_of(request) : wire::all_ports;
  const std::span<Counters> selected =
      select == wire::all_ports ? by_port : by_port.subspan(select, 1);
  const bool sets = status == Status::ok && header.method == method_set;
  if (sets) std::fill(selected.begin(), selected.end(), Counters{});
  write_answer(request, status, sum_of(selected), answer);
  return true;
}

}  // namespace tulle::management::performance
