#include "study/workload/endpoints.h"

#include <algorithm>

#include "base/check.h"

namespace tulle::workload {

using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::VerbsStatus;

namespace {

// One ghost region represents all the memory of a host. It has a length and no bytes.
constexpr std::uint64_t memory_bytes = 1ull << 40;

}  // namespace

Endpoints::Endpoints(const Flows& flows, std::uint32_t hosts, const PlayerSettings& settings,
                     const transport::Transport& transport, const Stage& stage)
    : settings_(settings), transport_(transport), stage_(stage), hosts_(hosts), flows_at_(hosts) {
  for (const Flow& flow : flows) {
    ++flows_at_[flow.source];
    ++flows_at_[flow.destination];
  }
}

Endpoints::Host& Endpoints::host(std::uint32_t number) {
  Host& host = hosts_[number];
  if (host.pd != nullptr) return host;
  device::Adapter& adapter = stage_.adapter(number);
  VerbsStatus status{};
  host.pd = adapter.objects().create_pd(status);
  // Each flow completes once at each end and is polled at once. Even on a host with many flows,
  // only some of them complete at the same time.
  constexpr std::uint32_t entries_max = 1'024;
  host.cq =
      adapter.objects().create_cq(std::min(flows_at_[number] + 2, entries_max), nullptr, status);
  host.memory =
      adapter.objects().register_memory(*host.pd, nullptr, memory_bytes, 0, remote_write(), status);
  TULLE_CHECK(host.pd != nullptr && host.cq != nullptr && host.memory != nullptr);
  host.key = host.memory->rkey();
  return host;
}

void Endpoints::open_all() {
  for (std::uint32_t number = 0; number < hosts_.size(); ++number) {
    if (flows_at_[number] == 0 || !stage_.has_host(number)) continue;
    host(number);
    if (transport_.is_datagram) srd_of(number);
  }
}

std::vector<Introduction> Endpoints::introductions() const {
  std::vector<Introduction> all;
  for (std::uint32_t number = 0; number < hosts_.size(); ++number) {
    const Host& at = hosts_[number];
    if (at.pd != nullptr) all.push_back({number, at.key, at.srd_number});
  }
  return all;
}

void Endpoints::meet(const Introduction& other) {
  Host& at = hosts_[other.host];
  TULLE_CHECK(at.pd == nullptr);
  at.key = other.key;
  at.srd_number = other.by_srd;
}

transport::QueuePair* Endpoints::create(std::uint32_t number, std::uint32_t hint,
                                        std::uint32_t sends, std::uint32_t receives) {
  Host& at = host(number);
  transport::QueuePairInit init;
  init.type = settings_.transport;
  init.pd = at.pd;
  init.send_cq = init.receive_cq = at.cq;
  init.send_work_requests = sends;
  init.receive_work_requests = receives;
  init.send_sges = init.receive_sges = 1;
  init.number_hint = hint;
  VerbsStatus status{};
  transport::QueuePair* qp = stage_.adapter(number).create_qp(init, status);
  TULLE_CHECK(qp != nullptr);
  return qp;
}

verbs::MemoryRegion* Endpoints::register_memory(std::uint32_t number, std::byte* data,
                                                std::uint64_t bytes) {
  VerbsStatus status{};
  verbs::MemoryRegion* region = stage_.adapter(number).objects().register_memory(
      *host(number).pd, data, bytes, 0, remote_write(), status);
  TULLE_CHECK(region != nullptr);
  return region;
}

void Endpoints::deregister(std::uint32_t number, verbs::MemoryRegion* region) {
  const VerbsStatus status = stage_.adapter(number).objects().destroy(region);
  TULLE_CHECK(status == VerbsStatus::ok);
}

// Climbs the ladder of states from RESET to RTS (IBTA 10.3.1).
void Endpoints::connect(std::uint32_t number, transport::QueuePair& qp, QpNumber peer,
                        std::uint32_t peer_host, verbs::AddressVector address) {
  device::Adapter& adapter = stage_.adapter(number);
  const std::uint8_t qos_level = address.service_level;
  const PathRecord path = stage_.path ? stage_.path(number, peer_host, qos_level, address.path_bits)
                                      : PathRecord{qos_level};
  address.service_level = path.service_level;
  address.destination = stage_.address(peer_host, address.path_bits);
  transport::QueuePairAttributes attributes;
  attributes.state = QpState::init;
  attributes.pkey_index = path.pkey_index;
  attributes.access = remote_write();
  VerbsStatus status =
      adapter.modify(qp, attributes,
                     QpAttributeMask(QpAttribute::state) | QpAttribute::pkey_index |
                         QpAttribute::port | QpAttribute::access_flags);
  TULLE_CHECK(status == VerbsStatus::ok);
  attributes.state = QpState::rtr;
  attributes.path_mtu = settings_.path_mtu;
  attributes.destination_qp = peer;
  attributes.address = address;
  status =
      adapter.modify(qp, attributes,
                     QpAttributeMask(QpAttribute::state) | QpAttribute::address_vector |
                         QpAttribute::path_mtu | QpAttribute::destination_qp | QpAttribute::rq_psn |
                         QpAttribute::max_dest_rd_atomic | QpAttribute::min_rnr_timer);
  TULLE_CHECK(status == VerbsStatus::ok);
  attributes.state = QpState::rts;
  attributes.timeout = settings_.timeout;
  attributes.retry_count = settings_.retry_count;
  attributes.rnr_retry = settings_.retry_count;
  status = adapter.modify(qp, attributes,
                          QpAttributeMask(QpAttribute::state) | QpAttribute::timeout |
                              QpAttribute::retry_count | QpAttribute::rnr_retry |
                              QpAttribute::sq_psn | QpAttribute::max_rd_atomic);
  TULLE_CHECK(status == VerbsStatus::ok);
}

transport::QueuePair& Endpoints::srd_of(std::uint32_t number) {
  Host& at = host(number);
  if (at.srd != nullptr) return *at.srd;
  device::Adapter& adapter = stage_.adapter(number);
  transport::QueuePairInit init;
  init.type = verbs::QpType::srd;
  init.pd = at.pd;
  init.send_cq = init.receive_cq = at.cq;
  const std::uint32_t depth =
      std::min(flows_at_[number], adapter.configuration().limits.work_requests);
  init.send_work_requests = init.receive_work_requests = depth;
  init.send_sges = init.receive_sges = 1;
  VerbsStatus status{};
  at.srd = adapter.create_qp(init, status);
  TULLE_CHECK(at.srd != nullptr);
  transport::QueuePairAttributes attributes;
  attributes.qkey = srd_qkey;
  attributes.rnr_retry = 7;  // retries indefinitely
  const auto step = [&](QpState state, QpAttributeMask more) {
    attributes.state = state;
    status = adapter.modify(*at.srd, attributes, QpAttributeMask(QpAttribute::state) | more);
    TULLE_CHECK(status == VerbsStatus::ok);
  };
  step(QpState::init,
       QpAttributeMask(QpAttribute::pkey_index) | QpAttribute::port | QpAttribute::qkey);
  step(QpState::rtr, {});
  step(QpState::rts, QpAttributeMask(QpAttribute::sq_psn) | QpAttribute::rnr_retry);
  at.srd_number = at.srd->number;
  return *at.srd;
}

QpNumber Endpoints::srd_number_of(std::uint32_t number) {
  return stage_.has_host(number) ? srd_of(number).number : hosts_[number].srd_number;
}

verbs::AddressHandle* Endpoints::handle_to(std::uint32_t from, std::uint32_t to,
                                           std::uint8_t qos_level) {
  verbs::AddressHandle*& handle = hosts_[from].handles[std::uint64_t{to} << 8 | qos_level];
  if (handle != nullptr) return handle;
  verbs::AddressVector address;
  address.destination = stage_.address(to, address.path_bits);
  address.traffic_class = settings_.traffic_class;
  address.service_level =
      stage_.path ? stage_.path(from, to, qos_level, 0).service_level : qos_level;
  VerbsStatus status{};
  handle = stage_.adapter(from).create_ah(*hosts_[from].pd, address, status);
  TULLE_CHECK(handle != nullptr);
  return handle;
}

}  // namespace tulle::workload
