#pragma once

// The second checker. It sees the packets of reliable connections leave and arrive, and knows what
// the queue pairs were set to and which receives were posted. IBTA's rules then say what a
// requester may send, and when. It holds the adapters to these promises:
//
// - retries: without progress, a request is sent again after at most `retry_count` time-outs and
//   `rnr_retry` RNR NAKs, and a queue pair that gives up has tried as often as it was told to;
// - timers: nobody times out before the ACK timer, nor later than four times that (IBTA 9.7.6.1.3);
//   nothing is sent during an RNR wait, and what waited leaves once the wait is over and the port
//   is free;
// - credits: no message begins beyond the receives that the responder told of, unless it is a probe
//   with nothing else under way (IBTA 9.7.7.2.5), and what a responder tells is what was posted;
// - acknowledgements: a responder acknowledges only what has arrived.
//
// It is for go-back-N. Selective repeat has other timers.

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "rdma/verbs/types.h"
#include "rdma/wire/packet.h"

namespace tulle::scenarios {

class WireWatch {
 public:
  // Requests of one end of a connection, their answers, and the receives that they may take.
  struct Settings {
    std::string name;
    std::uint32_t node = 0;
    Psn first;
    std::uint32_t mtu_bytes = 0;
    std::uint8_t timeout = 0;
    std::uint8_t retry_count = 0;
    std::uint8_t rnr_retry = 0;
    bool takes_shared_receives = false;  // of the peer, which then tells of no credits
  };
  // `sends` says whether the requester with this number is in a state in which it sends.
  explicit WireWatch(std::function<bool(std::size_t)> sends) : sends_(std::move(sends)) {}

  // Begins anew with a requester, at its place in a table that grows.
  void connect(std::size_t number, const Settings& settings);
  void forget(std::size_t number);
  bool watches(std::size_t number) const;

  // The node's port is busy between these times. To be called before what is sent is reported.
  void port_used(std::uint32_t node, Time from, Time until);
  void request_left(Time now, std::size_t number, const wire::Packet& packet);
  // `receives` is the number of receives that the responder's application has posted so far.
  void request_arrived(std::size_t number, const wire::Packet& packet, std::uint32_t receives);
  void answer_left(std::size_t number, const wire::Packet& packet, std::uint32_t receives);
  void answer_arrived(Time now, std::size_t number, const wire::Packet& packet);
  void failed(Time now, std::size_t number, verbs::CompletionStatus status);

 private:
  // Places of packets in a connection count PSNs from its first one.
  using Place = std::int64_t;
  struct Range {
    Place begin = 0, end = 0;
  };
  struct Flow {
    Settings settings;
    bool watched = false;
    Place unacknowledged = 0;
    Place sent_end = 0;
    Place next = 0;             // behind the packet that left last
    std::deque<Range> answers;  // of READs and atomics, that are due
    // Since the last progress:
    std::uint32_t timeouts = 0;
    std::uint32_t repairs = 0;      // for an answer that asked for packets
    std::uint32_t refusals = 0;     // RNR NAKs
    bool has_gone_back = false;     // for an answer that asked for it
    Time asked_at = Time::never();  // an answer asked for packets, which have not been sent again
    Time refused_until = Time::never();
    bool is_refused = false;  // nothing was sent again since an RNR NAK
    // The ACK timer began at this time at the earliest, or does not run.
    Time timer_began = Time::never();
    Time silent_since;
    // Messages that take a receive, by their last packet; the last one may be under way.
    std::deque<Place> message_ends;
    std::int64_t messages_started = 0;
    std::int64_t messages_acknowledged = 0;
    bool is_told_credits = false;
    bool had_credits = true;  // since it sent its last new packet
    std::int64_t message_limit = 0;
    // The responder's side.
    // By place: receives that had been posted when the packet arrived for the first time.
    std::vector<std::optional<std::uint32_t>> arrived;
    Place arrived_end = 0;  // everything before has arrived
    std::set<Place> arrived_messages;
  };
  struct Port {
    Time free_at;
  };

  Flow* find(std::size_t number);
  static Place place_of(const Flow& flow, const wire::Packet& packet);
  static std::uint32_t psns_of(const Flow& flow, const wire::Packet& packet);
  void check_idle_time(std::uint32_t node, Time from, Time until) const;
  void sent_again(Time now, Flow& flow);
  void begin_message(Flow& flow, const wire::Packet& packet, Place place);
  bool acknowledge(Time now, Flow& flow, Place last);
  void progress_to(Time now, Flow& flow, Place place);
  void ask_again(Time now, Flow& flow);
  void refuse(Time now, Flow& flow, const wire::Packet& packet);
  static bool has_credits(const Flow& flow);
  static void update_credits(Flow& flow, const wire::Packet& packet);

  std::function<bool(std::size_t)> sends_;
  std::vector<Flow> flows_;
  std::vector<Port> ports_;
};

}  // namespace tulle::scenarios
