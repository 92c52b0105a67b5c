#pragma once

// A queue pair (IBTA 10.2.4): two work queues, a place on the ladder of states,
// and the engine of its transport.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "base/growing_ring.h"
#include "base/id_map.h"
#include "base/ids.h"
#include "base/time.h"
#include "transport/congestion/pacing.h"
#include "transport/congestion/settings.h"
#include "transport/counters.h"
#include "transport/direct_path.h"
#include "transport/packet_io.h"
#include "transport/raw/engine.h"
#include "transport/rc/engine.h"
#include "transport/recovery.h"
#include "transport/send_queue.h"
#include "transport/srd/engine.h"
#include "transport/tcp/settings.h"
#include "transport/uc/engine.h"
#include "transport/ud/engine.h"
#include "verbs/completion_queue.h"
#include "verbs/memory.h"
#include "verbs/qp_state.h"
#include "verbs/receive_queue.h"
#include "wire/ip_udp.h"

namespace tulle::transport::iwarp {
class Connection;
}
namespace tulle::transport::srd {
class Device;
}

namespace tulle::transport {

class QueuePair;
class TagMatching;
namespace tcp {
class Stream;
}

// An asynchronous event of a queue pair or of what hangs on it.
struct AsyncEvent {
  verbs::EventType type{};
  QueuePair* qp = nullptr;
  verbs::CompletionQueue* cq = nullptr;
  verbs::SharedReceiveQueue* srq = nullptr;
};

// What the queue pairs of one adapter share.
struct Environment {
  verbs::KeyTable keys;
  Counters counters;
  GrowingRing<AsyncEvent> events;  // rare: not on the packet path
  congestion::Settings congestion;
  RecoverySettings recovery;
  std::uint64_t completions = 0;             // pushed to any completion queue
  DirectPath* direct = nullptr;              // the driver's, where it has one
  std::vector<Pkey> pkeys = {default_pkey};  // the port's, by index

  // From here on nothing that an RC packet touches.
  congestion::EndpointLimits endpoint_limits;
  // InfiniBand's congestion control by service level: 16 flows, which queue pairs share; else null.
  std::unique_ptr<std::array<congestion::Injection, 16>> injections;
  const tcp::Settings* tcp = &tcp::default_settings;
  bool iwarp_crc = true;  // RFC 5044 4.4: what set-up has agreed upon
  // Whether sockets' writes and reads wait until somebody has them happen (Stream::write, read),
  // and those that wait.
  bool sockets_wait = false;
  struct WaitingSocket {
    QpNumber qp;
    bool asleep = false;  // its application waits for it, and did not just call
  };
  GrowingRing<WaitingSocket> waiting_sockets;
  std::span<const Gid> gids;  // the port's, by index
  IdMap<verbs::SharedReceiveQueue> xrc_srqs;
  std::unique_ptr<srd::Device> srd;  // null: no queue pair needs it

  explicit Environment(std::uint64_t seed);
  ~Environment();
};

struct QueuePairInit {
  verbs::QpType type = verbs::QpType::rc;
  verbs::ProtectionDomain* pd = nullptr;
  verbs::CompletionQueue* send_cq = nullptr;
  verbs::CompletionQueue* receive_cq = nullptr;
  verbs::SharedReceiveQueue* srq = nullptr;  // or null
  verbs::XrcDomain* xrc_domain = nullptr;    // xrc_target's, which has none of the four above
  std::uint32_t send_work_requests = 0;
  std::uint32_t receive_work_requests = 0;
  std::uint32_t send_sges = 0;
  std::uint32_t receive_sges = 0;
  std::uint32_t inline_bytes = 0;
  verbs::Mtu port_mtu =
      verbs::Mtu::b1024;  // UD (IBTA 9.8.3.1) and SRD send up to it; the adapter fills it in
  bool signal_all = false;
  void* cookie = nullptr;
  // Where in the device's range of numbers to look first for a free one; 0: behind the last given.
  std::uint32_t number_hint = 0;
};

// IBTA 11.2.5.1. Defaults are a new queue pair's.
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
  std::uint8_t rnr_retry = 0;      // 0 to 7; 7: for ever
  bool sqd_async_notify = false;
};

class QueuePair {
 public:
  QueuePair(QpNumber number, const QueuePairInit& init, Environment& environment);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  const QpNumber number;
  // Of an XRC target, pd, srq and receive_cq are those that the last request named.
  QueuePairInit init;
  Environment& environment;

  verbs::QpType type() const { return init.type; }
  verbs::QpState state() const { return attributes_.state; }
  const QueuePairAttributes& attributes() const { return attributes_; }
  // What the port's table held at its index when it was set.
  Pkey pkey() const { return pkey_; }
  std::uint32_t mtu_bytes() const {
    return verbs::bytes(verbs::is_datagram(type()) ? init.port_mtu : attributes_.path_mtu);
  }
  std::uint32_t receives_waiting() const {
    return init.srq != nullptr ? init.srq->queue.size() : receive_queue.size();
  }
  std::uint32_t sends_waiting() const { return send_queue.size(); }
  bool send_queue_draining() const;

  // Control. The adapter has checked what lies beyond this queue pair (GID index, limits).
  verbs::VerbsStatus modify(Time now, const QueuePairAttributes& attributes,
                            verbs::QpAttributeMask mask);
  verbs::VerbsStatus post_send(const verbs::SendRequest& request);
  verbs::VerbsStatus post_receive(const verbs::ReceiveRequest& request);

  // Packets and time.
  void handle_packet(Time now, const wire::Packet& packet, Payload payload, const wire::IpUdp& ip);
  // The same for transports over TCP.
  void handle_segment(Time now, const wire::Tcp& header, Payload payload, const wire::IpUdp& ip);
  // False: nothing to send now.
  bool pull_packet(Time now, OutgoingPacket& out);
  // Whether an answer is due, which is not to wait behind the requests of other queue pairs.
  bool has_answers() const;
  // False: pull_packet would find nothing until something else happens.
  bool has_work() const;
  // The network told that this queue pair's packets find congestion.
  void handle_congestion_notification(Time now) { pacing_.notified(now); }
  // A packet of the peer's found congestion on its way here. True: the peer is to be told, with
  // what emit_notification fills in.
  [[nodiscard]] bool congestion_experienced(Time now);
  // The same on InfiniBand (FECN). False: there is no need for a packet of its own, as the next
  // answer says it, or it came from where no such packet can go.
  [[nodiscard]] bool congestion_marked(const wire::Packet& packet, const wire::IpUdp& ip);
  // Whether this packet is of whom the queue pair is connected to, if it is.
  bool is_from_peer(const wire::IpUdp& ip) const {
    return type() == verbs::QpType::ud || ip.source == attributes_.address.destination;
  }
  void emit_notification(OutgoingPacket& out) const;
  Time next_deadline() const;
  void handle_deadline(Time now);
  // Null, unless it is a connected one of QpType::stream.
  tcp::Stream* stream();
  // Null, unless it is a connected one of QpType::iwarp.
  iwarp::Connection* iwarp();
  const iwarp::Connection* iwarp() const;

  // For the engines.
  SendQueue send_queue;
  verbs::ReceiveQueue receive_queue;
  std::unique_ptr<TagMatching> tag_matching;  // null: its shared receive queue, if any, has no tags
  // Completes a send request: always when it failed, else if it asked for it.
  void complete(const SendWqe& wqe, verbs::CompletionStatus status, std::uint32_t bytes = 0);
  void complete_receive(verbs::Completion completion);
  void complete_tagged(verbs::Completion completion);  // with its tag
  void raise(verbs::EventType type);
  // The queue pair failed: error state, and everything queued is flushed (IBTA 10.3.1.7).
  void enter_error();
  void enter_send_queue_error();  // UC and UD: IBTA 10.3.1.6
  void communication_established();
  // Takes the next receive request from its own or the shared queue.
  [[nodiscard]] bool take_receive(verbs::Receive& out);
  // Bytes that the next receive request has room for; 0 if there is none.
  std::uint64_t next_receive_length() const;
  // Fills in the payload of a packet from `offset` of the request's data; false:
  // a local protection error.
  [[nodiscard]] bool gather(const SendWqe& wqe, std::uint32_t offset, std::uint32_t bytes,
                            OutgoingPacket& out) const;
  // Writes to the SGEs from `offset`; false: a local protection error, or they are too short.
  [[nodiscard]] bool scatter(const verbs::Sge* sges, std::uint32_t sge_count, std::uint64_t offset,
                             Payload payload);
  // Binds a window or invalidates a key, as the request says: success, or why it fails.
  [[nodiscard]] verbs::CompletionStatus execute_local(const SendWqe& wqe);
  void sent_all();        // the send queue has drained, in SQD
  void forget_inbound();  // XRC: the message in progress, with its receive request
  srd::Engine& srd() { return std::get<srd::Engine>(engine_); }
  raw::Engine& raw() { return std::get<raw::Engine>(engine_); }

  // Makes it one by which an adapter sends what its SRD queue pairs have for one service level.
  void carry(srd::Carrier& carrier, std::uint8_t service_level);
  bool is_carrier() const {
    const auto* srd = std::get_if<srd::Engine>(&engine_);
    return srd != nullptr && srd->carrier != nullptr;
  }

  // For the adapter's scheduler and timer queue.
  bool scheduled = false;
  std::uint8_t scheduled_list = 0;
  QueuePair* next_scheduled = nullptr;
  bool notification_due = false;
  QueuePair* next_notification = nullptr;
  Time timer_armed_at = Time::never();

 private:
  void apply(const QueuePairAttributes& attributes, verbs::QpAttributeMask mask);
  verbs::VerbsStatus check_attributes(const QueuePairAttributes& attributes,
                                      verbs::QpAttributeMask mask) const;
  void enter(Time now, verbs::QpState from, verbs::QpState to);
  void start_pacing();
  void push(verbs::CompletionQueue& cq, const verbs::Completion& completion);
  bool pull_reliable(Time now, rc::Engine& rc, OutgoingPacket& out);
  bool pull_request(Time now, rc::Engine& rc, OutgoingPacket& out);
  bool pull_unreliable(Time now, OutgoingPacket& out);
  void receive_posted(const verbs::ReceiveRequest& request);
  bool pull_for_peers(Time now, srd::Carrier* carrier, OutgoingPacket& out);
  void tell_direct_path();
  void flush_sends();
  void flush_receives();
  void reset();

  QueuePairAttributes attributes_;
  bool drained_told_ = false;
  bool communication_told_ = false;
  bool failing_ = false;
  bool becn_due_ = false;  // in the next answer
  Pkey pkey_ = default_pkey;
  std::uint32_t requests_in_row_ = 0;  // pulled since the last answer
  congestion::Pacing pacing_;
  Time may_notify_at_;
  std::variant<rc::Engine, uc::Engine, ud::Engine, srd::Engine, std::unique_ptr<tcp::Stream>,
               std::unique_ptr<iwarp::Connection>, raw::Engine>
      engine_;
};

// IBTA 9.7.5.2.8: the RNR timer codes.
Time rnr_timer(std::uint8_t code);
// IBTA 9.7.6.1.3: 4.096 us * 2^code; never for code 0.
Time ack_timeout(std::uint8_t code);

}  // namespace tulle::transport
