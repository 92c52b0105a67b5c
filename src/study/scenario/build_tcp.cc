#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "rdma/optional/transports.h"
#include "study/scenario/build.h"

namespace tulle::scenario {

using transport::tcp::CongestionControl;

namespace {

constexpr std::array<std::string_view, 4> transport_names = {"rc", "tcp", "srd", "iwarp"};
constexpr std::array<verbs::QpType, 4> transports = {verbs::QpType::rc, verbs::QpType::stream,
                                                     verbs::QpType::srd, verbs::QpType::iwarp};
constexpr std::array<std::string_view, 2> tcp_control_names = {"cubic", "dctcp"};
constexpr std::uint32_t header_bytes = wire::ipv4_header_bytes + wire::tcp_header_bytes;

std::uint32_t buffer_bytes(TableReader& table, std::string_view key, std::uint32_t otherwise,
                           std::uint32_t mss_bytes) {
  // Sequence numbers of 32 bits have an order only within half their space; RFC 7323 §2.3 allows 1
  // GiB.
  const std::uint64_t bytes = table.bytes(key, otherwise);
  if (bytes < 2ull * mss_bytes || bytes > 1u << 30) {
    table.wrong(key, fmt::format("must be from two segments, {} bytes, to 1 GiB", 2 * mss_bytes));
    return otherwise;
  }
  return static_cast<std::uint32_t>(bytes);
}

// Makes a train of TCP's segments. It has no more of them than a frame of the simulation measures.
std::uint32_t take_train(sim::HostSettings& host) {
  constexpr std::uint32_t payload_bytes_max = 62'720;  // seven segments of an MTU of 9,000
  host.train_packets =
      std::max(std::min(host.train_packets, payload_bytes_max / host.tcp.mss_bytes), 1u);
  host.tcp.mss_bytes *= host.train_packets;
  return host.train_packets;
}

void read_tcp_table(TableReader table, Setup& setup) {
  transport::tcp::Settings& tcp = setup.network.host.tcp;
  const std::int64_t mtu = table.integer("mtu", 9'000, 576, 9'216);
  tcp.mss_bytes = static_cast<std::uint32_t>(mtu) - header_bytes;
  const std::uint32_t train = take_train(setup.network.host);
  tcp.congestion_control = table.choice("control", tcp_control_names, tcp.congestion_control);
  tcp.ecn = table.boolean("ecn", tcp.ecn);
  tcp.dctcp_gain = table.number("dctcp_gain", tcp.dctcp_gain, 0, 1);
  tcp.initial_window_segments =
      static_cast<std::uint32_t>(table.integer("initial_window", 10, 1, 1'000));
  tcp.initial_window_segments = std::max(tcp.initial_window_segments / train, 1u);
  tcp.receive_buffer_bytes =
      buffer_bytes(table, "receive_buffer", tcp.receive_buffer_bytes, tcp.mss_bytes);
  tcp.send_buffer_bytes = buffer_bytes(table, "send_buffer", tcp.send_buffer_bytes, tcp.mss_bytes);
  tcp.timeout_min = table.time("timeout_min", tcp.timeout_min);
  tcp.timeout_initial = table.time("timeout_initial", tcp.timeout_initial);
  // Adapters that offload TCP acknowledge at once: Chelsio's driver for Linux has the delay off by
  // default (2020, "RDMA/iw_cxgb4: disable delayed ack by default").
  const bool offloaded = setup.network.host.stack.cores == 0;
  if (setup.network.host.plays_iwarp && offloaded) tcp.acknowledgement_delay = Time::zero();
  tcp.acknowledgement_delay = table.time("acknowledgement_delay", tcp.acknowledgement_delay);
  // Every second segment is acknowledged at once (RFC 5681, 4.2), and a train has two or more.
  if (train > 1) tcp.acknowledgement_delay = Time::zero();
  tcp.quick_acknowledgements =
      static_cast<std::uint32_t>(table.integer("quick_acknowledgements", 16, 0, 1 << 20));
  tcp.tail_loss_probe = table.boolean("tail_loss_probe", tcp.tail_loss_probe);
  tcp.restart_after_idle = table.boolean("restart_after_idle", tcp.restart_after_idle);
  tcp.retries_max = static_cast<std::uint32_t>(table.integer("retries", 15, 1, 1'000));
  for (const auto& [key, time] :
       {std::pair{"timeout_min", tcp.timeout_min}, {"timeout_initial", tcp.timeout_initial}}) {
    if (time <= Time::zero()) table.wrong(key, "must be more than zero");
  }
  table.finish();
}

}  // namespace

namespace {

// A kernel's work for each packet is done for all packets of a train at once.
void work_by_trains(sim::HostSettings& host) {
  device::HostStackSettings& stack = host.stack;
  const std::uint32_t train = host.train_packets;
  if (train == 1 || stack.cores == 0) return;
  for (Time* each : {&stack.receive_frame, &stack.transmit_frame, &stack.acknowledgement}) {
    *each = Time{each->ps * train};
  }
  stack.interrupt_frames = (stack.interrupt_frames + train - 1) / train;
  stack.receive_ring_frames = std::max(stack.receive_ring_frames / train, 1u);
  const std::uint32_t frame = host.plays_tcp ? host.tcp.mss_bytes : host.mtu_bytes;
  if (stack.chunk_bytes > frame) stack.chunk_bytes -= stack.chunk_bytes % frame;
}

}  // namespace

void read_transport(TableReader& host, Setup& setup) {
  const verbs::QpType transport =
      transports[host.choice<std::size_t>("transport", transport_names, 0)];
  setup.player.transport = transport;
  TableReader table = host.table("tcp");
  TableReader srd = host.table("srd");
  if (transport == verbs::QpType::srd) read_srd(srd, setup);
  const auto* row = transport::all_transports().find(transport);
  if (row->found_by == transport::FoundBy::tcp_ports) {
    setup.network.host.plays_tcp = true;
    setup.network.host.plays_iwarp = transport == verbs::QpType::iwarp;
    read_tcp_table(table, setup);
  }
  work_by_trains(setup.network.host);
}

void check_transport(TableReader& host, Setup& setup) {
  const bool has_ip =
      setup.network.link_layer == sim::LinkLayer::ethernet && !setup.network.is_roce_v1;
  if (setup.network.host.stack.cores > 0 && !has_ip) {
    host.wrong("kernel", "is for hosts on Ethernet: fabric.kind = \"roce\"");
  }
  if (setup.network.host.stack.cores > 0 && setup.topology.planes > 1) {
    host.wrong("kernel", "goes with one plane (topology.planes): a host's cores serve one port");
  }
  if (setup.player.transport == verbs::QpType::srd && !has_ip) {
    host.wrong("transport", "\"srd\" takes its paths by UDP source ports: fabric.kind = \"roce\"");
  }
  if (!setup.network.host.plays_tcp) return;
  if (!has_ip) {
    const std::string_view name = setup.network.host.plays_iwarp ? "iwarp" : "tcp";
    host.wrong("transport",
               fmt::format("\"{}\" is over IP and Ethernet here: fabric.kind = \"roce\"", name));
  }
  const bool dctcp = setup.network.host.tcp.congestion_control == CongestionControl::dctcp;
  if (dctcp && !setup.network.switches.ecn.enabled) {
    host.wrong("transport",
               "tcp.control = \"dctcp\" needs switches that mark packets: a table [fabric.ecn]");
  }
}

}  // namespace tulle::scenario
