#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/split.h"
#include "study/report/quantity.h"
#include "study/scenario/build.h"
#include "study/scenario/profile.h"
#include "study/scenario/reading.h"
#include "study/workload/csv.h"

namespace tulle::scenario {

using fabric::PathChoice;
using port::FlowControl;

namespace {

enum class FabricKind : std::uint8_t { roce, infiniband, roce_v1 };
constexpr std::array<std::string_view, 3> fabric_names = {"roce", "infiniband", "roce-v1"};
constexpr std::array<std::string_view, 2> flow_control_names = {"none", "pfc"};
constexpr std::array<std::string_view, 4> path_names = {"flow", "flowlet", "packet", "adaptive"};
constexpr std::array<std::string_view, 5> control_names = {"none", "dcqcn", "window", "endpoint",
                                                           "infiniband"};
enum class Control { none, dcqcn, window, endpoint, infiniband };

constexpr std::int64_t bytes_max = 0xFFFF'FFFF;

std::uint32_t bytes(TableReader& table, std::string_view key, std::uint64_t otherwise) {
  const std::uint64_t found = table.bytes(key, otherwise);
  if (found <= bytes_max) return static_cast<std::uint32_t>(found);
  table.wrong(key, "must be less than 4 GiB");
  return 0;
}

std::int64_t fastest(const fabric::Topology& topology) {
  std::int64_t rate = 0;
  for (const fabric::Link& link : topology.links) rate = std::max(rate, link.bits_per_second);
  return rate;
}

void read_pfc(TableReader table, Setup& setup) {
  fabric::SwitchSettings& switches = setup.network.switches;
  const std::uint32_t frame = sim::longest_frame_bytes(setup.network);
  switches.alpha = table.number("alpha", 0.125, 1e-6, 1e6);
  switches.xoff_bytes = bytes(table, "xoff", 0);
  switches.xon_gap_bytes = bytes(table, "xon_gap", 2 * frame);
  const std::uint32_t needed = headroom_needed(setup.topology, setup.network);
  switches.headroom_bytes = bytes(table, "headroom", needed);
  const bool allow_loss = table.boolean("allow_loss", false);
  if (needed == bytes_max) {
    table.wrong("headroom",
                "these links are so long and fast that a port would need 4 GiB and more; take "
                "fabric.flow_control = \"none\"");
  } else if (switches.headroom_bytes < needed && !allow_loss) {
    table.wrong("headroom",
                fmt::format("{} is too small for these links: {} bytes can arrive after a port has "
                            "asked its neighbour to stop; give it so many, or take allow_loss = "
                            "true",
                            report::bytes_text(switches.headroom_bytes), needed));
  }
  // With shorter pauses, which are renewed at half their time, a port would send nothing but
  // renewals.
  constexpr std::uint32_t quanta_min = (port::pause_link_bytes * 8 + 255) / 256;
  switches.pause_quanta = static_cast<std::uint32_t>(
      table.integer("quanta", port::pause_quanta_max, quanta_min, port::pause_quanta_max));
  switches.watchdog = table.time("watchdog", Time::zero());
  if (switches.xoff_bytes != 0 && switches.xoff_bytes < frame) {
    table.wrong("xoff", fmt::format("must hold a frame, {} bytes", frame));
  }
  if (switches.xoff_bytes != 0 && switches.xon_gap_bytes >= switches.xoff_bytes) {
    table.wrong("xon_gap", "must be less than xoff");
  }
  table.finish();
}

void read_ecn(TableReader table, Setup& setup) {
  port::EcnSettings& ecn = setup.network.switches.ecn;
  ecn.enabled = table.is_given();
  if (!ecn.enabled) return;
  // Defaults of HPCC's simulator: Kmin 100 KB and Kmax 400 KB for each 25 Gb/s, Pmax 0.2.
  const std::int64_t quarters = std::max<std::int64_t>(fastest(setup.topology) / 25'000'000'000, 1);
  ecn.least_bytes = bytes(table, "kmin", static_cast<std::uint64_t>(100'000 * quarters));
  ecn.most_bytes = bytes(table, "kmax", static_cast<std::uint64_t>(400'000 * quarters));
  ecn.probability = table.number("pmax", 0.2, 0, 1);
  if (ecn.most_bytes < ecn.least_bytes) table.wrong("kmax", "must not be less than kmin");
  table.finish();
}

void read_credits(TableReader table, Setup& setup) {
  std::uint32_t& buffer = setup.network.switches.lane_buffer_bytes;
  buffer = bytes(table, "lane_buffer", buffer);
  const std::uint32_t frame = sim::longest_frame_bytes(setup.network);
  constexpr std::uint32_t most = 2'047 * port::credit_block_bytes;
  if (buffer < 2 * frame || buffer > most) {
    table.wrong("lane_buffer", fmt::format("must be from {} bytes (two frames) to {} (2,047 "
                                           "blocks, IBTA 7.9.4)",
                                           2 * frame, most));
  }
  table.finish();
}

// Reads each class's share of a link: how many of the longest frames it may send in a round. A
// class with 0 goes strictly first.
void read_shares(TableReader& table, Setup& setup) {
  const std::vector<std::int64_t> shares = table.integers("shares", {});
  if (shares.empty()) return;
  constexpr std::int64_t most = 100;
  const bool in_range =
      std::ranges::all_of(shares, [](std::int64_t share) { return share >= 0 && share <= most; });
  if (shares.size() != port::classes || !in_range) {
    return table.wrong("shares", fmt::format("must be {} whole numbers, by class: 1 to {}, or 0 "
                                             "for a class that goes before all others",
                                             port::classes, most));
  }
  const std::uint32_t frame =
      sim::longest_frame_bytes(setup.network) + sim::overhead(setup.network).gap_bytes;
  std::ranges::transform(
      shares, setup.network.switches.quantum_bytes.begin(),
      [&](std::int64_t share) { return static_cast<std::uint32_t>(share) * frame; });
}

// Reads the lane of each service level, by its place in the list. A service level beyond the list
// has no lane.
void read_lanes(TableReader& table, Setup& setup) {
  const std::vector<std::int64_t> lanes = table.integers("sl_to_vl", {});
  if (lanes.empty()) return;
  const bool in_range = std::ranges::all_of(lanes, [](std::int64_t lane) {
    return (lane >= 0 && lane < port::classes) || lane == port::vl15;
  });
  if (lanes.size() > port::service_levels || !in_range) {
    return table.wrong("sl_to_vl",
                       fmt::format("must be up to {} lanes, by service level: 0 to {}, "
                                   "or {} for none",
                                   port::service_levels, port::classes - 1, port::vl15));
  }
  port::LaneRow row;
  row.fill(port::vl15);
  std::ranges::transform(lanes, row.begin(),
                         [](std::int64_t lane) { return static_cast<std::uint8_t>(lane); });
  setup.network.lanes.hosts = row;
  if (row != port::default_lanes) {
    setup.network.lanes.switches.assign(setup.topology.switches, port::SlToVl(row));
  }
}

// Reads a table in the form of OpenSM's options: "0:192,1:64", lanes and their weights.
std::vector<port::VlWeight> read_weights(TableReader& table, std::string_view key,
                                         std::string_view otherwise) {
  const std::string text = table.text(key, otherwise);
  std::vector<port::VlWeight> weights;
  for (const std::string_view entry : split(text, ',')) {
    const std::size_t colon = std::min(entry.find(':'), entry.size());
    const auto lane = workload::parse_number<std::uint8_t>(entry.substr(0, colon));
    const auto weight =
        workload::parse_number<std::uint8_t>(entry.substr(std::min(colon + 1, entry.size())));
    const bool in_range = lane && *lane < port::classes && weight;
    if (!in_range || weights.size() == port::VlArbitration::entries_max) {
      table.wrong(key, fmt::format("must be up to {} entries LANE:WEIGHT such as \"0:192,1:64\", "
                                   "lanes 0 to {} and weights 0 to 255",
                                   port::VlArbitration::entries_max, port::classes - 1));
      return {};
    }
    weights.push_back({*lane, *weight});
  }
  return weights;
}

void read_arbitration(TableReader table, Setup& setup) {
  const auto high = read_weights(table, "high", "0:4");
  const auto low = read_weights(table, "low", "1:4,2:4,3:4,4:4,5:4,6:4,7:4");
  const auto limit = static_cast<std::uint8_t>(
      table.integer("high_limit", 0, 0, port::VlArbitration::limit_unbounded));
  port::VlArbitration& arbitration = setup.network.switches.arbitration;
  arbitration = port::VlArbitration(high, low, limit);
  for (std::uint32_t level = 0; level < setup.player.service_levels; ++level) {
    const std::uint8_t lane = setup.network.lanes.hosts[level];
    if (lane == port::vl15 || (arbitration.lanes() >> lane & 1) != 0) continue;
    table.wrong("low", fmt::format("lane {} of service level {} has no weight, here nor in high, "
                                   "and would never send",
                                   lane, level));
  }
  table.finish();
}

struct SwitchProfile {
  Time latency;
  bool cut_through = false;
  std::uint64_t buffer_bytes = 32'000'000;
  std::uint32_t lane_buffer_bytes = fabric::SwitchSettings{}.lane_buffer_bytes;
  bool aggregation = false;
  Time aggregation_latency = Time::nanoseconds(200);
  std::int64_t aggregation_bits_per_second = 0;
};

// Reads the keys about switches that reduce.
void read_aggregation(TableReader& table, SwitchProfile& found) {
  found.aggregation = table.boolean("aggregation", found.aggregation);
  found.aggregation_latency = table.time("aggregation_latency", found.aggregation_latency);
  found.aggregation_bits_per_second =
      table.rate("aggregation_rate", found.aggregation_bits_per_second);
}

SwitchProfile read_switch_profile(TableReader& table, const std::string& folder) {
  SwitchProfile found;
  read_profile(table, folder, "switches", [&](TableReader& profile) {
    found.latency = profile.time("latency", found.latency);
    found.cut_through = profile.boolean("cut_through", found.cut_through);
    found.buffer_bytes = profile.bytes("buffer", found.buffer_bytes);
    found.lane_buffer_bytes = bytes(profile, "lane_buffer", found.lane_buffer_bytes);
    read_aggregation(profile, found);
  });
  return found;
}

// Checks that a switch can hold a frame. Otherwise it would lose every frame, or have all of them
// in its headroom.
void check_buffer(TableReader& table, const Setup& setup) {
  const fabric::SwitchSettings& switches = setup.network.switches;
  const std::uint32_t frame = sim::longest_frame_bytes(setup.network);
  const double share = switches.alpha * static_cast<double>(switches.buffer_bytes);
  const std::string what = fmt::format("must hold a frame, {} bytes", frame);
  if (switches.buffer_bytes < frame) return table.wrong("buffer", what);
  if (switches.flow_control != FlowControl::none) return;
  if (switches.lossy_queue_bytes != 0) {
    if (switches.lossy_queue_bytes < frame) table.wrong("queue", what);
  } else if (share < 2.0 * frame) {
    table.wrong("alpha",
                fmt::format("must leave a queue room for two frames, {} bytes", 2 * frame));
  }
}

void read_fabric(TableReader& table, const std::string& folder, Setup& setup) {
  sim::NetworkSettings& network = setup.network;
  fabric::SwitchSettings& switches = network.switches;
  const auto kind = table.choice("kind", fabric_names, FabricKind::roce);
  const bool infiniband = kind == FabricKind::infiniband;
  network.is_roce_v1 = kind == FabricKind::roce_v1;
  network.link_layer = infiniband ? sim::LinkLayer::infiniband : sim::LinkLayer::ethernet;
  switches.path_choice = table.choice("path", path_names, PathChoice::flow);
  switches.flowlet_gap = table.time("flowlet_gap", Time::microseconds(50));
  SwitchProfile profile = read_switch_profile(table, folder);
  read_aggregation(table, profile);
  setup.switches_reduce = profile.aggregation;
  setup.aggregation.latency = profile.aggregation_latency;
  setup.aggregation.bits_per_second = profile.aggregation_bits_per_second;
  network.switch_latency = table.time("switch_latency", profile.latency);
  network.fec_delay = table.time("fec_delay", Time::zero());
  network.bit_error_rate = table.number("bit_error_rate", 0, 0, 0.001);
  network.lose_every = static_cast<std::uint32_t>(table.integer("lose_every", 0, 0, 1 << 30));
  network.cut_through = table.boolean("cut_through", profile.cut_through);
  switches.buffer_bytes = table.bytes("buffer", profile.buffer_bytes);
  switches.lane_buffer_bytes = profile.lane_buffer_bytes;
  if (infiniband) {
    switches.flow_control = FlowControl::credits;
    read_credits(table.table("credits"), setup);
    read_lanes(table, setup);
    read_enforcement(table, setup);
    read_arbitration(table.table("arbitration"), setup);
    read_marking(table.table("congestion"), setup);
    switches.head_lifetime = table.time("head_of_queue_lifetime", Time::zero());
    switches.leaf_head_lifetime = table.time("leaf_head_of_queue_lifetime", switches.head_lifetime);
    switches.stall_count = static_cast<std::uint32_t>(table.integer("vl_stall_count", 0, 0, 7));
  } else {
    switches.flow_control = table.choice("flow_control", flow_control_names, FlowControl::pfc);
    switches.lossy_queue_bytes = bytes(table, "queue", 0);
    read_shares(table, setup);
    TableReader pfc = table.table("pfc");
    if (switches.flow_control == FlowControl::pfc) {
      read_pfc(pfc, setup);
    } else {
      switches.alpha = table.number("alpha", 1, 1e-6, 1e6);
    }
    check_buffer(table, setup);
    TableReader ecn = table.table("ecn");
    if (network.is_roce_v1 && ecn.is_given()) {
      table.wrong("ecn", "marks IP headers, which RoCE v1 has not: fabric.kind = \"roce\"");
    } else {
      read_ecn(ecn, setup);
    }
  }
  table.finish();
}

// The delays that a profile gives, parts of which the scenario may change.
struct Delays {
  Time post, send, receive, completion;
};

Time sum(TableReader& table, std::span<const std::string_view> parts) {
  Time total;
  for (const std::string_view part : parts) total += table.time(part, Time::zero());
  return total;
}

Delays read_delays(TableReader& table) {
  // The adapter makes acknowledgements by itself, so that they wait for no doorbell and fetch
  // nothing.
  constexpr std::array<std::string_view, 3> post = {"doorbell", "request_fetch", "payload_fetch"};
  constexpr std::array<std::string_view, 1> adapter = {"adapter"};
  constexpr std::array<std::string_view, 3> completion = {"payload_write", "completion_write",
                                                          "poll"};
  TableReader send_table = table.table("send");
  TableReader receive_table = table.table("receive");
  TableReader completion_table = table.table("completion");
  const Delays delays{sum(send_table, post), sum(send_table, adapter), sum(receive_table, adapter),
                      sum(completion_table, completion)};
  send_table.finish();
  receive_table.finish();
  completion_table.finish();
  return delays;
}

void read_host(TableReader& table, const std::string& folder, Setup& setup) {
  sim::HostSettings& host = setup.network.host;
  Delays profile;
  read_profile(table, folder, "hosts", [&](TableReader& file) {
    profile = read_delays(file);
    TableReader kernel = file.table("kernel");
    read_kernel(kernel, host.stack);
  });
  TableReader kernel = table.table("kernel");
  read_kernel(kernel, host.stack);
  setup.player.post_delay = table.time("post_delay", profile.post);
  host.send_delay = table.time("send_delay", profile.send);
  host.receive_delay = table.time("receive_delay", profile.receive);
  setup.player.completion_delay = table.time("completion_delay", profile.completion);
  host.watchdog = table.time("watchdog", Time::zero());
  const std::int64_t mtu = table.integer("mtu", 4'096, 256, 4'096);
  if ((mtu & (mtu - 1)) != 0) table.wrong("mtu", "must be 256, 512, 1024, 2048 or 4096");
  const std::int64_t train = table.integer("train", 0, 0, train_packets_max);
  setup.train_is_automatic = train == 0;
  host.train_packets = std::max(static_cast<std::uint32_t>(train), 1u);
  host.mtu_bytes = static_cast<std::uint32_t>(mtu) * host.train_packets;
  setup.player.path_mtu = static_cast<verbs::Mtu>(host.mtu_bytes);
  host.congestion.packets_per_ack_request =
      static_cast<std::uint32_t>(table.integer("packets_per_ack", 1, 1, 1 << 20));
  setup.player.service_levels =
      static_cast<std::uint8_t>(table.integer("service_levels", 1, 1, port::classes));
  setup.player.timeout = static_cast<std::uint8_t>(table.integer("timeout", 14, 0, 31));
  setup.player.retry_count = static_cast<std::uint8_t>(table.integer("retry_count", 7, 0, 7));
}

void read_dcqcn(TableReader& table, Setup& setup) {
  transport::congestion::Settings& congestion = setup.network.host.congestion;
  transport::congestion::DcqcnSettings& dcqcn = congestion.dcqcn;
  dcqcn.enabled = true;
  dcqcn.g = table.number("g", dcqcn.g, 0, 1);
  dcqcn.alpha_interval = table.time("alpha_interval", dcqcn.alpha_interval);
  dcqcn.decrease_interval = table.time("decrease_interval", dcqcn.decrease_interval);
  dcqcn.increase_interval = table.time("increase_interval", dcqcn.increase_interval);
  dcqcn.increase_bytes = table.bytes("increase_bytes", dcqcn.increase_bytes);
  dcqcn.fast_recovery_rounds = static_cast<std::uint32_t>(
      table.integer("fast_recovery_rounds", dcqcn.fast_recovery_rounds, 0, 1'000));
  const std::int64_t link = host_bits_per_second(setup.topology);
  dcqcn.additive_bits_per_second = table.rate("additive", dcqcn.additive_bits_per_second, link);
  dcqcn.hyper_bits_per_second = table.rate("hyper", dcqcn.hyper_bits_per_second, link);
  dcqcn.least_bits_per_second = table.rate("least", dcqcn.least_bits_per_second, link);
  dcqcn.clamp_target = table.boolean("clamp_target", dcqcn.clamp_target);
  congestion.notification_interval = table.time("notification_interval", Time::microseconds(50));
  for (const auto& [key, interval] : {std::pair{"alpha_interval", dcqcn.alpha_interval},
                                      {"increase_interval", dcqcn.increase_interval}}) {
    if (interval <= Time::zero()) table.wrong(key, "must be more than zero");
  }
  setup.player.traffic_class = port::ecn_capable;
  if (setup.network.host.stack.cores > 0) {
    table.wrong("control", "dcqcn is an adapter's; hosts have a kernel's stack here (host.kernel)");
  }
  if (!setup.network.switches.ecn.enabled) {
    table.wrong("control", "dcqcn needs switches that mark packets: a table [fabric.ecn]");
  }
}

// Reads the settings of endpoint control, in which the switches' ports to hosts tell sources how
// much they may send.
void read_endpoints(TableReader& table, Setup& setup) {
  fabric::EndpointSettings& endpoints = setup.network.endpoints;
  endpoints.enabled = true;
  setup.network.host.congestion.endpoint_limits = true;
  endpoints.queue_bytes = bytes(table, "queue", endpoints.queue_bytes);
  endpoints.window = table.time("window", endpoints.window);
  endpoints.target = table.number("target", endpoints.target, 0.1, 1);
  if (endpoints.window <= Time::zero()) table.wrong("window", "must be more than zero");
  if (setup.network.host.plays_tcp) {
    table.wrong("control", "\"endpoint\" is what RDMA's queue pairs obey; with TCP take \"none\"");
  }
}

void read_congestion(TableReader& table, Setup& setup) {
  transport::congestion::Settings& congestion = setup.network.host.congestion;
  congestion.window.enabled = false;
  const Control control = table.choice("control", control_names, Control::none);
  if (control == Control::dcqcn && setup.network.is_roce_v1) {
    return table.wrong("control",
                       "\"dcqcn\" needs marks in IP headers, which RoCE v1 has not: "
                       "fabric.kind = \"roce\"");
  }
  if (control != Control::infiniband && setup.network.switches.congestion.enabled) {
    table.wrong("control",
                "fabric.congestion has switches mark packets, and nobody minds: take control = "
                "\"infiniband\", or leave the table away");
  }
  switch (control) {
    case Control::dcqcn:
      read_dcqcn(table, setup);
      break;
    case Control::window:
      congestion.window.enabled = true;
      congestion.window.initial_packets =
          static_cast<std::uint32_t>(table.integer("initial_packets", 64, 1, 1 << 20));
      congestion.window.max_packets =
          static_cast<std::uint32_t>(table.integer("max_packets", 1'024, 1, 1 << 20));
      break;
    case Control::endpoint:
      read_endpoints(table, setup);
      break;
    case Control::infiniband:
      read_infiniband_control(table, setup);
      break;
    case Control::none:
      break;
  }
  table.finish();
}

}  // namespace

std::uint32_t headroom_needed(const fabric::Topology& topology,
                              const sim::NetworkSettings& settings) {
  const std::uint32_t frame = sim::longest_frame_bytes(settings);
  const std::uint32_t gap = sim::overhead(settings).gap_bytes;
  __extension__ using Wide = __int128;  // a second at 100 Gb/s is 10^23 bits times picoseconds
  const sim::HostSettings& host = settings.host;
  Wide most = 0;
  for (const fabric::Link& link : topology.links) {
    // The neighbour acts on a control message as late as on a frame, and then this switch acts late
    // too.
    const bool of_host = topology.is_host(link.a) || topology.is_host(link.b);
    const Time neighbour = of_host ? host.receive_delay + host.send_delay : settings.switch_latency;
    const Wide late = Wide{neighbour.ps} + settings.switch_latency.ps;
    const Wide on_the_way =
        (2 * Wide{(link.delay + settings.fec_delay).ps} + late) * link.bits_per_second;
    most = std::max(most, on_the_way / 8'000'000'000'000 + 1);
  }
  const Wide bytes = most + port::pause_link_bytes + 3 * std::int64_t{frame + gap};
  return static_cast<std::uint32_t>(std::min<Wide>(bytes, bytes_max));
}

void build_network(TableReader fabric, TableReader host, TableReader congestion,
                   const std::string& folder, Setup& setup) {
  read_host(host, folder, setup);
  read_transport(host, setup);
  read_fabric(fabric, folder, setup);
  check_transport(host, setup);
  read_recovery(host, setup);
  host.finish();
  read_congestion(congestion, setup);
}

}  // namespace tulle::scenario
