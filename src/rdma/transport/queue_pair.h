#pragma once

// A queue pair (IBTA 10.2.4): two work queues, a place on the ladder of states, and the engine of
// its transport (engine.h).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/ids.h"
#include "base/time.h"
#include "rdma/transport/congestion/control.h"
#include "rdma/transport/engine.h"
#include "rdma/transport/environment.h"
#include "rdma/transport/packet_io.h"
#include "rdma/transport/send_queue.h"
#include "rdma/transport/transport.h"
#include "rdma/verbs/completion_queue.h"
#include "rdma/verbs/qp_state.h"
#include "rdma/verbs/receive_queue.h"
#include "rdma/wire/path.h"

namespace tulle::transport {

class TagMatching;

struct QueuePairInit {
  verbs::QpType type = verbs::QpType::rc;
  verbs::ProtectionDomain* pd = nullptr;
  verbs::CompletionQueue* send_cq = nullptr;
  verbs::CompletionQueue* receive_cq = nullptr;
  verbs::SharedReceiveQueue* srq = nullptr;  // null: the queue pair has its own receive queue
  verbs::XrcDomain* xrc_domain = nullptr;    // xrc_target only, which has none of the four above
  std::uint32_t send_work_requests = 0;
  std::uint32_t receive_work_requests = 0;
  std::uint32_t send_sges = 0;
  std::uint32_t receive_sges = 0;
  std::uint32_t inline_bytes = 0;
  // The longest packet of UD (IBTA 9.8.3.1) and SRD. The adapter fills it in.
  verbs::Mtu port_mtu = verbs::Mtu::b1024;
  bool signal_all = false;
  void* cookie = nullptr;
  // Offset in the device's range of numbers at which to start looking for a free number. 0 means
  // behind the number that was given out last.
  std::uint32_t number_hint = 0;
};

// The path that a connection takes when its own fails (IBTA 17.2.8).
struct AlternatePath {
  verbs::AddressVector address;
  std::uint16_t pkey_index = 0;
  std::uint8_t timeout = 0;  // 5-bit code, as of the first path
  // The port's table held it when the path was loaded. The queue pair fills it in.
  Pkey pkey = default_pkey;
};

// IBTA 11.2.5.1. The defaults are the attributes of a new queue pair.
struct QueuePairAttributes {
  verbs::QpState state = verbs::QpState::reset;
  verbs::QpState current_state = verbs::QpState::reset;
  verbs::Mtu path_mtu = verbs::Mtu::b1024;
  Qkey qkey;
  Psn rq_psn;
  Psn sq_psn;
  QpNumber destination_qp;
  verbs::AccessFlags access;
  verbs::AddressVector address;
  std::uint16_t pkey_index = 0;
  std::uint8_t port = 1;
  std::uint8_t max_rd_atomic = 0;
  std::uint8_t max_dest_rd_atomic = 0;
  std::uint8_t min_rnr_timer = 0;  // 5-bit code: wire-format RNR timer
  std::uint8_t timeout = 0;        // 5-bit code: 4.096 us * 2^n; 0: none
  std::uint8_t retry_count = 0;    // 0 to 7
  std::uint8_t rnr_retry = 0;      // 0 to 7; 7: indefinitely
  bool sqd_async_notify = false;
  verbs::MigrationState migration = verbs::MigrationState::migrated;
  // Only to set it: PathMigration::alternate() returns what was set.
  const AlternatePath* alternate = nullptr;
};

class QueuePair {
 public:
  virtual ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  const QpNumber number;
  const Transport& transport;
  // An XRC target's protection domain, shared receive queue and receive completion queue are those
  // of the shared receive queue that the last request named.
  QueuePairInit init;
  Environment& environment;

  verbs::QpType type() const { return init.type; }
  verbs::QpState state() const { return attributes_.state; }
  // True in the states in which a queue pair receives. Only unreliable transports know SQE
  // (IBTA 10.3.1.6).
  bool receives() const {
    using enum verbs::QpState;
    return state() == rtr || state() == rts || state() == sqd || state() == sqe;
  }
  const QueuePairAttributes& attributes() const { return attributes_; }
  // The Q_Key that a datagram's packets carry.
  Qkey qkey_of(const SendWqe& wqe) const;
  // The partition key that the port's table held at pkey_index when the index was set.
  Pkey pkey() const { return pkey_; }
  std::uint32_t mtu_bytes() const {
    return verbs::bytes(transport.is_datagram ? init.port_mtu : attributes_.path_mtu);
  }
  std::uint32_t receives_waiting() const {
    return init.srq != nullptr ? init.srq->queue.size() : receive_queue.size();
  }
  bool send_queue_draining() const;

  // --- control; the adapter has checked what is outside this queue pair (GID index, limits) ---

  verbs::VerbsStatus modify(const QueuePairAttributes& attributes, verbs::QpAttributeMask mask);
  // Checks a request as post_send does, apart from the state and the room in the queue.
  verbs::VerbsStatus check(const verbs::SendRequest& request) const;
  verbs::VerbsStatus post_send(const verbs::SendRequest& request);
  verbs::VerbsStatus post_receive(const verbs::ReceiveRequest& request);

  // --- packets and time: the engine's answers ---

  Agenda handle_packet(Time now, const wire::Packet& packet, Payload payload,
                       const wire::Path& path) {
    if (alternate_ != nullptr) [[unlikely]]
      follow_peer(packet, path);
    return engine_->handle_packet(now, *this, packet, payload, path);
  }
  Agenda handle_segment(Time now, const wire::Tcp& header, Payload payload,
                        const wire::Path& path) {
    return engine_->handle_segment(now, *this, header, payload, path);
  }
  // Fills in the next packet to send; Agenda::packet is false if there is none now.
  Agenda pull(Time now, OutgoingPacket& out) {
    out.headers = OutgoingPacket::Headers::bth;
    const Agenda agenda = engine_->pull(now, *this, out);
    out.packet.migration_state = attributes_.migration == verbs::MigrationState::migrated;
    return agenda;
  }
  Agenda agenda() const { return engine_->agenda(*this); }
  void handle_deadline(Time now);

  // --- congestion ---

  // A packet from the peer met congestion on its way here. Returns true if the peer must be
  // notified with the packet that emit_notification fills in.
  [[nodiscard]] bool congestion_experienced(Time now);
  // The same on InfiniBand (FECN). Returns false if no packet is needed, because the engine's next
  // answer notifies the peer.
  [[nodiscard]] bool congestion_marked(const wire::Packet& packet, const wire::Path& path) {
    return engine_->handle_mark(packet, path);
  }
  // True if the packet comes from the connected peer, or if the queue pair has none.
  bool is_from_peer(const wire::Path& path) const {
    return transport.is_datagram || wire::source_of(path) == attributes_.address.destination;
  }
  void emit_notification(OutgoingPacket& out) const;

  // --- for the engines ---

  Engine& engine() { return *engine_; }
  const Engine& engine() const { return *engine_; }
  SendQueue send_queue;
  verbs::ReceiveQueue receive_queue;
  congestion::Control congestion;
  // Null unless the queue pair uses a shared receive queue of tag matching.
  std::unique_ptr<TagMatching> tag_matching;
  // Completes a send request. A failed request always gets a completion, a successful one only if
  // it asked for one.
  void complete(const SendWqe& wqe, verbs::CompletionStatus status, std::uint32_t bytes = 0);
  void complete_receive(verbs::Completion completion);
  void complete_tagged(verbs::Completion completion);  // the completion carries a tag
  void raise(verbs::EventType type);
  // The queue pair failed: it enters ERROR and flushes both work queues (IBTA 10.3.1.7).
  void enter_error();
  void enter_send_queue_error();  // UC and UD: IBTA 10.3.1.6
  void communication_established();
  // Takes the next receive request from the queue pair's own or the shared receive queue. Returns
  // false if that queue is empty.
  [[nodiscard]] bool take_receive(verbs::Receive& out);
  // Bytes that the next receive request has room for; 0 if there is none.
  std::uint64_t next_receive_length() const;
  // The engine pulled a packet of a request, which counts against the queue pair's rate.
  void packet_sent(Time now, const OutgoingPacket& packet) {
    if (!congestion.limits_rate()) return;
    congestion.sent(now, packet.bth_and_payload_bytes() + environment.link_overhead_bytes);
  }
  void sent_all();  // the send queue has drained, in SQD
  // Names the partition and the service level by which the packets of a carrier leave.
  void set_path(Pkey pkey, std::uint8_t service_level) {
    pkey_ = pkey;
    attributes_.address.service_level = service_level;
  }

  // --- for the adapter's scheduler and timer queue ---

  bool scheduled = false;
  std::uint8_t scheduled_list = 0;
  QueuePair* next_scheduled = nullptr;
  bool notification_due = false;
  QueuePair* next_notification = nullptr;
  Time timer_armed_at = Time::never();
  void rebase(Time by) {
    tulle::rebase(by, timer_armed_at, may_notify_at_);
    congestion.rebase(by);
    engine_->rebase(by);
  }

 protected:
  QueuePair(const Transport& transport, QpNumber number, const QueuePairInit& init,
            Environment& environment);
  Engine* engine_ = nullptr;

 private:
  friend struct PathMigration;
  void apply(const QueuePairAttributes& attributes, verbs::QpAttributeMask mask);
  verbs::VerbsStatus check_attributes(const QueuePairAttributes& attributes,
                                      verbs::QpAttributeMask mask) const;
  const LocalPort& port(const QueuePairAttributes& attributes, verbs::QpAttributeMask mask) const;
  void enter(verbs::QpState from, verbs::QpState to);
  void follow_peer(const wire::Packet& packet, const wire::Path& path);
  void set_migration(verbs::MigrationState wanted);
  bool migrate();
  void start_congestion_control();
  void push(verbs::CompletionQueue& cq, const verbs::Completion& completion);
  void tell_direct_path();
  void flush_sends();
  void flush_receives();
  void reset();

  QueuePairAttributes attributes_;
  bool drained_told_ = false;
  bool communication_told_ = false;
  bool failing_ = false;
  Pkey pkey_ = default_pkey;
  Time may_notify_at_;
  std::unique_ptr<AlternatePath> alternate_;  // null: none is loaded
};

// Automatic path migration of a connection (IBTA 17.2.8).
struct PathMigration {
  // Returns the path that the queue pair would migrate to, or null.
  static const AlternatePath* alternate(const QueuePair& qp) { return qp.alternate_.get(); }
  // The connection's path has failed. Takes the alternate one, and returns true, if both ends are
  // armed.
  [[nodiscard]] static bool migrate(QueuePair& qp) { return qp.migrate(); }
};

// A queue pair and its engine in one piece of memory.
template <typename EngineType>
class QueuePairOf final : public QueuePair {
 public:
  template <typename... Arguments>
  QueuePairOf(const Transport& transport, QpNumber number, const QueuePairInit& init,
              Environment& environment, Arguments&&... arguments)
      : QueuePair(transport, number, init, environment),
        own_engine_(std::forward<Arguments>(arguments)...) {
    engine_ = &own_engine_;
  }

 private:
  EngineType own_engine_;
};

// Makes a queue pair for the row of a transport whose engine takes no arguments, or only constants.
template <typename EngineType, auto... arguments>
std::unique_ptr<QueuePair> make_queue_pair(const Transport& transport, QpNumber number,
                                           const QueuePairInit& init, Environment& environment) {
  return std::make_unique<QueuePairOf<EngineType>>(transport, number, init, environment,
                                                   arguments...);
}

// Makes a queue pair of the type that `init` names. The adapter's table must contain the type.
std::unique_ptr<QueuePair> make_queue_pair(const TransportTable& transports, QpNumber number,
                                           const QueuePairInit& init, Environment& environment);

// IBTA 9.7.5.2.8: the RNR timer codes.
Time rnr_timer(std::uint8_t code);
// IBTA 9.7.6.1.3: 4.096 us * 2^code; never for code 0.
inline Time ack_timeout(std::uint8_t code) {
  return code == 0 ? Time::never() : Time::nanoseconds(4'096) * (std::int64_t{1} << (code & 0x1F));
}

}  // namespace tulle::transport
