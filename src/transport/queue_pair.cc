#include "transport/queue_pair.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "transport/completions.h"
#include "transport/iwarp/connection.h"
#include "transport/srd/carrier.h"
#include "transport/srd/device.h"
#include "transport/tag_matching.h"
#include "transport/tcp/stream.h"
#include "transport/xrc/xrc.h"
#include "verbs/address_handle.h"

namespace tulle::transport {

using verbs::CompletionOpcode;
using verbs::CompletionStatus;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::QpType;
using verbs::SendOpcode;
using verbs::VerbsStatus;

namespace {

// IBTA table 45 of 9.7.5.2.8: hundredths of a millisecond by code.
constexpr std::array<std::uint32_t, 32> rnr_table = {
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

CompletionOpcode completion_opcode(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::write:
    case SendOpcode::write_with_immediate:
      return CompletionOpcode::write;
    case SendOpcode::read:
      return CompletionOpcode::read;
    case SendOpcode::compare_swap:
      return CompletionOpcode::compare_swap;
    case SendOpcode::fetch_add:
      return CompletionOpcode::fetch_add;
    case SendOpcode::atomic_write:
      return CompletionOpcode::atomic_write;
    case SendOpcode::bind_window:
      return CompletionOpcode::bind_window;
    case SendOpcode::local_invalidate:
      return CompletionOpcode::local_invalidate;
    default:
      return CompletionOpcode::send;
  }
}

// A rate is one of the link's, which carries more than the packet: IPv4, UDP and ICRC, and
// Ethernet's frame, preamble and gap; or LRH, ICRC, VCRC and the symbols that delimit it.
std::uint32_t paced_bytes(const OutgoingPacket& out, const congestion::Settings& settings) {
  constexpr std::uint32_t ethernet_bytes = 20 + 8 + 4 + 38;
  constexpr std::uint32_t infiniband_bytes = 8 + 4 + 2 + 2;
  return out.payload_bytes + static_cast<std::uint32_t>(wire::header_bytes(out.packet.opcode)) +
         (settings.infiniband.enabled ? infiniband_bytes : ethernet_bytes);
}

// IBTA table 76: operations by transport.
bool supports(QpType type, SendOpcode opcode) {
  switch (type) {
    case QpType::rc:
    case QpType::xrc_initiator:
      return true;
    case QpType::xrc_target:
    case QpType::receive_work_queue:
      return false;
    case QpType::raw_packet:
      return opcode == SendOpcode::send;
    case QpType::uc:
      return opcode == SendOpcode::send || opcode == SendOpcode::send_with_immediate ||
             opcode == SendOpcode::write || opcode == SendOpcode::write_with_immediate ||
             opcode == SendOpcode::bind_window || opcode == SendOpcode::local_invalidate;
    case QpType::ud:
      return opcode == SendOpcode::send || opcode == SendOpcode::send_with_immediate;
    case QpType::stream:
      return opcode == SendOpcode::send;
    case QpType::srd:
      return opcode == SendOpcode::send || opcode == SendOpcode::send_with_immediate ||
             opcode == SendOpcode::write || opcode == SendOpcode::write_with_immediate;
    case QpType::iwarp:  // RFC 5040 4.2; atomics and immediate data are RFC 7306's
      return opcode == SendOpcode::send || opcode == SendOpcode::send_with_invalidate ||
             opcode == SendOpcode::write || opcode == SendOpcode::read ||
             opcode == SendOpcode::bind_window || opcode == SendOpcode::local_invalidate;
  }
  return false;
}

// Of those that are reliable connections.
wire::TransportClass class_of(QpType type) {
  return type == QpType::rc ? wire::TransportClass::rc : wire::TransportClass::xrc;
}

bool has_tags(const QueuePairInit& init) {
  return init.srq != nullptr && init.srq->tags != nullptr;
}

// With room for what the device itself sends.
SendQueue send_queue_for(const QueuePairInit& init) {
  if (!has_tags(init)) [[likely]] {
    return {init.send_work_requests, init.send_sges, init.inline_bytes};
  }
  return TagMatching::send_queue_for(init);
}

bool is_response(wire::Kind kind) {
  return kind == wire::Kind::acknowledge || kind == wire::Kind::read_response ||
         kind == wire::Kind::atomic_acknowledge || kind == wire::Kind::selective_acknowledge;
}

}  // namespace

Time rnr_timer(std::uint8_t code) { return Time::microseconds(10) * rnr_table[code & 0x1F]; }

Time ack_timeout(std::uint8_t code) {
  return code == 0 ? Time::never() : Time::nanoseconds(4'096) * (std::int64_t{1} << (code & 0x1F));
}

Environment::Environment(std::uint64_t seed) : keys(seed) {}
Environment::~Environment() = default;

QueuePair::QueuePair(QpNumber number, const QueuePairInit& init, Environment& environment)
    : number(number),
      init(init),
      environment(environment),
      send_queue(send_queue_for(init)),
      receive_queue(init.srq != nullptr ? 0 : init.receive_work_requests, init.receive_sges) {
  if (has_tags(init)) tag_matching = std::make_unique<TagMatching>();
  if (init.type == QpType::uc) engine_.emplace<uc::Engine>();
  if (init.type == QpType::ud) engine_.emplace<ud::Engine>();
  if (init.type == QpType::stream) engine_.emplace<std::unique_ptr<tcp::Stream>>();
  if (init.type == QpType::srd) engine_.emplace<srd::Engine>();
  if (init.type == QpType::iwarp) engine_.emplace<std::unique_ptr<iwarp::Connection>>();
  if (verbs::is_raw(init.type)) engine_.emplace<raw::Engine>();
}

// --- control ---

VerbsStatus QueuePair::modify(Time now, const QueuePairAttributes& attributes,
                              QpAttributeMask mask) {
  const QpState from = attributes_.state;
  if (mask.has(QpAttribute::current_state) && attributes.current_state != from) {
    return VerbsStatus::invalid_argument;
  }
  const QpState to = mask.has(QpAttribute::state) ? attributes.state : from;
  if (verbs::check_step(init.type, from, to, mask) != verbs::LadderVerdict::ok) {
    return VerbsStatus::invalid_argument;
  }
  if (const VerbsStatus status = check_attributes(attributes, mask); status != VerbsStatus::ok) {
    return status;
  }
  apply(attributes, mask);
  if (mask.has(QpAttribute::state)) {
    enter(now, from, to);
  } else {
    tell_direct_path();
  }
  return VerbsStatus::ok;
}

VerbsStatus QueuePair::check_attributes(const QueuePairAttributes& attributes,
                                        QpAttributeMask mask) const {
  const bool in_range =
      (!mask.has(QpAttribute::port) || attributes.port == 1) &&
      (!mask.has(QpAttribute::pkey_index) || attributes.pkey_index < environment.pkeys.size()) &&
      (!mask.has(QpAttribute::timeout) || attributes.timeout < 32) &&
      (!mask.has(QpAttribute::retry_count) || attributes.retry_count < 8) &&
      (!mask.has(QpAttribute::rnr_retry) || attributes.rnr_retry < 8) &&
      (!mask.has(QpAttribute::min_rnr_timer) || attributes.min_rnr_timer < 32) &&
      (!mask.has(QpAttribute::destination_qp) || attributes.destination_qp.value <= Psn::mask);
  if (!in_range) return VerbsStatus::invalid_argument;
  // No path migration and no pacing by the caller: not offered, so not accepted.
  if (mask.has(QpAttribute::alternate_path) || mask.has(QpAttribute::rate_limit)) {
    return VerbsStatus::not_supported;
  }
  return VerbsStatus::ok;
}

void QueuePair::apply(const QueuePairAttributes& from, QpAttributeMask mask) {
  QueuePairAttributes& to = attributes_;
  if (mask.has(QpAttribute::access_flags)) to.access = from.access;
  if (mask.has(QpAttribute::pkey_index)) {
    to.pkey_index = from.pkey_index;
    pkey_ = environment.pkeys[from.pkey_index];
  }
  if (mask.has(QpAttribute::port)) to.port = from.port;
  if (mask.has(QpAttribute::qkey)) to.qkey = from.qkey;
  if (mask.has(QpAttribute::address_vector)) to.address = from.address;
  if (mask.has(QpAttribute::path_mtu)) to.path_mtu = from.path_mtu;
  if (mask.has(QpAttribute::timeout)) to.timeout = from.timeout;
  if (mask.has(QpAttribute::retry_count)) to.retry_count = from.retry_count;
  if (mask.has(QpAttribute::rnr_retry)) to.rnr_retry = from.rnr_retry;
  if (mask.has(QpAttribute::rq_psn)) to.rq_psn = from.rq_psn;
  if (mask.has(QpAttribute::max_rd_atomic)) to.max_rd_atomic = from.max_rd_atomic;
  if (mask.has(QpAttribute::min_rnr_timer)) to.min_rnr_timer = from.min_rnr_timer;
  if (mask.has(QpAttribute::sq_psn)) to.sq_psn = from.sq_psn;
  if (mask.has(QpAttribute::max_dest_rd_atomic)) to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  if (mask.has(QpAttribute::destination_qp)) to.destination_qp = from.destination_qp;
  if (mask.has(QpAttribute::sqd_async_notify)) to.sqd_async_notify = from.sqd_async_notify;
}

void QueuePair::enter(Time, QpState from, QpState to) {
  if (to == QpState::error) {
    enter_error();
    // The application ended it: answers that wait are not for the peer any more.
    if (auto* rc = std::get_if<rc::Engine>(&engine_); rc != nullptr && from != QpState::error) {
      rc->responder.reset();
    }
    if (iwarp::Connection* connected = iwarp(); connected != nullptr && from != QpState::error) {
      connected->abort();
    }
    return;
  }
  attributes_.state = to;
  if (to == QpState::reset) return reset();
  tell_direct_path();
  auto* rc = std::get_if<rc::Engine>(&engine_);
  auto* uc = std::get_if<uc::Engine>(&engine_);
  auto* ud = std::get_if<ud::Engine>(&engine_);
  if (from == QpState::init && to == QpState::rtr && init.type == QpType::iwarp) {
    engine_ = std::make_unique<iwarp::Connection>(*this);
  }
  if (from == QpState::rtr && to == QpState::rts && iwarp() != nullptr) {
    iwarp()->engine().start_sending(*this);
  }
  if (from == QpState::init && to == QpState::rtr && init.type == QpType::stream) {
    engine_ = std::make_unique<tcp::Stream>(*this);
    stream()->posted_receive(*this, receive_queue.length());
  }
  if (from == QpState::init && to == QpState::rtr) {
    if (rc != nullptr) rc->responder.start(*this);
    if (uc != nullptr) uc->start_receiving(*this);
  }
  if (from == QpState::rtr && to == QpState::rts) {
    if (rc != nullptr) rc->requester.start(*this);
    if (uc != nullptr) uc->start_sending(*this);
    if (ud != nullptr) ud->start_sending(*this);
    start_pacing();
  }
  auto* srd = std::get_if<srd::Engine>(&engine_);
  if (srd != nullptr && to == QpState::rts) srd->hand_over(*this);
  if (to == QpState::sqd && from == QpState::rts) {
    drained_told_ = false;
    if (!send_queue_draining()) sent_all();
  }
}

void QueuePair::start_pacing() {
  const congestion::Settings& settings = environment.congestion;
  if (!settings.infiniband.enabled) {
    return pacing_.start(settings.dcqcn,
                         settings.endpoint_limits
                             ? &environment.endpoint_limits[attributes_.address.destination]
                             : nullptr);
  }
  const std::size_t level = attributes_.address.service_level % 16u;
  pacing_.start(settings.infiniband,
                environment.injections ? &(*environment.injections)[level] : nullptr);
}

bool QueuePair::send_queue_draining() const {
  if (attributes_.state != QpState::sqd) return false;
  if (const auto* rc = std::get_if<rc::Engine>(&engine_)) return !rc->requester.drained(*this);
  if (const auto* uc = std::get_if<uc::Engine>(&engine_)) return !uc->drained();
  if (const auto* srd = std::get_if<srd::Engine>(&engine_)) return !srd->drained();
  if (const iwarp::Connection* connected = iwarp()) return !connected->engine().drained();
  const auto* stream = std::get_if<std::unique_ptr<tcp::Stream>>(&engine_);
  return stream != nullptr && *stream != nullptr && !(*stream)->drained();
}

tcp::Stream* QueuePair::stream() {
  auto* found = std::get_if<std::unique_ptr<tcp::Stream>>(&engine_);
  return found == nullptr ? nullptr : found->get();
}

iwarp::Connection* QueuePair::iwarp() {
  auto* found = std::get_if<std::unique_ptr<iwarp::Connection>>(&engine_);
  return found == nullptr ? nullptr : found->get();
}
const iwarp::Connection* QueuePair::iwarp() const {
  const auto* found = std::get_if<std::unique_ptr<iwarp::Connection>>(&engine_);
  return found == nullptr ? nullptr : found->get();
}

VerbsStatus QueuePair::post_send(const verbs::SendRequest& request) {
  switch (attributes_.state) {
    case QpState::reset:
    case QpState::init:
    case QpState::rtr:
      return VerbsStatus::invalid_state;
    default:
      break;
  }
  if (!supports(init.type, request.opcode)) {
    return init.type == QpType::iwarp ? VerbsStatus::not_supported : VerbsStatus::invalid_argument;
  }
  if (verbs::is_datagram(init.type)) {
    if (request.address_handle == nullptr || request.address_handle->pd != init.pd) {
      return VerbsStatus::invalid_argument;
    }
  }
  if (init.type == QpType::xrc_initiator) [[unlikely]] {
    const bool in_range = request.xrc_srq != 0 && request.xrc_srq <= Psn::mask;
    const bool is_local =
        request.opcode == SendOpcode::bind_window || request.opcode == SendOpcode::local_invalidate;
    if (!in_range && !is_local) return VerbsStatus::invalid_argument;
  }
  const bool reads = request.opcode == SendOpcode::read;
  if (request.flags.has(verbs::SendFlag::inline_data) && reads) {
    return VerbsStatus::invalid_argument;
  }
  if (tag_matching != nullptr && tag_matching->is_full_for_application(*this)) [[unlikely]] {
    return VerbsStatus::out_of_memory;
  }
  const VerbsStatus status = send_queue.post(request);
  // IBTA 10.3.1.7: what is posted to a queue pair in error completes as flushed.
  if (status == VerbsStatus::ok &&
      (attributes_.state == QpState::error || attributes_.state == QpState::sqe)) {
    flush_sends();
  } else if (status == VerbsStatus::ok && init.type == QpType::stream) [[unlikely]] {
    stream()->posted(*this);
  } else if (auto* srd = std::get_if<srd::Engine>(&engine_); srd != nullptr) {
    srd->hand_over(*this);
  }
  return status;
}

VerbsStatus QueuePair::post_receive(const verbs::ReceiveRequest& request) {
  if (init.srq != nullptr || verbs::is_xrc(init.type)) return VerbsStatus::invalid_argument;
  if (attributes_.state == QpState::reset) return VerbsStatus::invalid_state;
  const VerbsStatus status = receive_queue.post(request);
  if (status == VerbsStatus::ok && attributes_.state == QpState::error) flush_receives();
  if (status == VerbsStatus::ok && init.type == QpType::stream) [[unlikely]] {
    receive_posted(request);
  }
  return status;
}

// A stream counts the bytes that its reads wait for.
void QueuePair::receive_posted(const verbs::ReceiveRequest& request) {
  std::uint64_t bytes = 0;
  for (const verbs::Sge& sge : request.sges) bytes += sge.length;
  if (tcp::Stream* connected = stream()) connected->posted_receive(*this, bytes);
}

// Peers on this host may reach a connected queue pair, and no other.
void QueuePair::tell_direct_path() {
  if (environment.direct == nullptr || init.type != QpType::rc) return;
  const QpState state = attributes_.state;
  if (state == QpState::rtr || state == QpState::rts || state == QpState::sqd) {
    environment.direct->expose(*this);
  } else {
    environment.direct->withdraw(*this);
  }
}

QueuePair::~QueuePair() {
  attributes_.state = QpState::reset;
  tell_direct_path();
}

void QueuePair::reset() {
  if (auto* rc = std::get_if<rc::Engine>(&engine_)) *rc = {};
  if (auto* uc = std::get_if<uc::Engine>(&engine_)) uc->reset();
  if (auto* ud = std::get_if<ud::Engine>(&engine_)) ud->reset();
  if (init.type == QpType::stream) engine_.emplace<std::unique_ptr<tcp::Stream>>();
  if (auto* srd = std::get_if<srd::Engine>(&engine_)) srd->reset(*this);
  if (init.type == QpType::iwarp) engine_.emplace<std::unique_ptr<iwarp::Connection>>();
  if (verbs::is_raw(init.type)) raw().reset();
  send_queue.clear();
  if (tag_matching != nullptr) tag_matching->reset();
  receive_queue.clear();
  if (init.type == QpType::xrc_target) {
    if (init.srq != nullptr) xrc::forget(*this, *init.srq);
  } else {
    // IBTA 10.3.1.1: what it had completed is gone too.
    init.send_cq->forget(number);
    init.receive_cq->forget(number);
  }
  attributes_ = {};
  tell_direct_path();
  drained_told_ = communication_told_ = failing_ = becn_due_ = false;
  pacing_ = {};
}

// --- packets and time ---

void QueuePair::handle_segment(Time now, const wire::Tcp& header, Payload payload,
                               const wire::IpUdp& ip) {
  const bool marked = (ip.traffic_class & wire::ecn_mask) == wire::ecn_congestion_experienced;
  if (iwarp::Connection* rdma = iwarp())
    return rdma->handle_segment(now, *this, header, payload, marked);
  tcp::Stream* connected = stream();
  const bool receives = attributes_.state == QpState::rtr || attributes_.state == QpState::rts ||
                        attributes_.state == QpState::sqd;
  if (connected == nullptr || !receives) {
    ++environment.counters.dropped_packets;
    return;
  }
  connected->handle_segment(now, *this, header, payload, marked);
}

void QueuePair::handle_packet(Time now, const wire::Packet& packet, Payload payload,
                              const wire::IpUdp& ip) {
  const wire::OpcodeInfo& info = wire::info(packet.opcode);
  const wire::TransportClass transport = wire::transport_of(packet.opcode);
  // Not an opcode of this transport: a reliable connection answers that (IBTA 9.7.4.1.3),
  // the others drop it.
  if (info.kind == wire::Kind::none && type() != QpType::rc) {
    ++environment.counters.dropped_packets;
    return;
  }
  if (auto* rc = std::get_if<rc::Engine>(&engine_); rc != nullptr) {
    // IBTA 9.6.1: the packet's transport must be the queue pair's,
    // and it must come from where it is connected.
    const bool is_mine =
        transport == class_of(type()) ||
        (info.kind == wire::Kind::selective_acknowledge && rc->requester.is_selective());
    if (!is_mine || ip.source != attributes_.address.destination) {
      ++environment.counters.dropped_packets;
      return;
    }
    if (verbs::is_xrc(type()) && is_response(info.kind) != (type() == QpType::xrc_initiator))
        [[unlikely]] {
      ++environment.counters.dropped_packets;
      return;
    }
    if (is_response(info.kind)) {
      rc->requester.handle_response(now, *this, packet, payload);
    } else {
      rc->responder.handle_request(*this, packet, payload);
    }
  } else if (auto* uc = std::get_if<uc::Engine>(&engine_); uc != nullptr) {
    if (transport != wire::TransportClass::uc || ip.source != attributes_.address.destination) {
      ++environment.counters.dropped_packets;
      return;
    }
    uc->handle_request(*this, packet, payload);
  } else if (type() == QpType::srd) {
    if (transport != wire::TransportClass::srd || is_carrier()) {
      ++environment.counters.dropped_packets;
      return;
    }
    environment.srd->handle_packet(now, this, packet, payload, ip);
  } else {
    if (transport != wire::TransportClass::ud || type() != QpType::ud) {
      ++environment.counters.dropped_packets;
      return;
    }
    std::get<ud::Engine>(engine_).handle_request(*this, packet, payload, ip);
  }
}

bool QueuePair::pull_packet(Time now, OutgoingPacket& out) {
  out.headers = OutgoingPacket::Headers::bth;
  if (auto* rc = std::get_if<rc::Engine>(&engine_)) return pull_reliable(now, *rc, out);
  if (init.type == QpType::stream) {
    tcp::Stream* connected = stream();
    return connected != nullptr && connected->pull_packet(now, *this, out);
  }
  if (auto* srd = std::get_if<srd::Engine>(&engine_)) return pull_for_peers(now, srd->carrier, out);
  if (init.type == QpType::iwarp) {
    iwarp::Connection* connected = iwarp();
    return connected != nullptr && connected->pull_packet(now, *this, out);
  }
  return pull_unreliable(now, out);
}

// A queue pair with an application has handed over what it has.
bool QueuePair::pull_for_peers(Time now, srd::Carrier* carrier, OutgoingPacket& out) {
  if (carrier == nullptr || !carrier->pull(now, out)) return false;
  pkey_ = out.packet.pkey;
  return true;
}

void QueuePair::carry(srd::Carrier& carrier, std::uint8_t service_level) {
  srd().carrier = &carrier;
  attributes_.address.service_level = service_level;
}

bool QueuePair::pull_unreliable(Time now, OutgoingPacket& out) {
  if (!pacing_.may_send(now, [this] { return !send_queue.empty(); })) return false;
  auto* uc = std::get_if<uc::Engine>(&engine_);
  const bool pulled = uc != nullptr ? uc->pull_packet(*this, out)
                                    : std::get<ud::Engine>(engine_).pull_packet(*this, out);
  if (pulled && pacing_.is_limited()) pacing_.sent(now, paced_bytes(out, environment.congestion));
  return pulled;
}

bool QueuePair::pull_request(Time now, rc::Engine& rc, OutgoingPacket& out) {
  if (!pacing_.may_send(now, [&] { return rc.requester.has_more(*this); })) return false;
  if (!rc.requester.pull_packet(now, *this, out)) return false;
  if (pacing_.is_limited()) pacing_.sent(now, paced_bytes(out, environment.congestion));
  return true;
}

bool QueuePair::has_answers() const {
  const auto* rc = std::get_if<rc::Engine>(&engine_);
  if (rc != nullptr) return rc->responder.has_answers();
  if (const auto* srd = std::get_if<srd::Engine>(&engine_)) {
    return srd->carrier != nullptr && srd->carrier->has_answers();
  }
  const iwarp::Connection* connected = iwarp();
  return connected != nullptr && connected->has_answers();
}

bool QueuePair::has_work() const {
  const auto* rc = std::get_if<rc::Engine>(&engine_);
  if (rc == nullptr) {
    if (init.type == QpType::srd) {
      const srd::Carrier* carrier = std::get<srd::Engine>(engine_).carrier;
      return carrier != nullptr ? carrier->has_work() : environment.srd->wants_attention();
    }
    if (init.type == QpType::iwarp) {
      const iwarp::Connection* connected = iwarp();
      return connected != nullptr && connected->has_work(*this);
    }
    if (init.type != QpType::stream) return !send_queue.empty();
    const auto& connected = std::get<std::unique_ptr<tcp::Stream>>(engine_);
    return connected != nullptr && connected->has_work(*this);
  }
  return rc->responder.has_answers() || rc->requester.has_more(*this);
}

bool QueuePair::congestion_experienced(Time now) {
  const Time interval = environment.congestion.notification_interval;
  if (interval.is_never() || verbs::is_datagram(type()) || now < may_notify_at_) return false;
  if (verbs::is_raw(type())) return false;
  may_notify_at_ = now + interval;
  return true;
}

// IBTA annex A10: a reliable connection's responder says it in the next packet that it sends
// anyway. Its requester, whose next packet may be late, an unreliable connection and a datagram's
// receiver send one for it.
bool QueuePair::congestion_marked(const wire::Packet& packet, const wire::IpUdp& ip) {
  if (auto* ud = std::get_if<ud::Engine>(&engine_)) {
    ud->remember_marked(packet, ip);
    return true;
  }
  const bool responds = type() == QpType::rc || type() == QpType::xrc_target;
  if (!responds || is_response(wire::info(packet.opcode).kind)) return true;
  becn_due_ = true;
  return false;
}

// To the queue pair that sent the marked packet, with BECN set: IBTA A17.9.3, or A10.3.2.
void QueuePair::emit_notification(OutgoingPacket& out) const {
  out.packet = {};
  out.clear_payload();
  out.packet.opcode = environment.congestion.infiniband.enabled
                          ? wire::infiniband_congestion_notification
                          : wire::congestion_notification;
  out.packet.becn = true;
  out.packet.destination_qp = attributes_.destination_qp;
  out.path = &attributes_.address;
  if (const auto* ud = std::get_if<ud::Engine>(&engine_)) ud->address_marked(out);
}

// READ responses and requests take turns. An acknowledgement goes behind what is to be sent anyway:
// being smaller, it can join the same segmented message there; but it does not wait for ever, since
// the peer's window waits for it.
bool QueuePair::pull_reliable(Time now, rc::Engine& rc, OutgoingPacket& out) {
  constexpr std::uint32_t requests_before_acknowledgement = 16;
  std::uint32_t requests_before_answer =
      rc.responder.has_jobs() ? 1 : requests_before_acknowledgement;
  // A sender is to see its request complete before it is told that the data has been read.
  if (tag_matching != nullptr && !rc.responder.has_jobs()) [[unlikely]]
    requests_before_answer = 0;
  if (requests_in_row_ < requests_before_answer && pull_request(now, rc, out)) {
    ++requests_in_row_;
    return true;
  }
  if (rc.responder.pull_packet(*this, out)) {
    requests_in_row_ = 0;
    if (becn_due_) [[unlikely]]
      out.packet.becn = std::exchange(becn_due_, false);
    if (type() != QpType::rc) [[unlikely]]
      xrc::mark_answer(out.packet);
    return true;
  }
  requests_in_row_ = 0;
  return pull_request(now, rc, out);
}

Time QueuePair::next_deadline() const {
  const auto* rc = std::get_if<rc::Engine>(&engine_);
  if (const auto* srd = std::get_if<srd::Engine>(&engine_)) [[unlikely]] {
    return srd->carrier != nullptr ? srd->carrier->next_deadline() : Time::never();
  }
  const Time paced = pacing_.next_deadline();
  if (const auto* connected = std::get_if<std::unique_ptr<tcp::Stream>>(&engine_)) [[unlikely]] {
    const bool lives = *connected != nullptr && attributes_.state != QpState::error;
    return lives ? (*connected)->next_deadline() : Time::never();
  }
  if (const iwarp::Connection* connected = iwarp()) [[unlikely]] {
    return connected->next_deadline(*this);
  }
  return rc != nullptr ? std::min(rc->requester.next_deadline(), paced) : paced;
}

void QueuePair::handle_deadline(Time now) {
  pacing_.handle_deadline(now);
  if (auto* rc = std::get_if<rc::Engine>(&engine_)) rc->requester.handle_deadline(now, *this);
  if (tcp::Stream* connected = stream()) connected->handle_deadline(now, *this);
  if (is_carrier()) srd().carrier->handle_deadline(now);
  if (iwarp::Connection* connected = iwarp()) connected->handle_deadline(now, *this);
}

// --- for the engines ---

void QueuePair::push(verbs::CompletionQueue& cq, const verbs::Completion& completion) {
  if (transport::push(environment, cq, completion)) return;
  // IBTA 10.2.6.2: the queue is in error, and so is every queue pair that completes to it.
  if (!failing_ && attributes_.state != QpState::error) {
    raise(verbs::EventType::qp_fatal);
    enter_error();
  }
}

void QueuePair::complete(const SendWqe& wqe, CompletionStatus status, std::uint32_t bytes) {
  if (wqe.flags.has(verbs::SendFlag::of_device)) [[unlikely]] {
    return tag_matching->sent(*this, wqe, status);
  }
  const bool wanted = init.signal_all || wqe.flags.has(verbs::SendFlag::signaled);
  if (status == CompletionStatus::success && !wanted) return;
  verbs::Completion completion;
  completion.wr_id = wqe.wr_id;
  completion.status = status;
  completion.opcode = completion_opcode(wqe.opcode);
  completion.byte_length = bytes;
  completion.qp = number;
  completion.qp_cookie = init.cookie;
  push(*init.send_cq, completion);
}

void QueuePair::complete_receive(verbs::Completion completion) {
  completion.qp = number;
  completion.qp_cookie = init.cookie;
  push(*init.receive_cq, completion);
}

void QueuePair::complete_tagged(verbs::Completion completion) {
  completion.qp = number;
  push(*init.receive_cq, completion);
}

void QueuePair::raise(verbs::EventType type) {
  environment.events.push({type, this, nullptr, nullptr});
}

void QueuePair::communication_established() {
  if (attributes_.state != QpState::rtr || communication_told_) return;
  communication_told_ = true;
  raise(verbs::EventType::communication_established);
}

CompletionStatus QueuePair::execute_local(const SendWqe& wqe) {
  verbs::KeyTable& keys = environment.keys;
  if (wqe.opcode == SendOpcode::bind_window) {
    const BindTarget& target = send_queue.bind_target(wqe);
    const bool bound =
        target.window != nullptr && keys.bind(*target.window, *init.pd, number, target.binding);
    return bound ? CompletionStatus::success : CompletionStatus::memory_window_bind_error;
  }
  return keys.invalidate(wqe.invalidate_rkey, *init.pd, number)
             ? CompletionStatus::success
             : CompletionStatus::local_qp_operation_error;
}

void QueuePair::sent_all() {
  if (drained_told_ || send_queue_draining()) return;
  drained_told_ = true;
  if (attributes_.sqd_async_notify) raise(verbs::EventType::send_queue_drained);
}

void QueuePair::enter_error() {
  if (failing_) return;
  failing_ = true;
  const bool first = attributes_.state != QpState::error;
  attributes_.state = QpState::error;
  tell_direct_path();
  if (auto* rc = std::get_if<rc::Engine>(&engine_)) rc->requester.reset();
  if (auto* uc = std::get_if<uc::Engine>(&engine_)) uc->reset_sending();
  if (auto* srd = std::get_if<srd::Engine>(&engine_)) srd->forget(*this);
  if (iwarp::Connection* connected = iwarp()) connected->engine().reset_sending();
  flush_sends();
  if (tag_matching != nullptr) tag_matching->flush(*this);
  flush_receives();
  const bool shares = init.srq != nullptr && init.type != QpType::xrc_target;
  if (first && shares) raise(verbs::EventType::last_wqe_reached);
  failing_ = false;
}

void QueuePair::forget_inbound() { std::get<rc::Engine>(engine_).responder.inbound().reset(); }

void QueuePair::enter_send_queue_error() {
  if (attributes_.state == QpState::error) return;
  attributes_.state = QpState::sqe;
  flush_sends();
}

void QueuePair::flush_sends() {
  while (!send_queue.empty()) {
    const SendWqe wqe = send_queue.front();
    send_queue.pop();
    if (init.type == QpType::srd && wqe.executed) continue;  // it completed before its turn
    complete(wqe, CompletionStatus::flushed);
  }
}

void QueuePair::flush_receives() {
  InboundMessage* inbound = nullptr;
  if (auto* rc = std::get_if<rc::Engine>(&engine_)) inbound = &rc->responder.inbound();
  if (auto* uc = std::get_if<uc::Engine>(&engine_)) inbound = &uc->inbound();
  verbs::Completion completion;
  completion.status = CompletionStatus::flushed;
  completion.opcode = CompletionOpcode::receive;
  if (inbound != nullptr && inbound->holds_receive()) {
    completion.wr_id = inbound->receive().wr_id;
    inbound->forget_receive();
    complete_receive(completion);
  }
  if (tcp::Stream* connected = stream(); connected != nullptr && connected->holds_receive()) {
    completion.wr_id = connected->receive().wr_id;
    connected->forget_receive();
    complete_receive(completion);
  }
  if (auto* srd = std::get_if<srd::Engine>(&engine_)) {
    for (verbs::Receive receive; srd->take_kept(receive);) {
      completion.wr_id = receive.wr_id;
      complete_receive(completion);
    }
  }
  if (iwarp::Connection* connected = iwarp();
      connected != nullptr && connected->engine().holds_receive()) {
    completion.wr_id = connected->engine().held_receive().wr_id;
    connected->engine().forget_receive();
    complete_receive(completion);
  }
  if (init.srq != nullptr) return;
  for (verbs::Receive receive; receive_queue.take(receive);) {
    completion.wr_id = receive.wr_id;
    complete_receive(completion);
  }
}

bool QueuePair::take_receive(verbs::Receive& out) {
  if (init.srq == nullptr) return receive_queue.take(out);
  verbs::SharedReceiveQueue& srq = *init.srq;
  if (!srq.queue.take(out)) return false;
  // IBTA 10.2.9.1: one event when the number left falls below the limit, which is then disarmed.
  if (srq.limit != 0 && srq.queue.size() < srq.limit) {
    srq.limit = 0;
    environment.events.push({verbs::EventType::srq_limit_reached, nullptr, nullptr, &srq});
  }
  return true;
}

std::uint64_t QueuePair::next_receive_length() const {
  return init.srq != nullptr ? init.srq->queue.front_length() : receive_queue.front_length();
}

bool QueuePair::gather(const SendWqe& wqe, std::uint32_t offset, std::uint32_t bytes,
                       OutgoingPacket& out) const {
  out.clear_payload();
  out.payload_bytes = bytes;
  if (wqe.flags.has(verbs::SendFlag::inline_data)) {
    if (bytes > 0) out.pieces[out.piece_count++] = {send_queue.inline_data(wqe) + offset, bytes};
    return true;
  }
  const verbs::Sge* sges = send_queue.sges(wqe);
  std::uint64_t skip = offset;
  for (std::uint32_t i = 0; i < wqe.sge_count && bytes > 0; ++i) {
    const verbs::Sge& sge = sges[i];
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    const auto part = static_cast<std::uint32_t>(std::min<std::uint64_t>(sge.length - skip, bytes));
    const auto access = environment.keys.local(sge.lkey, *init.pd, sge.address + skip, part, false);
    if (access.verdict != verbs::KeyTable::Verdict::ok) return false;
    if (access.memory != nullptr) out.pieces[out.piece_count++] = {access.memory, part};
    bytes -= part;
    skip = 0;
  }
  return bytes == 0;
}

bool QueuePair::scatter(const verbs::Sge* sges, std::uint32_t sge_count, std::uint64_t offset,
                        Payload payload) {
  std::uint32_t left = payload.bytes;
  const std::byte* from = payload.data;
  for (std::uint32_t i = 0; i < sge_count && left > 0; ++i) {
    const verbs::Sge& sge = sges[i];
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const auto part =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(sge.length - offset, left));
    const auto access =
        environment.keys.local(sge.lkey, *init.pd, sge.address + offset, part, true);
    if (access.verdict != verbs::KeyTable::Verdict::ok) return false;
    if (access.memory != nullptr && from != nullptr) std::memcpy(access.memory, from, part);
    if (from != nullptr) from += part;
    left -= part;
    offset = 0;
  }
  return left == 0;
}

}  // namespace tulle::transport
