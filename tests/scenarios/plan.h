#pragma once

// What happens in one scenario, drawn from its seed before it runs: the nodes, the network and its
// faults, the channels between queue pairs, each end's work, and what is to go wrong.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "sim/cluster.h"
#include "transport/congestion/settings.h"
#include "transport/recovery.h"
#include "transport/tcp/settings.h"
#include "verbs/types.h"

namespace tulle::scenarios {

// One send work request, by what it is for.
enum class Work : std::uint8_t {
  send,
  send_with_immediate,
  send_with_invalidate,  // ends a window cycle
  write,
  write_with_immediate,
  write_to_nowhere,  // no bytes with a key that names nothing: allowed
  write_hot,         // one place that is written over and over: shows the order
  write_window,
  atomic_write,
  read,
  read_hot,
  read_window,
  compare_swap,
  fetch_add,
  bind_window,  // begins a window cycle
  local_invalidate,
};

// What goes wrong on purpose, and once, on a channel.
enum class Mishap : std::uint8_t {
  none,
  // Found by the responder.
  unknown_key,
  out_of_bounds,
  wrong_region_access,
  wrong_qp_access,
  short_receive,
  receive_protection,
  // Found by the requester.
  local_protection,
  misaligned_atomic,
  bad_bind,
  bad_invalidate,
  datagram_too_long,
  // Nobody answers as hoped.
  rnr_exhausted,
  // The application's doing.
  moved_to_error,
  reset_and_reconnect,
};

struct Piece {
  std::uint32_t offset = 0;  // in a Block
  std::uint32_t bytes = 0;
};

struct Op {
  Work work = Work::send;
  std::uint32_t bytes = 0;
  bool signaled = true;
  bool fence = false;
  bool solicited = false;
  bool inlined = false;
  Time pause;  // before it is posted
  std::uint32_t immediate = 0;
  std::uint32_t cycle = 0;  // of the channel's window
  std::uint32_t word = 0;   // of the target node
  std::uint64_t add = 0;
  bool guess_right = false;         // compare_swap: with what the application believes is there
  std::vector<Piece> pieces;        // local memory
  std::uint32_t remote_offset = 0;  // in the peer's Block
};

struct EndPlan {
  std::uint32_t node = 0;
  std::uint32_t send_depth = 0;
  std::uint32_t receive_depth = 0;
  std::uint32_t pieces_max = 1;
  std::uint32_t inline_bytes = 0;
  std::uint8_t rnr_timer = 1;
  std::uint8_t rnr_retry = 7;
  std::uint8_t retry_count = 7;
  std::uint8_t timeout = 14;
  std::uint8_t read_depth = 1;  // as requester; the peer's as responder is the same
  bool signal_all = false;
  bool shared_receives = false;
  bool late_to_rts = false;
  bool drain = false;  // once, SQD and back
  Time drain_at;
  Time receive_delay_max;            // from a receive's completion until its buffer is posted again
  std::uint32_t receives_first = 0;  // posted before anything is sent; the others come late
  std::vector<Op> ops;
};

struct ChannelPlan {
  verbs::QpType type = verbs::QpType::rc;
  verbs::Mtu mtu = verbs::Mtu::b1024;
  EndPlan ends[2];
  Mishap mishap = Mishap::none;
  int mishap_end = 0;           // whose request or doing it is
  std::uint32_t mishap_op = 0;  // index into its ops
  Time mishap_at;               // moved_to_error, reset_and_reconnect
  int window_owner = 0;
  std::uint32_t window_cycles = 0;
};

enum class Polling : std::uint8_t { at_once, now_and_then, by_event };

struct NodePlan {
  std::uint32_t completion_queues = 1;
  Polling polling = Polling::at_once;
  bool solicited_only = false;  // by_event
  std::uint32_t srq_depth = 0;
  std::uint32_t srq_limit = 0;
  std::uint32_t words = 0;
};

// How hard the network is on them.
enum class Weather : std::uint8_t {
  perfect,  // nothing is lost, so everything is delivered and nothing sent twice
  rough,    // whatever can finish must finish
  stormy,   // retries may run out
};

struct Plan {
  std::uint64_t seed = 0;
  sim::Settings network;
  Weather weather = Weather::perfect;
  bool ipv6 = false;
  verbs::Mtu port_mtu = verbs::Mtu::b4096;
  transport::congestion::WindowSettings window;
  transport::RecoverySettings recovery;
  transport::tcp::Settings tcp;
  std::vector<NodePlan> nodes;
  std::vector<ChannelPlan> channels;
  bool cut_off = false;  // one node loses its cable
  std::uint32_t cut_off_node = 0;
  Time cut_off_at;
};

Plan draw_plan(std::uint64_t seed);
// The same world, in which reliable connections repeat selectively, with a window and time-outs
// drawn from the plan's seed.
void repeat_selectively(Plan& plan);
// The same world, in which reliable connections are iWARP's, over TCP connections drawn from the
// plan's seed; without what iWARP lacks.
void go_over_iwarp(Plan& plan);
// The same world, in which half of the reliable connections are extended ones, and some of their
// WRITEs atomic.
void extend(Plan& plan);
std::string describe(const Plan& plan);

bool takes_receive(Work work);
bool is_read(Work work);
bool is_atomic(Work work);
bool waits(Work work);  // until the channel's window is in some state
// Whether the responder finds the mishap, and so fails too.
bool found_by_responder(Mishap mishap);

}  // namespace tulle::scenarios
