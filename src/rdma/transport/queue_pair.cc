#include "rdma/transport/queue_pair.h"

#include <array>
#include <utility>

#include "base/on_throw.h"
#include "rdma/transport/completions.h"
#include "rdma/transport/tag_matching.h"
#include "rdma/verbs/address_handle.h"

namespace tulle::transport {

using verbs::CompletionOpcode;
using verbs::CompletionStatus;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::SendOpcode;
using verbs::VerbsStatus;

namespace {

// IBTA 9.7.5.2.8, table 45: the timer in hundredths of a millisecond, by code.
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

// A Q_Key with this bit is controlled: a request that names one is sent with the Q_Key of its queue
// pair (IBTA 3.5.3, 10.2.5).
constexpr std::uint32_t controlled_qkey_bit = 0x8000'0000;

bool has_tags(const QueuePairInit& init) {
  return init.srq != nullptr && init.srq->tags != nullptr;
}

// With tag matching the send queue also has room for the device's own requests.
SendQueue send_queue_for(const QueuePairInit& init) {
  if (!has_tags(init)) [[likely]] {
    return {init.send_work_requests, init.send_sges, init.inline_bytes};
  }
  return TagMatching::send_queue_for(init);
}

}  // namespace

Time rnr_timer(std::uint8_t code) { return Time::microseconds(10) * rnr_table[code & 0x1F]; }

QueuePair::QueuePair(const Transport& transport, QpNumber number, const QueuePairInit& init,
                     Environment& environment)
    : number(number),
      transport(transport),
      init(init),
      environment(environment),
      send_queue(send_queue_for(init)),
      receive_queue(init.srq != nullptr ? 0 : init.receive_work_requests, init.receive_sges) {
  if (has_tags(init)) tag_matching = std::make_unique<TagMatching>();
}

QueuePair::~QueuePair() {
  attributes_.state = QpState::reset;
  tell_direct_path();
  if (environment.withheld != nullptr) environment.withheld->forget(number);
}

std::unique_ptr<QueuePair> make_queue_pair(const TransportTable& transports, QpNumber number,
                                           const QueuePairInit& init, Environment& environment) {
  const Transport* transport = transports.find(init.type);
  TULLE_CHECK(transport != nullptr);
  return transport->make(*transport, number, init, environment);
}

// --- control ---

VerbsStatus QueuePair::modify(const QueuePairAttributes& attributes, QpAttributeMask mask) {
  const QpState from = attributes_.state;
  if (mask.has(QpAttribute::current_state) && attributes.current_state != from) {
    return VerbsStatus::invalid_argument;
  }
  const QpState to = mask.has(QpAttribute::state) ? attributes.state : from;
  if (verbs::check_step(transport.ladder, from, to, mask) != verbs::LadderVerdict::ok) {
    return VerbsStatus::invalid_argument;
  }
  if (const VerbsStatus status = check_attributes(attributes, mask); status != VerbsStatus::ok) {
    return status;
  }
  const OnThrow undo([this, before = attributes_, pkey = pkey_] {
    attributes_ = before;
    pkey_ = pkey;
    tell_direct_path();
  });
  if (mask.has(QpAttribute::alternate_path)) {
    alternate_ = std::make_unique<AlternatePath>(*attributes.alternate);
    alternate_->pkey = environment.port(attributes_.port).pkeys[alternate_->pkey_index];
  }
  apply(attributes, mask);
  if (mask.has(QpAttribute::state)) {
    enter(from, to);
  } else {
    tell_direct_path();
  }
  return VerbsStatus::ok;
}

// Returns the port that the queue pair has once these attributes are set.
const LocalPort& QueuePair::port(const QueuePairAttributes& attributes,
                                 QpAttributeMask mask) const {
  return environment.port(mask.has(QpAttribute::port) ? attributes.port : attributes_.port);
}

VerbsStatus QueuePair::check_attributes(const QueuePairAttributes& attributes,
                                        QpAttributeMask mask) const {
  const bool in_range =
      (!mask.has(QpAttribute::port) || attributes.port == 1 || transport.has_any_port()) &&
      (!mask.has(QpAttribute::pkey_index) ||
       attributes.pkey_index < port(attributes, mask).pkeys.size()) &&
      (!mask.has(QpAttribute::timeout) || attributes.timeout < 32) &&
      (!mask.has(QpAttribute::retry_count) || attributes.retry_count < 8) &&
      (!mask.has(QpAttribute::rnr_retry) || attributes.rnr_retry < 8) &&
      (!mask.has(QpAttribute::min_rnr_timer) || attributes.min_rnr_timer < 32) &&
      (!mask.has(QpAttribute::destination_qp) || attributes.destination_qp.value <= qp_number_max);
  if (!in_range) return VerbsStatus::invalid_argument;
  if (mask.has(QpAttribute::alternate_path)) {
    const AlternatePath& other = *attributes.alternate;
    const bool is_possible = other.address.port == attributes_.port && other.timeout < 32 &&
                             other.pkey_index < environment.port(attributes_.port).pkeys.size();
    if (!is_possible) return VerbsStatus::invalid_argument;
  }
  // A queue pair with an alternate path arms itself when it finds that its peer is ready.
  if (mask.has(QpAttribute::path_migration_state) &&
      (alternate_ != nullptr || mask.has(QpAttribute::alternate_path)) &&
      attributes.migration == verbs::MigrationState::armed &&
      attributes_.migration != verbs::MigrationState::armed) {
    return VerbsStatus::invalid_argument;
  }
  // Pacing by the application is not offered.
  if (mask.has(QpAttribute::rate_limit)) return VerbsStatus::not_supported;
  return VerbsStatus::ok;
}

void QueuePair::apply(const QueuePairAttributes& from, QpAttributeMask mask) {
  QueuePairAttributes& to = attributes_;
  if (mask.has(QpAttribute::access_flags)) to.access = from.access;
  if (mask.has(QpAttribute::pkey_index)) {
    to.pkey_index = from.pkey_index;
    pkey_ = port(from, mask).pkeys[from.pkey_index];
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
  if (mask.has(QpAttribute::path_migration_state)) set_migration(from.migration);
}

// --- automatic path migration (IBTA 17.2.8) ---

// A program arms a queue pair again, or takes the alternate path by itself. Without an alternate
// path there is nothing to do.
void QueuePair::set_migration(verbs::MigrationState wanted) {
  using enum verbs::MigrationState;
  if (alternate_ == nullptr || wanted == armed) return;
  if (wanted == migrated && migrate()) return;
  attributes_.migration = wanted;
}

bool QueuePair::migrate() {
  if (attributes_.migration != verbs::MigrationState::armed) return false;
  const auto taken = std::exchange(alternate_, nullptr);
  attributes_.migration = verbs::MigrationState::migrated;
  attributes_.address = taken->address;
  attributes_.timeout = taken->timeout;
  attributes_.pkey_index = taken->pkey_index;
  pkey_ = taken->pkey;
  tell_direct_path();
  raise(verbs::EventType::path_migrated);
  return true;
}

// A packet without the bit says that the peer has loaded an alternate path, too. One with the bit,
// by the alternate path, says that the peer has taken it.
void QueuePair::follow_peer(const wire::Packet& packet, const wire::Path& path) {
  using enum verbs::MigrationState;
  const PortAddress from = wire::source_of(path);
  if (attributes_.migration == rearm && !packet.migration_state &&
      from == attributes_.address.destination) {
    attributes_.migration = armed;
  } else if (attributes_.migration == armed && packet.migration_state &&
             from == alternate_->address.destination) {
    static_cast<void>(migrate());
  }
}

void QueuePair::enter(QpState from, QpState to) {
  if (to == QpState::error) {
    enter_error();
    if (from != QpState::error) engine_->abort(*this);
    return;
  }
  attributes_.state = to;
  if (to == QpState::reset) return reset();
  tell_direct_path();
  if (from == QpState::init && to == QpState::rtr) engine_->start_receiving(*this);
  if (from == QpState::rtr && to == QpState::rts) {
    start_congestion_control();
    engine_->start_sending(*this);
  }
  if (to == QpState::rts) engine_->resume_sending(*this);
  if (to == QpState::sqd && from == QpState::rts) {
    drained_told_ = false;
    if (!send_queue_draining()) sent_all();
  }
}

void QueuePair::start_congestion_control() {
  const congestion::Shared shared{&environment.endpoint_limits, environment.injections != nullptr
                                                                    ? environment.injections->data()
                                                                    : nullptr};
  // A host's 2^LMC LIDs share one limit.
  PortAddress host = attributes_.address.destination;
  host.lid = base_of(host.lid, environment.port(attributes_.port).lmc);
  congestion.start(environment.congestion, make_rate_control(environment.congestion, shared, host,
                                                             attributes_.address.service_level));
}

bool QueuePair::send_queue_draining() const {
  return attributes_.state == QpState::sqd && !engine_->drained(*this);
}

VerbsStatus QueuePair::check(const verbs::SendRequest& request) const {
  if (!transport.sends.has(request.opcode)) return transport.refusal;
  if (transport.is_datagram) {
    const verbs::AddressHandle* handle = request.address_handle;
    if (handle == nullptr || handle->to.port != attributes_.port) {
      return VerbsStatus::invalid_argument;
    }
    if (handle->pd != init.pd && !transport.finds_foreign_handles_late) {
      return VerbsStatus::invalid_argument;
    }
  }
  const bool reads = request.opcode == SendOpcode::read;
  if (request.flags.has(verbs::SendFlag::inline_data) && reads) {
    return VerbsStatus::invalid_argument;
  }
  if (const VerbsStatus shape = send_queue.check(request); shape != VerbsStatus::ok) return shape;
  return engine_->check(*this, request);
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
  if (const VerbsStatus status = check(request); status != VerbsStatus::ok) return status;
  if (tag_matching != nullptr && tag_matching->is_full_for_application(*this)) [[unlikely]] {
    return VerbsStatus::out_of_memory;
  }
  const VerbsStatus status = send_queue.post(request);
  if (status != VerbsStatus::ok) return status;
  // IBTA 10.3.1.7: a request that is posted to a queue pair in error completes as flushed.
  if (attributes_.state == QpState::error || attributes_.state == QpState::sqe) {
    flush_sends();
  } else {
    engine_->send_posted(*this);
  }
  return VerbsStatus::ok;
}

VerbsStatus QueuePair::post_receive(const verbs::ReceiveRequest& request) {
  if (init.srq != nullptr || !transport.has_receive_queue()) return VerbsStatus::invalid_argument;
  if (attributes_.state == QpState::reset) return VerbsStatus::invalid_state;
  const VerbsStatus status = receive_queue.post(request);
  if (status != VerbsStatus::ok) return status;
  if (attributes_.state == QpState::error) flush_receives();
  engine_->receive_posted(*this, request);
  return VerbsStatus::ok;
}

// Exposes the queue pair to peers on this host while it receives, and withdraws it otherwise.
void QueuePair::tell_direct_path() {
  if (environment.direct == nullptr || !transport.has_direct_path) return;
  if (receives()) {
    environment.direct->expose(*this);
  } else {
    environment.direct->withdraw(*this);
  }
}

void QueuePair::reset() {
  engine_->reset(*this);
  send_queue.clear();
  if (tag_matching != nullptr) tag_matching->reset();
  receive_queue.clear();
  if (environment.withheld != nullptr) environment.withheld->forget(number);
  // IBTA 10.3.1.1: completions of this queue pair that were not polled are discarded too.
  if (init.send_cq != nullptr) init.send_cq->forget(number);
  if (init.receive_cq != nullptr) init.receive_cq->forget(number);
  attributes_ = {};
  alternate_.reset();
  tell_direct_path();
  drained_told_ = communication_told_ = failing_ = false;
  congestion = {};
}

// --- packets and time ---

Qkey QueuePair::qkey_of(const SendWqe& wqe) const {
  const Qkey named = send_queue.datagram_target(wqe).qkey;
  return (named.value & controlled_qkey_bit) != 0 ? attributes_.qkey : named;
}

bool QueuePair::congestion_experienced(Time now) {
  const Time interval = environment.congestion.notification_interval;
  if (interval.is_never() || !transport.notifies_congestion || now < may_notify_at_) return false;
  may_notify_at_ = now + interval;
  return true;
}

// The notification goes to the queue pair that sent the marked packet, with BECN set (IBTA A17.9.3;
// on InfiniBand A10.3.2).
void QueuePair::emit_notification(OutgoingPacket& out) const {
  out.packet = {};
  out.clear_payload();
  out.packet.opcode = environment.congestion.infiniband.enabled
                          ? wire::infiniband_congestion_notification
                          : wire::congestion_notification;
  out.packet.becn = true;
  out.packet.destination_qp = attributes_.destination_qp;
  out.to = &attributes_.address;
  engine_->address_notification(out);
}

void QueuePair::handle_deadline(Time now) {
  congestion.handle_deadline(now);
  engine_->handle_deadline(now, *this);
}

// --- for the engines ---

void QueuePair::push(verbs::CompletionQueue& cq, const verbs::Completion& completion) {
  if (environment.withheld != nullptr) [[unlikely]]
    environment.withheld->bind(completion);
  if (transport::push(environment, cq, completion)) return;
  // IBTA 10.2.6.2: the completion queue is in error, and so is every queue pair that uses it.
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
  if (status != CompletionStatus::success) completion.place = wqe.place;
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

void QueuePair::raise(verbs::EventType type) { environment.raise({type, this, nullptr, nullptr}); }

void QueuePair::communication_established() {
  if (attributes_.state != QpState::rtr || communication_told_) return;
  communication_told_ = true;
  raise(verbs::EventType::communication_established);
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
  engine_->stop_sending(*this);
  flush_sends();
  if (tag_matching != nullptr) tag_matching->flush(*this);
  flush_receives();
  const bool shares = init.srq != nullptr && transport.receives == Receives::from_any_queue;
  if (first && shares) raise(verbs::EventType::last_wqe_reached);
  failing_ = false;
}

void QueuePair::enter_send_queue_error() {
  if (attributes_.state == QpState::error) return;
  attributes_.state = QpState::sqe;
  flush_sends();
}

void QueuePair::flush_sends() {
  while (!send_queue.empty()) {
    const SendWqe wqe = send_queue.front();
    send_queue.pop();
    if (transport.completes_in_any_order && wqe.executed) continue;  // it has already completed
    complete(wqe, CompletionStatus::flushed);
  }
}

void QueuePair::flush_receives() {
  verbs::Completion completion;
  completion.status = CompletionStatus::flushed;
  completion.opcode = CompletionOpcode::receive;
  while (engine_->release_receive(*this, completion.wr_id)) complete_receive(completion);
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
  // IBTA 10.2.9.1: one event when the number of requests left falls below the limit. The limit is
  // then disarmed.
  if (srq.limit != 0 && srq.queue.size() < srq.limit) {
    srq.limit = 0;
    environment.raise({verbs::EventType::srq_limit_reached, nullptr, nullptr, &srq});
  }
  return true;
}

std::uint64_t QueuePair::next_receive_length() const {
  return init.srq != nullptr ? init.srq->queue.front_length() : receive_queue.front_length();
}

}  // namespace tulle::transport
