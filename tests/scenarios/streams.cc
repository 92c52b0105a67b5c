#include "tests/scenarios/streams.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "rdma/optional/transports.h"
#include "sim/cluster.h"
#include "tests/scenarios/broken.h"

namespace tulle::scenarios {
namespace {

using verbs::Access;
using verbs::AccessFlags;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::VerbsStatus;

constexpr std::uint64_t receive_bit = 1ull << 63;
constexpr std::byte untouched{0xA5};
constexpr std::uint32_t guard_bytes = 16;

void ok(VerbsStatus status, const char* what) {
  promise(status == VerbsStatus::ok, std::string(what) + " was refused");
}

// One end of a connection. It writes from one block of memory and reads into another.
struct StreamEnd {
  std::uint32_t node = 0;
  StreamEnd* peer = nullptr;
  transport::QueuePair* qp = nullptr;
  std::vector<std::byte> sent;  // the whole stream
  std::vector<std::byte> got;   // bytes that were read, with a guard after each read's place
  verbs::MemoryRegion* sent_region = nullptr;
  verbs::MemoryRegion* got_region = nullptr;
  std::vector<std::uint32_t> writes;
  std::vector<std::uint32_t> reads;
  std::size_t writes_posted = 0, writes_done = 0;
  std::size_t reads_posted = 0, reads_done = 0;
  std::uint64_t written = 0;     // bytes of posted writes
  std::uint64_t read_place = 0;  // place in `got` of the next read to be posted
  std::uint64_t done_place = 0;
  std::uint64_t checked = 0;  // bytes of the peer's stream
  std::uint32_t depth = 1;
};

class StreamWorld {
 public:
  StreamWorld(std::uint64_t seed, bool damage, const sim::Clocks& clocks)
      : random_(seed * 0x9E37'79B9 + 0x57), cluster_(draw_network(damage, clocks)) {
    const std::uint64_t nodes = 2 + random_.below(3);
    const transport::tcp::Settings tcp = draw_tcp();
    for (std::uint32_t i = 0; i < nodes; ++i) {
      device::Configuration configuration;
      configuration.transports = &transport::all_transports();
      configuration.seed = seed * 31 + i;
      configuration.first_qp = QpNumber{0x100 + 0x1000 * i};
      configuration.qp_count = 0x1000;
      configuration.tcp = std::make_shared<const transport::tcp::Settings>(tcp);
      const Gid gid = gid_of(i);
      cluster_.add(configuration, {&gid, 1});
      VerbsStatus status{};
      pds_.push_back(adapter(i).objects().create_pd(status));
      cqs_.push_back(adapter(i).objects().create_cq(1'024, nullptr, status));
    }
    const std::uint64_t channels = 1 + random_.below(4);
    for (std::uint64_t i = 0; i < channels; ++i) build_channel(static_cast<std::uint32_t>(nodes));
  }

  Outcome run() {
    for (std::uint32_t i = 0; i < ends_.size(); ++i) pump(i);
    std::uint64_t steps = 0;
    for (;;) {
      const sim::Happening happening = cluster_.step();
      if (happening.kind == sim::Happening::Kind::nothing) break;
      promise(++steps < 20'000'000, "it does not come to an end");
      if (happening.kind == sim::Happening::Kind::alarm) {
        pump(static_cast<std::uint32_t>(happening.token));
      }
      poll(happening.node.value);
    }
    Outcome outcome;
    for (const auto& end : ends_) {
      promise(end->writes_done == end->writes.size(), "a write never completed");
      promise(end->reads_done == end->reads.size(), "a read never completed");
      promise(end->checked == end->peer->sent.size(), "not all that was written was read");
    }
    outcome.digest = cluster_.digest();
    outcome.events = cluster_.events();
    outcome.completions = completions_;
    for (std::uint32_t i = 0; i < cluster_.size(); ++i) {
      outcome.retransmitted += adapter(i).counters().transport.retransmitted_packets;
    }
    return outcome;
  }

 private:
  device::Adapter& adapter(std::uint32_t node) { return cluster_.adapter(sim::NodeNumber(node)); }
  static Gid gid_of(std::uint32_t node) { return Gid::from_ipv4(0x0A00'0001 + node); }
  bool one_in(std::uint64_t n) { return random_.below(n) == 0; }
  double up_to(double most) { return most * static_cast<double>(random_.below(1'001)) / 1'000; }

  sim::Settings draw_network(bool damage, const sim::Clocks& clocks) {
    sim::Settings network;
    network.clocks = clocks;
    network.seed = random_.next();
    network.carriage = damage || one_in(3) ? sim::Carriage::packets : sim::Carriage::datagrams;
    constexpr std::array<std::int64_t, 4> rates = {1, 10, 100, 400};
    network.link_bits_per_second = rates[random_.below(rates.size())] * 1'000'000'000;
    network.link_delay = Time::nanoseconds(100 + static_cast<std::int64_t>(random_.below(100'000)));
    const std::uint64_t weather = random_.below(4);  // 0 is perfect
    if (weather > 0) {
      const double much = weather == 3 ? 4 : 1;
      network.faults.drop = up_to(0.05 * much);
      network.faults.duplicate = up_to(0.05 * much);
      network.faults.reorder = up_to(0.1 * much);
      // Nothing covers the payload of packets.
      if (network.carriage == sim::Carriage::datagrams) network.faults.corrupt = up_to(0.02 * much);
    }
    if (damage) network.faults.corrupt = 0.1;
    network.faults.reorder_delay =
        Time::nanoseconds(100 + static_cast<std::int64_t>(random_.below(600'000)));
    network.faults_end = Time::seconds(2);
    return network;
  }

  transport::tcp::Settings draw_tcp() {
    transport::tcp::Settings tcp;
    constexpr std::array<std::uint32_t, 3> sizes = {536, 1'460, 8'960};
    tcp.mss_bytes = sizes[random_.below(sizes.size())];
    tcp.receive_buffer_bytes =
        static_cast<std::uint32_t>(2 * tcp.mss_bytes + random_.below(300'000));
    tcp.send_buffer_bytes = static_cast<std::uint32_t>(2 * tcp.mss_bytes + random_.below(300'000));
    tcp.congestion_control = one_in(2) ? transport::tcp::CongestionControl::dctcp
                                       : transport::tcp::CongestionControl::cubic;
    tcp.ecn = one_in(2);
    tcp.tail_loss_probe = !one_in(4);
    tcp.quick_acknowledgements = one_in(2) ? 16 : 0;
    tcp.timeout_min = Time::milliseconds(one_in(2) ? 200 : 1);
    return tcp;
  }

  std::vector<std::uint32_t> draw_cuts(std::uint64_t bytes) {
    std::vector<std::uint32_t> cuts;
    while (bytes > 0) {
      const std::uint64_t most = one_in(3) ? 200 : one_in(3) ? 100'000 : 10'000;
      const std::uint64_t cut = std::min(bytes, one_in(20) ? 0 : 1 + random_.below(most));
      cuts.push_back(static_cast<std::uint32_t>(cut));
      bytes -= cut;
    }
    return cuts;
  }

  void build_channel(std::uint32_t nodes) {
    auto first = std::make_unique<StreamEnd>(), second = std::make_unique<StreamEnd>();
    first->node = static_cast<std::uint32_t>(random_.below(nodes));
    second->node = static_cast<std::uint32_t>((first->node + 1 + random_.below(nodes - 1)) % nodes);
    first->peer = second.get();
    second->peer = first.get();
    for (StreamEnd* end : {first.get(), second.get()}) {
      end->sent.resize(random_.below(one_in(3) ? 400'000 : 20'000));
      for (std::byte& byte : end->sent) byte = static_cast<std::byte>(random_.next() >> 24);
      end->writes = draw_cuts(end->sent.size());
      end->depth = static_cast<std::uint32_t>(1 + random_.below(12));
    }
    for (StreamEnd* end : {first.get(), second.get()}) build_end(*end);
    for (StreamEnd* end : {first.get(), second.get()}) connect(*end);
    ends_.push_back(std::move(first));
    ends_.push_back(std::move(second));
  }

  void build_end(StreamEnd& end) {
    end.reads = draw_cuts(end.peer->sent.size());
    end.got.assign(end.peer->sent.size() + guard_bytes * end.reads.size() + 1, untouched);
    VerbsStatus status{};
    const auto access = AccessFlags(Access::local_write);
    end.sent.push_back(untouched);  // so that there is something to register
    end.sent_region = adapter(end.node).objects().register_memory(
        *pds_[end.node], end.sent.data(), end.sent.size(), 0, access, status);
    ok(status, "memory");
    end.sent.pop_back();
    end.got_region = adapter(end.node).objects().register_memory(*pds_[end.node], end.got.data(),
                                                                 end.got.size(), 0, access, status);
    ok(status, "memory");
    transport::QueuePairInit init;
    init.type = verbs::QpType::stream;
    init.pd = pds_[end.node];
    init.send_cq = init.receive_cq = cqs_[end.node];
    init.send_work_requests = init.receive_work_requests = end.depth;
    init.send_sges = init.receive_sges = 2;
    init.signal_all = true;
    init.cookie = &end;
    end.qp = adapter(end.node).create_qp(init, status);
    ok(status, "a stream");
  }

  void connect(StreamEnd& end) {
    transport::QueuePairAttributes to;
    const auto step = [&](QpState state, QpAttributeMask mask) {
      to.state = state;
      ok(adapter(end.node).modify(*end.qp, to, QpAttributeMask(QpAttribute::state) | mask),
         "a stream's next state");
    };
    step(QpState::init,
         QpAttributeMask(QpAttribute::pkey_index) | QpAttribute::port | QpAttribute::access_flags);
    to.destination_qp = end.peer->qp->number;
    to.address.destination = gid_of(end.peer->node);
    step(QpState::rtr, QpAttributeMask(QpAttribute::address_vector) | QpAttribute::path_mtu |
                           QpAttribute::destination_qp | QpAttribute::rq_psn |
                           QpAttribute::max_dest_rd_atomic | QpAttribute::min_rnr_timer);
    step(QpState::rts, QpAttributeMask(QpAttribute::timeout) | QpAttribute::retry_count |
                           QpAttribute::rnr_retry | QpAttribute::sq_psn |
                           QpAttribute::max_rd_atomic);
  }

  // Posts some of the remaining work, and sets an alarm for the rest.
  void pump(std::uint32_t number) {
    StreamEnd& end = *ends_[number];
    while (end.writes_posted < end.writes.size() &&
           end.writes_posted - end.writes_done < end.depth && !one_in(4)) {
      post_write(end);
    }
    while (end.reads_posted < end.reads.size() && end.reads_posted - end.reads_done < end.depth &&
           !one_in(4)) {
      post_read(end);
    }
    cluster_.attend(sim::NodeNumber(end.node));
    poll(end.node);
    if (end.writes_posted == end.writes.size() && end.reads_posted == end.reads.size()) return;
    const auto later = static_cast<std::int64_t>(1 + random_.below(one_in(10) ? 50'000 : 500));
    cluster_.alarm(cluster_.now() + Time::microseconds(later), sim::NodeNumber(end.node), number);
  }

  void post_write(StreamEnd& end) {
    const std::uint32_t bytes = end.writes[end.writes_posted];
    const auto cut = static_cast<std::uint32_t>(random_.below(bytes + 1));
    const std::array sges = {verbs::Sge{end.written, cut, end.sent_region->lkey()},
                             verbs::Sge{end.written + cut, bytes - cut, end.sent_region->lkey()}};
    verbs::SendRequest request;
    request.wr_id = end.writes_posted;
    request.sges = sges;
    // The counts change before the call, since an empty write may complete in it.
    ++end.writes_posted;
    end.written += bytes;
    ok(adapter(end.node).post_send(*end.qp, request), "a write");
  }

  void post_read(StreamEnd& end) {
    const std::uint32_t bytes = end.reads[end.reads_posted];
    const verbs::Sge sge{end.read_place, bytes, end.got_region->lkey()};
    verbs::ReceiveRequest request;
    request.wr_id = receive_bit | end.reads_posted;
    request.sges = {&sge, 1};
    ++end.reads_posted;
    end.read_place += bytes + guard_bytes;
    ok(adapter(end.node).post_receive(*end.qp, request), "a read");
  }

  void poll(std::uint32_t node) {
    std::array<verbs::Completion, 8> found;
    for (std::uint32_t count; (count = cqs_[node]->poll(found)) > 0;) {
      for (std::uint32_t i = 0; i < count; ++i) completed(found[i]);
    }
  }

  void completed(const verbs::Completion& completion) {
    ++completions_;
    StreamEnd& end = *static_cast<StreamEnd*>(completion.qp_cookie);
    promise(completion.status == verbs::CompletionStatus::success, "a request failed");
    if ((completion.wr_id & receive_bit) == 0) {
      promise(completion.wr_id == end.writes_done && end.writes_done < end.writes_posted,
              "writes completed out of order");
      ++end.writes_done;
      return;
    }
    promise(
        (completion.wr_id & ~receive_bit) == end.reads_done && end.reads_done < end.reads_posted,
        "reads completed out of order");
    const std::uint32_t bytes = end.reads[end.reads_done++];
    promise(completion.byte_length == bytes, "a read completed with another length");
    const auto place = end.got.begin() + static_cast<std::ptrdiff_t>(end.done_place);
    const auto expected = end.peer->sent.begin() + static_cast<std::ptrdiff_t>(end.checked);
    promise(end.checked + bytes <= end.peer->written, "more was read than was written");
    promise(std::equal(place, place + bytes, expected), "another byte was read than was written");
    promise(std::all_of(place + bytes, place + bytes + guard_bytes,
                        [](std::byte byte) { return byte == untouched; }),
            "memory behind a read was written");
    end.checked += bytes;
    end.done_place += bytes + guard_bytes;
  }

  Random random_;
  sim::Cluster cluster_;
  std::vector<verbs::ProtectionDomain*> pds_;
  std::vector<verbs::CompletionQueue*> cqs_;
  std::vector<std::unique_ptr<StreamEnd>> ends_;
  std::uint64_t completions_ = 0;
};

}  // namespace

Outcome play_streams(std::uint64_t seed, bool damage, const sim::Clocks& clocks) {
  return StreamWorld(seed, damage, clocks).run();
}

}  // namespace tulle::scenarios
