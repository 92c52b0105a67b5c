#pragma once

// A plan says what happens in one scenario. It is drawn from the scenario's seed before it runs:
// the nodes, the network and its faults, the channels between queue pairs, each end's work, and
// what goes wrong on purpose.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "rdma/transport/congestion/settings.h"
#include "rdma/transport/recovery.h"
#include "rdma/transport/tcp_settings.h"
#include "rdma/verbs/types.h"
#include "sim/cluster.h"

namespace tulle::scenarios {

// Purpose of one send work request.
enum class Work : std::uint8_t {
  send,
  send_with_immediate,
  send_with_invalidate,  // ends a window cycle
  write,
  write_with_immediate,
  write_to_nowhere,  // allowed: no bytes, with a key that names nothing
  write_hot,         // overwrites one place again and again, which shows the order
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

// A fault that happens on purpose, and once, on a channel.
enum class Mishap : std::uint8_t {
  none,
  // The responder finds these.
  unknown_key,
  out_of_bounds,
  wrong_region_access,
  misaligned_atomic,
  wrong_qp_access,
  short_receive,
  receive_protection,
  // The requester finds these.
  local_protection,
  bad_bind,
  bad_invalidate,
  datagram_too_long,
  // The peer does not answer as hoped.
  rnr_exhausted,
  // The application does these.
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
  Time pause;  // between its post and the next one
  std::uint32_t immediate = 0;
  std::uint32_t cycle = 0;  // cycle of the channel's window
  std::uint32_t word = 0;   // index of the target node's word
  std::uint64_t add = 0;
  bool guess_right = false;  // compare_swap: compares with the word's value at the time of the post
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
  std::uint8_t read_depth = 1;  // as requester; the peer has the same depth as responder
  bool signal_all = false;
  bool shared_receives = false;
  bool late_to_rts = false;
  bool drain = false;  // moves once to SQD and back
  Time drain_at;
  Time receive_delay_max;  // from a receive's completion until its buffer is posted again
  // receives posted before anything is sent; the others come late
  std::uint32_t receives_first = 0;
  std::vector<Op> ops;
};

struct ChannelPlan {
  verbs::QpType type = verbs::QpType::rc;
  verbs::Mtu mtu = verbs::Mtu::b1024;
  EndPlan ends[2];
  Mishap mishap = Mishap::none;
  int mishap_end = 0;           // the end whose request or action it is
  std::uint32_t mishap_op = 0;  // index into that end's ops
  Time mishap_at;               // for moved_to_error and reset_and_reconnect
  int window_owner = 0;
  std::uint32_t window_cycles = 0;
};

enum class Polling : std::uint8_t { at_once, now_and_then, by_event };

struct NodePlan {
  std::uint32_t completion_queues = 1;
  Polling polling = Polling::at_once;
  bool solicited_only = false;  // with Polling::by_event
  std::uint32_t srq_depth = 0;
  std::uint32_t srq_limit = 0;
  std::uint32_t words = 0;
};

// The weather says how badly the network treats the channels.
enum class Weather : std::uint8_t {
  perfect,  // nothing is lost, so everything is delivered and nothing sent twice
  rough,    // everything that can finish must finish
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
// Changes the plan so that reliable connections use selective repeat, with a window and time-outs
// drawn from the plan's seed.
void repeat_selectively(Plan& plan);
// Changes the plan so that reliable connections are iWARP's, over TCP connections drawn from the
// plan's seed. Leaves out what iWARP lacks.
void go_over_iwarp(Plan& plan);
// Changes the plan so that half of the reliable connections are extended ones (XRC), and some
// WRITEs of reliable connections are atomic.
void extend(Plan& plan);
std::string describe(const Plan& plan);

bool takes_receive(Work work);
bool is_read(Work work);
bool is_atomic(Work work);
bool waits(Work work);  // for the channel's window to be in some state
// Returns true if the responder finds the mishap, so that it fails too.
bool found_by_responder(Mishap mishap);

}  // namespace tulle::scenarios
