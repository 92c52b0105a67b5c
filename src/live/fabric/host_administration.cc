#include "live/fabric/host_administration.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "management/administration/groups.h"
#include "management/administration/view.h"
#include "management/answer.h"
#include "os/system_random.h"

namespace tulle::live {
namespace {

using management::administration::MemberComponents;

// A question waits three seconds for its answer, as librdmacm's programs commonly do.
constexpr std::uint32_t question_milliseconds = 1'000;
constexpr std::uint32_t question_retries = 2;

}  // namespace

Gid port_gid(const fabric::Subnet& subnet, std::uint32_t host) {
  const auto& node = subnet.node(host);
  return {management::administration::gid_bytes(node.port_info(host_port).gid_prefix,
                                                node.port_guid(host_port))};
}

HostAdministration::HostAdministration(std::uint32_t host, std::uint32_t client, Now now,
                                       const fabric::Subnet& subnet, HostServices& services)
    : host_(host), client_(client), now_(std::move(now)), subnet_(subnet), services_(services) {
  const RegisterAgent registration{
      wire::subnet_administration_class, wire::administration_version, 0, {}, false};
  agent_ = services_.add_own(host_, client_, registration);
}

HostAdministration::~HostAdministration() { services_.leave(host_, client_); }

// An empty function awaits no answer.
template <typename Record>
bool HostAdministration::ask(std::uint8_t method, std::uint16_t attribute, std::uint64_t components,
                             const Record& record, Take take) {
  const InfinibandPort own = services_.port_of(host_);
  if (own.sm_lid == 0) return false;
  // Nobody shall answer what he cannot have seen.
  auto number = static_cast<std::uint32_t>(system_random());
  while (questions_.contains(number)) ++number;
  if (take) questions_[number] = std::move(take);
  wire::MadHeader header;
  header.management_class = wire::subnet_administration_class;
  header.class_version = wire::administration_version;
  header.method = method;
  header.transaction_id = number;
  header.attribute_id = attribute;
  wire::AdministrationHeader rest;
  rest.components = components;
  Datagram out;
  out.agent = agent_;
  out.timeout_milliseconds = question_milliseconds;
  out.retries = question_retries;
  out.qp = wire::general_services_qp.value;
  out.qkey = wire::general_services_qkey.value;
  out.lid = own.sm_lid;
  out.service_level = own.sm_sl;
  out.bytes.resize(wire::mad_bytes);
  std::memcpy(out.bytes.data(), &header, sizeof(header));
  std::memcpy(out.bytes.data() + wire::administration_header_offset, &rest, sizeof(rest));
  std::memcpy(out.bytes.data() + wire::administration_data_offset, &record, sizeof(record));
  services_.send(now_(), host_, client_, std::move(out));
  return true;
}

template <typename Record>
HostAdministration::Take HostAdministration::read_into(Answered<Record> answered) {
  return [answered = std::move(answered)](int error, std::span<const std::byte> mad) {
    Record record;
    if (error == 0) {
      std::memcpy(&record, mad.data() + wire::administration_data_offset, sizeof(record));
    }
    answered(error, record);
  };
}

bool HostAdministration::find_path(const wire::PathRecord& record, std::uint64_t components,
                                   Answered<wire::PathRecord> answered) {
  return ask(management::method_get, wire::attribute_path_record, components, record,
             read_into<wire::PathRecord>(std::move(answered)));
}

bool HostAdministration::join(const wire::MemberRecord& record, std::uint64_t components,
                              Answered<wire::MemberRecord> answered, bool is_again) {
  if (!is_again) ++members_[record.group_gid];
  return ask(management::method_set, wire::attribute_member_record, components, record,
             read_into<wire::MemberRecord>(std::move(answered)));
}

void HostAdministration::leave(const wire::GidBytes& group, std::uint8_t join_states) {
  const auto found = members_.find(group);
  if (found == members_.end() || --found->second > 0) return;
  members_.erase(found);
  wire::MemberRecord record;
  record.group_gid = group;
  record.port_gid = port_gid(subnet_, host_).bytes;
  constexpr std::uint64_t components =
      MemberComponents::group_gid | MemberComponents::port_gid | MemberComponents::join_state;
  // One at a time: administration refuses states together of which it does not have all, as after a
  // group has ended and begun again. The last one ends the group.
  for (const std::uint8_t state :
       {wire::MemberRecord::send_only_full_member, wire::MemberRecord::send_only_non_member,
        wire::MemberRecord::non_member, wire::MemberRecord::full_member}) {
    if ((join_states & state) == 0) continue;
    record.scope_and_join_state = state;
    static_cast<void>(
        ask(wire::method_delete, wire::attribute_member_record, components, record, {}));
  }
}

void HostAdministration::take(const HostServices::Delivery& delivery) {
  const auto header = management::header_of(delivery.packet.mad);
  const auto found = questions_.find(static_cast<std::uint32_t>(header.transaction_id));
  if (found == questions_.end()) return;
  const Take answered = std::move(found->second);
  questions_.erase(found);
  const std::span<const std::byte> mad = delivery.whole.empty()
                                             ? std::span<const std::byte>(delivery.packet.mad)
                                             : std::span<const std::byte>(delivery.whole);
  const int error = delivery.has_timed_out         ? ETIMEDOUT
                    : header.status != 0           ? EHOSTUNREACH
                    : mad.size() < wire::mad_bytes ? EPROTO
                                                   : 0;
  answered(error, mad);
}

}  // namespace tulle::live
