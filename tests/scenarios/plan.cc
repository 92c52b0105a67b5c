#include "tests/scenarios/plan.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "base/random.h"

namespace tulle::scenarios {

using verbs::QpType;

bool takes_receive(Work work) {
  return work == Work::send || work == Work::send_with_immediate ||
         work == Work::send_with_invalidate || work == Work::write_with_immediate;
}

bool is_read(Work work) {
  return work == Work::read || work == Work::read_hot || work == Work::read_window;
}

bool is_atomic(Work work) { return work == Work::compare_swap || work == Work::fetch_add; }

bool waits(Work work) {
  return work == Work::send_with_invalidate || work == Work::write_window ||
         work == Work::read_window || work == Work::bind_window || work == Work::local_invalidate;
}

bool found_by_responder(Mishap mishap) {
  return mishap >= Mishap::unknown_key && mishap <= Mishap::receive_protection;
}

namespace {

constexpr std::uint32_t hot_bytes = 40;
constexpr std::uint32_t grh_bytes = 40;

class Drawer {
 public:
  explicit Drawer(std::uint64_t seed) : random_(seed * 0x9E37'79B9 + 0x7E57) { plan_.seed = seed; }

  Plan draw() {
    draw_network();
    const std::uint64_t nodes = 2 + below(3);
    for (std::uint64_t i = 0; i < nodes; ++i) plan_.nodes.push_back(draw_node());
    const std::uint64_t channels = 1 + below(5);
    for (std::uint64_t i = 0; i < channels; ++i) plan_.channels.push_back(draw_channel());
    if (plan_.weather != Weather::perfect && one_in(10)) {
      plan_.cut_off = true;
      plan_.cut_off_node = static_cast<std::uint32_t>(below(nodes));
      plan_.cut_off_at = Time::microseconds(static_cast<std::int64_t>(below(3'000)));
    }
    if (plan_.weather == Weather::stormy) limit_rnr_retries();
    return std::move(plan_);
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_.below(bound); }
  bool one_in(std::uint64_t n) { return random_.below(n) == 0; }
  double up_to(double most) { return most * static_cast<double>(below(1'001)) / 1'000; }

  void draw_network() {
    sim::Settings& network = plan_.network;
    network.seed = random_.next();
    plan_.weather = one_in(6) ? Weather::perfect : one_in(5) ? Weather::stormy : Weather::rough;
    plan_.ipv6 = one_in(3);
    constexpr std::array mtus = {verbs::Mtu::b256, verbs::Mtu::b512, verbs::Mtu::b1024,
                                 verbs::Mtu::b2048, verbs::Mtu::b4096};
    plan_.port_mtu = mtus[below(mtus.size())];
    const bool damage = one_in(2);
    network.carriage = damage || one_in(2) ? sim::Carriage::datagrams : sim::Carriage::packets;
    network.identification_known = damage || one_in(2);
    constexpr std::array rates = {1, 10, 25, 100, 400};
    network.link_bits_per_second = rates[below(rates.size())] * std::int64_t{1'000'000'000};
    network.link_delay = Time::nanoseconds(100 + static_cast<std::int64_t>(below(20'000)));
    fabric::FaultSettings& faults = network.faults;
    if (plan_.weather == Weather::rough) {
      // The rates are so low that eight tries in a row all fail once in about 10^8 requests.
      draw_rates(faults, 0.03, 0.08, 0.15, damage ? 0.02 : 0);
    } else if (plan_.weather == Weather::stormy) {
      draw_rates(faults, 0.3, 0.2, 0.5, damage ? 0.1 : 0);
    }
    faults.reorder_delay = Time::nanoseconds(100 + static_cast<std::int64_t>(below(600'000)));
    network.faults_end = Time::seconds(2);
    plan_.window.enabled = !one_in(5);
    plan_.window.initial_packets = 4 + static_cast<std::uint32_t>(below(64));
    plan_.window.max_packets =
        plan_.window.initial_packets + static_cast<std::uint32_t>(below(512));
  }

  // Where retries may run out, those of messages that find no receive may run out as well. They
  // have numbers of their own, so that the rest of a plan is what it was without them.
  void limit_rnr_retries() {
    Random random(plan_.seed ^ 0x0012'2E72);
    for (ChannelPlan& channel : plan_.channels) {
      for (EndPlan& end : channel.ends) {
        const auto few = static_cast<std::uint8_t>(1 + random.below(6));
        if (end.rnr_retry == 7) end.rnr_retry = few;
      }
    }
  }

  void draw_rates(fabric::FaultSettings& faults, double drop, double duplicate, double reorder,
                  double corrupt) {
    faults.drop = up_to(drop);
    faults.duplicate = up_to(duplicate);
    faults.reorder = up_to(reorder);
    faults.corrupt = up_to(corrupt);
  }

  NodePlan draw_node() {
    NodePlan node;
    node.completion_queues = 1 + static_cast<std::uint32_t>(below(3));
    node.polling = static_cast<Polling>(below(3));
    node.solicited_only = one_in(4);
    // The queue is deeper than the number of messages that can come to a halt with one receive in
    // hand.
    node.srq_depth = 12 + static_cast<std::uint32_t>(below(20));
    node.srq_limit = one_in(2) ? 1 + static_cast<std::uint32_t>(below(4)) : 0;
    node.words = 1 + static_cast<std::uint32_t>(below(4));
    return node;
  }

  ChannelPlan draw_channel() {
    ChannelPlan channel;
    const std::uint64_t kind = below(10);
    channel.type = kind < 7 ? QpType::rc : kind < 9 ? QpType::uc : QpType::ud;
    do {
      constexpr std::array mtus = {verbs::Mtu::b256, verbs::Mtu::b512, verbs::Mtu::b1024,
                                   verbs::Mtu::b2048, verbs::Mtu::b4096};
      channel.mtu = mtus[below(mtus.size())];
    } while (bytes(channel.mtu) > bytes(plan_.port_mtu));
    if (channel.type == QpType::ud) channel.mtu = plan_.port_mtu;
    const auto first = static_cast<std::uint32_t>(below(plan_.nodes.size()));
    const bool self = one_in(12);
    const auto step = static_cast<std::uint32_t>(self ? 0 : 1 + below(plan_.nodes.size() - 1));
    channel.ends[0].node = first;
    channel.ends[1].node = (first + step) % static_cast<std::uint32_t>(plan_.nodes.size());
    draw_mishap(channel);
    if (channel.type == QpType::rc && channel.mishap == Mishap::none && one_in(2)) {
      channel.window_cycles = 1 + static_cast<std::uint32_t>(below(3));
      channel.window_owner = static_cast<int>(below(2));
    }
    const auto read_depth = static_cast<std::uint8_t>(1 + below(16));
    for (int side = 0; side < 2; ++side) draw_end(channel, side, read_depth);
    if (channel.window_cycles > 0) draw_window_cycles(channel);
    finish(channel);
    return channel;
  }

  void draw_mishap(ChannelPlan& channel) {
    channel.mishap_end = static_cast<int>(below(2));
    channel.mishap_at = Time::microseconds(static_cast<std::int64_t>(below(2'000)));
    if (!one_in(3)) return;
    constexpr std::array rc = {
        Mishap::unknown_key,        Mishap::out_of_bounds,     Mishap::wrong_region_access,
        Mishap::wrong_qp_access,    Mishap::short_receive,     Mishap::receive_protection,
        Mishap::local_protection,   Mishap::misaligned_atomic, Mishap::bad_bind,
        Mishap::bad_invalidate,     Mishap::rnr_exhausted,     Mishap::moved_to_error,
        Mishap::reset_and_reconnect};
    constexpr std::array uc = {Mishap::local_protection, Mishap::moved_to_error, Mishap::bad_bind,
                               Mishap::reset_and_reconnect};
    constexpr std::array ud = {Mishap::local_protection, Mishap::datagram_too_long,
                               Mishap::moved_to_error, Mishap::reset_and_reconnect};
    if (channel.type == QpType::rc) channel.mishap = rc[below(rc.size())];
    if (channel.type == QpType::uc) channel.mishap = uc[below(uc.size())];
    if (channel.type == QpType::ud) channel.mishap = ud[below(ud.size())];
  }

  void draw_end(ChannelPlan& channel, int side, std::uint8_t read_depth) {
    EndPlan& end = channel.ends[side];
    end.send_depth = 1 + static_cast<std::uint32_t>(below(24));
    end.pieces_max = 1 + static_cast<std::uint32_t>(below(one_in(3) ? 16 : 4));
    end.inline_bytes = one_in(2) ? static_cast<std::uint32_t>(below(257)) : 0;
    end.rnr_timer = static_cast<std::uint8_t>(1 + below(14));
    end.retry_count = plan_.weather == Weather::stormy ? static_cast<std::uint8_t>(below(8)) : 7;
    // The timeout is long enough for a full window from every channel to leave at the slowest rate.
    end.timeout = static_cast<std::uint8_t>(
        (plan_.network.link_bits_per_second <= 1'000'000'000 ? 14 : 12) + below(3));
    end.read_depth = read_depth;
    end.signal_all = one_in(4);
    end.late_to_rts = side == 1 && one_in(6);
    end.drain = one_in(8);
    end.drain_at = Time::microseconds(static_cast<std::int64_t>(below(2'000)));
    end.receive_delay_max = Time::microseconds(static_cast<std::int64_t>(below(500)));
    const std::uint64_t ops = below(one_in(4) ? 60 : 20) + (side == channel.mishap_end ? 1 : 0);
    for (std::uint64_t i = 0; i < ops; ++i) end.ops.push_back(draw_op(channel, end));
  }

  Work draw_work(QpType type) {
    constexpr std::array rc = {Work::send,      Work::send,      Work::send_with_immediate,
                               Work::write,     Work::write,     Work::write_with_immediate,
                               Work::write_hot, Work::write_hot, Work::read,
                               Work::read,      Work::read_hot,  Work::compare_swap,
                               Work::fetch_add, Work::fetch_add, Work::write_to_nowhere};
    constexpr std::array uc = {Work::send, Work::send_with_immediate, Work::write,
                               Work::write_with_immediate};
    constexpr std::array ud = {Work::send, Work::send_with_immediate};
    if (type == QpType::rc) return rc[below(rc.size())];
    return type == QpType::uc ? uc[below(uc.size())] : ud[below(ud.size())];
  }

  std::uint32_t draw_bytes(std::uint32_t mtu, bool datagram) {
    if (datagram) {
      const std::array around = {0u, 1u, mtu - 1, mtu, static_cast<std::uint32_t>(below(mtu))};
      return around[below(around.size())];
    }
    switch (below(12)) {
      case 0:
        return 0;
      case 1:
        return 1;
      case 2:
      case 3:
        return static_cast<std::uint32_t>(below(64));
      case 4:
      case 5:
      case 6:
        return static_cast<std::uint32_t>((1 + below(6)) * mtu + below(3) - 1);
      case 7:
        return static_cast<std::uint32_t>(below(one_in(20) ? 300'000 : 65'537));
      default:
        return static_cast<std::uint32_t>(below(std::uint64_t{8} * mtu));
    }
  }

  Op draw_op(const ChannelPlan& channel, const EndPlan& end) {
    Op op;
    op.work = draw_work(channel.type);
    op.bytes = draw_bytes(bytes(channel.mtu), channel.type == QpType::ud);
    if (is_atomic(op.work)) op.bytes = 8;
    if (op.work == Work::write_hot || op.work == Work::read_hot) op.bytes = hot_bytes;
    if (op.work == Work::write_to_nowhere) op.bytes = 0;
    op.signaled = one_in(2);
    op.fence = one_in(6);
    op.solicited = one_in(3);
    op.inlined =
        !is_read(op.work) && !is_atomic(op.work) && op.bytes <= end.inline_bytes && one_in(2);
    op.pause =
        one_in(5) ? Time::nanoseconds(static_cast<std::int64_t>(below(400'000))) : Time::zero();
    op.immediate = static_cast<std::uint32_t>(random_.next());
    op.word = static_cast<std::uint32_t>(random_.next() >> 40);  // modulo the node's words, later
    op.add = 1 + below(1'000);
    op.guess_right = !one_in(3);
    return op;
  }

  Op draw_op(const ChannelPlan& channel, const EndPlan& end, Work work, std::uint32_t size) {
    Op op = draw_op(channel, end);
    op.work = work;
    op.bytes = size;
    op.inlined = false;
    return op;
  }

  // The owner binds the window, the peer uses it, and one of them invalidates it. Then the owner
  // may bind it again.
  void draw_window_cycles(ChannelPlan& channel) {
    EndPlan& owner = channel.ends[channel.window_owner];
    EndPlan& user = channel.ends[1 - channel.window_owner];
    for (std::uint32_t cycle = 0; cycle < channel.window_cycles; ++cycle) {
      const auto add = [&](EndPlan& end, Work work, std::uint32_t size) {
        end.ops.push_back(draw_op(channel, end, work, size));
        Op& op = end.ops.back();
        op.cycle = cycle;
        return &op;
      };
      add(owner, Work::bind_window, 0)->signaled = true;
      for (std::uint64_t uses = 1 + below(3); uses > 0; --uses) {
        const auto size = 1 + static_cast<std::uint32_t>(below(6'000));
        add(user, one_in(2) ? Work::write_window : Work::read_window, size);
      }
      if (one_in(2)) {
        // IBTA 10.8.3.3: without a fence the SEND may overtake the READs before it.
        Op* op = add(user, Work::send_with_invalidate, static_cast<std::uint32_t>(below(3'000)));
        op->fence = true;
      } else {
        user.ops.back().signaled = true;
        add(owner, Work::local_invalidate, 0)->signaled = true;
      }
      for (std::uint64_t others = below(4); others > 0; --others) {
        owner.ops.push_back(draw_op(channel, owner));
        user.ops.push_back(draw_op(channel, user));
      }
    }
  }

  // Finishes what depends on the whole channel: the mishap's request, the receives, and which
  // requests are signaled.
  void finish(ChannelPlan& channel) {
    EndPlan& culprit = channel.ends[channel.mishap_end];
    if (channel.mishap != Mishap::none) place_mishap(channel, culprit);
    for (int side = 0; side < 2; ++side) {
      EndPlan& end = channel.ends[side];
      const EndPlan& peer = channel.ends[1 - side];
      const auto messages = static_cast<std::uint32_t>(std::count_if(
          peer.ops.begin(), peer.ops.end(), [](const Op& op) { return takes_receive(op.work); }));
      finish_receives(channel, side, messages);
      for (std::size_t i = 0; i < end.ops.size(); ++i) {
        const bool last = i + 1 == end.ops.size();
        // A request before one that waits for the peer is signaled too, since the later one may
        // wait indefinitely.
        if (last || i % ((end.send_depth + 1) / 2) == 0 || waits(end.ops[i + 1].work)) {
          end.ops[i].signaled = true;
        }
      }
    }
  }

  void finish_receives(ChannelPlan& channel, int side, std::uint32_t messages) {
    EndPlan& end = channel.ends[side];
    EndPlan& peer = channel.ends[1 - side];
    const bool needs_own =
        channel.mishap == Mishap::short_receive || channel.mishap == Mishap::receive_protection ||
        channel.mishap == Mishap::rnr_exhausted || channel.mishap == Mishap::reset_and_reconnect;
    end.shared_receives = !needs_own && one_in(3) && plan_.weather != Weather::perfect;
    end.receive_depth = 1 + static_cast<std::uint32_t>(below(16));
    end.receives_first = static_cast<std::uint32_t>(below(end.receive_depth + 1));
    const bool refuses = channel.mishap == Mishap::rnr_exhausted && side != channel.mishap_end;
    if (plan_.weather == Weather::perfect || refuses || one_in(3)) {
      // No message ever has to wait for a receive, so any retry count will do.
      end.receive_depth = end.receives_first = messages + 1;
      if (!end.shared_receives) peer.rnr_retry = static_cast<std::uint8_t>(below(8));
    }
    if (refuses) peer.rnr_retry = static_cast<std::uint8_t>(below(4));
  }

  void place_mishap(ChannelPlan& channel, EndPlan& culprit) {
    channel.mishap_op = static_cast<std::uint32_t>(below(culprit.ops.size()));
    Op& op = culprit.ops[channel.mishap_op];
    const auto become = [&](Work work, std::uint32_t size) {
      op = draw_op(channel, culprit, work, size);
    };
    const auto some = 1 + static_cast<std::uint32_t>(below(10'000));
    switch (channel.mishap) {
      case Mishap::unknown_key:
      case Mishap::out_of_bounds:
      case Mishap::wrong_region_access:
        become(one_in(2) ? Work::write : one_in(2) ? Work::read : Work::fetch_add, some);
        break;
      case Mishap::wrong_qp_access:
        become(Work::fetch_add, 8);
        // The peer's queue pair allows no atomics, so none may come before this one.
        for (std::uint32_t i = 0; i < culprit.ops.size(); ++i) {
          if (i != channel.mishap_op && is_atomic(culprit.ops[i].work)) {
            culprit.ops[i] = draw_op(channel, culprit, Work::write, some);
          }
        }
        break;
      case Mishap::short_receive:
      case Mishap::receive_protection:
      case Mishap::rnr_exhausted:
        become(Work::send, some);
        break;
      case Mishap::local_protection:
        become(channel.type == QpType::ud || one_in(2) ? Work::send : Work::write,
               channel.type == QpType::ud
                   ? 1 + static_cast<std::uint32_t>(below(bytes(channel.mtu)))
                   : some);
        break;
      case Mishap::misaligned_atomic:
        become(Work::fetch_add, 8);
        break;
      case Mishap::bad_bind:
        become(Work::bind_window, 0);
        break;
      case Mishap::bad_invalidate:
        become(Work::local_invalidate, 0);
        break;
      case Mishap::datagram_too_long:
        become(Work::send, bytes(channel.mtu) + 1);
        break;
      default:
        return;
    }
    if (op.work == Work::fetch_add) op.bytes = 8;
  }

  Plan plan_;
  Random random_;
};

constexpr std::array<const char*, 15> mishap_names = {"none",
                                                      "unknown_key",
                                                      "out_of_bounds",
                                                      "wrong_region_access",
                                                      "misaligned_atomic",
                                                      "wrong_qp_access",
                                                      "short_receive",
                                                      "receive_protection",
                                                      "local_protection",
                                                      "bad_bind",
                                                      "bad_invalidate",
                                                      "datagram_too_long",
                                                      "rnr_exhausted",
                                                      "moved_to_error",
                                                      "reset_and_reconnect"};

}  // namespace

Plan draw_plan(std::uint64_t seed) { return Drawer(seed).draw(); }

void repeat_selectively(Plan& plan) {
  Random random(plan.seed ^ 0x5E1E'C71E);
  transport::RecoverySettings& recovery = plan.recovery;
  recovery.kind = transport::Recovery::selective_repeat;
  recovery.window_packets = 1 + static_cast<std::uint32_t>(random.below(200));
  recovery.reordering_packets = 1 + static_cast<std::uint32_t>(random.below(4));
  recovery.few_packets = static_cast<std::uint32_t>(random.below(6));
  // Where nothing may be sent twice, the time-out is longer than a full window of every channel
  // takes to leave.
  const bool perfect = plan.weather == Weather::perfect;
  const auto least = Time::microseconds(perfect ? 67'000 : 50);
  recovery.timeout_low =
      least + Time::nanoseconds(static_cast<std::int64_t>(random.below(300'000)));
  recovery.timeout_high =
      recovery.timeout_low + Time::nanoseconds(static_cast<std::int64_t>(random.below(1'000'000)));
}

namespace {

// RFC 5040 has no atomics and no immediate data.
Work without_iwarps_gaps(Work work) {
  switch (work) {
    case Work::send_with_immediate:
      return Work::send;
    case Work::write_with_immediate:
    case Work::compare_swap:
    case Work::fetch_add:
      return Work::write;
    default:
      return work;
  }
}

// iWARP has no RNR NAK, so receives must be there before messages come. The mishaps that are kept
// are those whose outcome is known: how a peer's error affects a request that TCP has acknowledged
// is not promised, and late segments of one connection would fit its successor, whose numbers are
// the same.
void go_over_iwarp(ChannelPlan& channel) {
  channel.type = QpType::iwarp;
  const bool kept =
      channel.mishap == Mishap::local_protection || channel.mishap == Mishap::bad_bind ||
      channel.mishap == Mishap::bad_invalidate || channel.mishap == Mishap::moved_to_error;
  if (!kept) channel.mishap = Mishap::none;
  for (EndPlan& end : channel.ends) {
    for (Op& op : end.ops) op.work = without_iwarps_gaps(op.work);
  }
  for (int side = 0; side < 2; ++side) {
    const auto& ops = channel.ends[1 - side].ops;
    const auto messages =
        std::count_if(ops.begin(), ops.end(), [](const Op& op) { return takes_receive(op.work); });
    EndPlan& end = channel.ends[side];
    end.shared_receives = false;
    end.receive_depth = end.receives_first = static_cast<std::uint32_t>(messages) + 1;
  }
}

}  // namespace

void go_over_iwarp(Plan& plan) {
  Random random(plan.seed ^ 0x13A4'9000);
  transport::tcp::Settings& tcp = plan.tcp;
  tcp.mss_bytes = 100 + static_cast<std::uint32_t>(random.below(9'000));
  tcp.receive_buffer_bytes = (4 + static_cast<std::uint32_t>(random.below(200))) * tcp.mss_bytes;
  tcp.acknowledgement_delay =
      Time::microseconds(static_cast<std::int64_t>(random.below(2) * random.below(2'000)));
  tcp.initial_window_segments = 1 + static_cast<std::uint32_t>(random.below(20));
  tcp.restart_after_idle = random.below(2) == 0;
  if (plan.weather != Weather::perfect) {
    tcp.timeout_min = Time::microseconds(2'000 + static_cast<std::int64_t>(random.below(5'000)));
    tcp.timeout_initial = Time::milliseconds(10);
    tcp.timeout_max = Time::milliseconds(200);
    tcp.tail_loss_probe = random.below(2) == 0;
  } else {
    tcp.tail_loss_probe = false;  // a probe may go out while its segment waits at a port
  }
  // An end that only waits for an answer has nothing to retransmit, and would never learn that its
  // peer is gone.
  tcp.keep_alive = Time::milliseconds(50 + static_cast<std::int64_t>(random.below(200)));
  for (ChannelPlan& channel : plan.channels) {
    if (channel.type == QpType::rc) go_over_iwarp(channel);
  }
}

namespace {

void write_atomically(ChannelPlan& channel, Random& random) {
  for (int side = 0; side < 2; ++side) {
    EndPlan& end = channel.ends[side];
    if (end.read_depth == 0) continue;
    for (std::uint32_t i = 0; i < end.ops.size(); ++i) {
      Op& op = end.ops[i];
      const bool spoiled =
          channel.mishap != Mishap::none && channel.mishap_end == side && channel.mishap_op == i;
      if (op.work != Work::write || spoiled || random.below(3) != 0) continue;
      op.work = Work::atomic_write;
      op.bytes = 8;
      op.inlined = op.inlined && end.inline_bytes >= 8;
    }
  }
}

// A window of type 2 belongs to the queue pair that bound it. That is an initiator, and no request
// reaches one.
Work without_window(Work work) {
  switch (work) {
    case Work::send_with_invalidate:
      return Work::send;
    case Work::write_window:
      return Work::write;
    case Work::read_window:
      return Work::read;
    case Work::bind_window:
    case Work::local_invalidate:
      return Work::write_to_nowhere;
    default:
      return work;
  }
}

// Resetting a target does not flush the shared receive queue, and a receive that the target has
// taken is lost. The queue gives no credits, so over a perfect network the receives have to be
// there first.
void extend(ChannelPlan& channel, bool perfect) {
  channel.type = QpType::xrc_initiator;
  if (channel.mishap == Mishap::reset_and_reconnect) channel.mishap = Mishap::none;
  channel.window_cycles = 0;
  for (int side = 0; side < 2; ++side) {
    EndPlan& end = channel.ends[side];
    end.shared_receives = false;
    for (std::uint32_t i = 0; i < end.ops.size(); ++i) {
      const bool spoiled =
          channel.mishap != Mishap::none && channel.mishap_end == side && channel.mishap_op == i;
      if (!spoiled) end.ops[i].work = without_window(end.ops[i].work);
    }
    if (!perfect) continue;
    const auto& ops = channel.ends[1 - side].ops;
    const auto messages =
        std::count_if(ops.begin(), ops.end(), [](const Op& op) { return takes_receive(op.work); });
    end.receive_depth = end.receives_first = static_cast<std::uint32_t>(messages) + 1;
  }
}

}  // namespace

void extend(Plan& plan) {
  Random random(plan.seed ^ 0xE47E'4DED);
  for (ChannelPlan& channel : plan.channels) {
    if (channel.type != QpType::rc) continue;
    write_atomically(channel, random);
    if (random.below(2) == 0) extend(channel, plan.weather == Weather::perfect);
  }
}

std::string describe(const Plan& plan) {
  constexpr std::array weather = {"perfect", "rough", "stormy"};
  constexpr std::array types = {"RC", "UC", "UD", "SRD", "stream", "iWARP", "XRC"};
  const fabric::FaultSettings& faults = plan.network.faults;
  std::ostringstream out;
  out << "seed " << plan.seed << ": " << plan.nodes.size() << " nodes, "
      << weather[static_cast<std::size_t>(plan.weather)] << ", "
      << plan.network.link_bits_per_second / 1'000'000'000 << " Gb/s, "
      << (plan.ipv6 ? "IPv6" : "IPv4") << ", port MTU " << bytes(plan.port_mtu) << ", drop "
      << faults.drop << ", duplicate " << faults.duplicate << ", reorder " << faults.reorder
      << " by up to " << faults.reorder_delay.to_nanoseconds() << " ns, corrupt " << faults.corrupt
      << '\n';
  if (plan.cut_off) {
    out << "  node " << plan.cut_off_node << " is cut off at " << plan.cut_off_at.to_microseconds()
        << " us\n";
  }
  for (std::size_t i = 0; i < plan.channels.size(); ++i) {
    const ChannelPlan& channel = plan.channels[i];
    out << "  channel " << i << ": " << types[static_cast<std::size_t>(channel.type)] << " MTU "
        << bytes(channel.mtu) << ", nodes " << channel.ends[0].node << " and "
        << channel.ends[1].node << ", requests " << channel.ends[0].ops.size() << " and "
        << channel.ends[1].ops.size() << ", window cycles " << channel.window_cycles;
    if (channel.mishap != Mishap::none) {
      out << ", mishap " << mishap_names[static_cast<std::size_t>(channel.mishap)] << " at end "
          << channel.mishap_end << " request " << channel.mishap_op;
    }
    out << '\n';
  }
  return out.str();
}

}  // namespace tulle::scenarios
