#include "study/workload/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

namespace tulle::workload {
namespace {

// A message of the network takes about as long as this besides Servers::message_delay: adapters,
// switches and cables.
constexpr double network_seconds = 4e-6;

// A way is what a collective asks of the servers.
struct Way {
  // These are steps one after the other, within servers and between them, and what each moves.
  double steps_inside = 0, steps_between = 0;
  double step_bytes = 0;
  double bytes = 0;  // that the busiest GPU sends, or the busiest adapters of a server together
};

double channels_of(const CollectiveSettings& settings) {
  return settings.channels == 0 ? settings.servers.adapters : settings.channels;
}

// In each channel all parts of the ring are on their way at once.
Way ring_way(const CollectiveSettings& settings) {
  const Servers& servers = settings.servers;
  const double ranks = servers.ranks(), whole = static_cast<double>(settings.bytes);
  const double steps = settings.collective == Collective::all_reduce ? 2 * (ranks - 1) : ranks - 1;
  const double between = servers.servers == 1 ? 0 : steps * servers.servers / ranks;
  if (settings.collective == Collective::broadcast) {
    return {steps - between, between, static_cast<double>(settings.chunk_bytes), whole};
  }
  return {steps - between, between, whole / ranks / channels_of(settings), whole * steps / ranks};
}

Way tree_way(const CollectiveSettings& settings) {
  const Servers& servers = settings.servers;
  const double levels = std::bit_width(servers.servers) - 1;
  const double whole = static_cast<double>(settings.bytes);
  const double part = whole / 2 / channels_of(settings);  // of one of a channel's trees
  return {2.0 * (servers.gpus - 1), 2 * levels,
          std::min(part, static_cast<double>(settings.chunk_bytes)), 2 * whole};
}

// The steps of one part take their time one after the other, and the bytes of all parts have to go
// by the same ports. The longer of the two decides.
double seconds_of(const CollectiveSettings& settings, const Way& way, Protocol protocol,
                  double adapter_rate) {
  const Servers servers = with_protocol(settings.servers, protocol);
  const double bits = 8 * static_cast<double>(wire_bytes(protocol, 15)) / 15;  // for a byte of data
  double inside = static_cast<double>(servers.scale_up_bits_per_second), together = inside;
  if (servers.channel_bits_per_second > 0) {
    inside = std::min(inside, static_cast<double>(servers.channel_bits_per_second));
    together = std::min(together, channels_of(settings) * inside);
  }
  if (servers.servers > 1) together = std::min(together, servers.adapters * adapter_rate);
  const double step = bits * way.step_bytes;
  const double steps = way.steps_inside * (servers.scale_up_latency.to_seconds() + step / inside) +
                       way.steps_between * (servers.message_delay.to_seconds() + network_seconds +
                                            step / adapter_rate);
  return std::max(steps, bits * way.bytes / together);
}

}  // namespace

// LL stores 4 bytes of data and 4 of a flag together, and LL128 120 and 8 (NCCL's
// src/include/device.h: union ncclLLFifoLine, NCCL_LL128_DATAELEMS of NCCL_LL128_LINEELEMS).
std::uint64_t wire_bytes(Protocol protocol, std::uint64_t bytes) {
  switch (protocol) {
    case Protocol::simple:
      return bytes;
    case Protocol::ll:
      return bytes * 2;
    case Protocol::ll128:
      return bytes + (bytes + 14) / 15;
  }
  return bytes;
}

Servers with_protocol(const Servers& servers, Protocol protocol) {
  Servers changed = servers;
  const auto& costs = protocol == Protocol::ll ? servers.ll : servers.ll128;
  if (protocol != Protocol::simple && costs) {
    changed.scale_up_latency = costs->scale_up_latency;
    changed.message_delay = costs->message_delay;
  }
  return changed;
}

Result<void> check_protocol(const CollectiveSettings& settings, Algorithm algorithm) {
  if (settings.protocol == Protocol::simple) return {};
  const std::string_view name = protocol_names[static_cast<std::size_t>(settings.protocol)];
  if (algorithm == Algorithm::in_network || algorithm == Algorithm::nvls) {
    return Error{fmt::format("{} goes by the protocol simple alone", name_of(algorithm))};
  }
  if (algorithm == Algorithm::direct && settings.protocol == Protocol::ll128) {
    return Error{"direct messages go by the protocols simple and ll"};
  }
  if (settings.servers.cores > 0) {
    return Error{fmt::format("{} is a protocol of GPUs, and these ranks are processes", name)};
  }
  return {};
}

Protocol usual_protocol(const CollectiveSettings& settings, std::int64_t adapter_bits_per_second) {
  const Algorithm algorithm = algorithm_of(settings);
  if (algorithm != Algorithm::ring && algorithm != Algorithm::tree) return Protocol::simple;
  const Way way = algorithm == Algorithm::ring ? ring_way(settings) : tree_way(settings);
  Protocol best = Protocol::simple;
  double least = std::numeric_limits<double>::infinity();
  for (const Protocol protocol : {Protocol::simple, Protocol::ll128, Protocol::ll}) {
    const double seconds =
        seconds_of(settings, way, protocol, static_cast<double>(adapter_bits_per_second));
    if (seconds < least) {
      least = seconds;
      best = protocol;
    }
  }
  return best;
}

}  // namespace tulle::workload
