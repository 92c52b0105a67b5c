#include <fmt/format.h>

#include <array>

#include "scenario/build.h"

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

void read_tcp_table(TableReader table, Setup& setup) {
  transport::tcp::Settings& tcp = setup.network.host.tcp;
  const std::int64_t mtu = table.integer("mtu", 9'000, 576, 9'216);
  tcp.mss_bytes = static_cast<std::uint32_t>(mtu) - header_bytes;
  tcp.congestion_control = table.choice("control", tcp_control_names, tcp.congestion_control);
  tcp.ecn = table.boolean("ecn", tcp.ecn);
  tcp.dctcp_gain = table.number("dctcp_gain", tcp.dctcp_gain, 0, 1);
  tcp.initial_window_segments =
      static_cast<std::uint32_t>(table.integer("initial_window", 10, 1, 1'000));
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

void read_transport(TableReader& host, Setup& setup) {
  const verbs::QpType transport =
      transports[host.choice<std::size_t>("transport", transport_names, 0)];
  setup.player.transport = transport;
  TableReader table = host.table("tcp");
  TableReader srd = host.table("srd");
  if (transport == verbs::QpType::srd) read_srd(srd, setup);
  const auto* row = transport::TransportTable::standard().find(transport);
  if (row->found_by != transport::FoundBy::tcp_ports) return;
  setup.network.host.plays_tcp = true;
  setup.network.host.plays_iwarp = transport == verbs::QpType::iwarp;
  read_tcp_table(table, setup);
}

void check_transport(TableReader& host, Setup& setup) {
  const bool ethernet = setup.network.link_layer == sim::LinkLayer::ethernet;
  if (setup.network.host.stack.cores > 0 && !ethernet) {
    host.wrong("kernel", "is for hosts on Ethernet: fabric.kind = \"roce\"");
  }
  if (setup.player.transport == verbs::QpType::srd && !ethernet) {
    host.wrong("transport", "\"srd\" takes its paths by UDP source ports: fabric.kind = \"roce\"");
  }
  if (!setup.network.host.plays_tcp) return;
  if (setup.network.link_layer != sim::LinkLayer::ethernet) {
    const std::string_view name = setup.network.host.plays_iwarp ? "iwarp" : "tcp";
    host.wrong("transport",
               fmt::format("\"{}\" is over Ethernet here: fabric.kind = \"roce\"", name));
  }
  const bool dctcp = setup.network.host.tcp.congestion_control == CongestionControl::dctcp;
  if (dctcp && !setup.network.switches.ecn.enabled) {
    host.wrong("transport",
               "tcp.control = \"dctcp\" needs switches that mark packets: a table [fabric.ecn]");
  }
}

}  // namespace tulle::scenario
