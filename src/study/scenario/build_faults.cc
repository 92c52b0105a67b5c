// Reads the list [[fault]], and [recovery]: the faults of a fabric, and how it finds routes around
// them.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "study/scenario/build.h"

namespace tulle::scenario {
namespace {

constexpr std::array<std::string_view, 6> kind_names = {"link-down", "link-flap",  "bit-errors",
                                                        "slow-host", "stuck-host", "switch-reboot"};
enum class FaultKind { link_down, link_flap, bit_errors, slow_host, stuck_host, switch_reboot };

constexpr std::int64_t times_max = 1'000;

class FaultReader {
 public:
  FaultReader(TableReader& table, Setup& setup)
      : table_(table), topology_(setup.topology), faults_(setup.network.faults) {}

  void read() {
    const FaultKind kind = table_.choice("kind", kind_names, FaultKind::link_down);
    from_ = table_.time("at", Time::zero(), last_moment);
    switch (kind) {
      case FaultKind::link_down:
        read_link_down();
        break;
      case FaultKind::link_flap:
        read_link_flap();
        break;
      case FaultKind::bit_errors:
        read_bit_errors();
        break;
      case FaultKind::slow_host:
      case FaultKind::stuck_host:
        read_host(kind == FaultKind::stuck_host);
        break;
      case FaultKind::switch_reboot:
        read_switch_reboot();
        break;
    }
    table_.finish();
  }

 private:
  void read_link_down() {
    const Time until = read_until();
    for (const std::uint32_t link : read_link()) faults_.outages.push_back({link, from_, until});
  }

  void read_link_flap() {
    const Time down = read_length("down");
    const Time period = read_length("period");
    const std::int64_t times = table_.integer("times", 1, 1, times_max);
    if (down >= period) table_.wrong("period", "must be longer than down");
    if (from_ + period * times > last_moment) {
      table_.wrong("times", "are so many that virtual time ends before");
      return;
    }
    const std::vector<std::uint32_t> links = read_link();
    for (std::int64_t i = 0; i < times; ++i) {
      const Time from = from_ + period * i;
      for (const std::uint32_t link : links) faults_.outages.push_back({link, from, from + down});
    }
  }

  void read_bit_errors() {
    const Time until = read_until();
    const double rate = table_.number("rate", 0, 0, 0.001);
    if (!table_.has("rate")) table_.wrong("rate", "is needed, the share of bits that are wrong");
    for (const std::uint32_t link : read_link()) {
      refuse_twice(faults_.bit_errors, &sim::BitErrors::link, link, until, "link");
      faults_.bit_errors.push_back({link, rate, from_, until});
    }
  }

  void read_host(bool is_stuck) {
    const Time until = read_until();
    const auto host = read_node("host", true, "a host such as \"host 0\"");
    sim::SlowHost slow;
    if (!is_stuck) {
      slow.bits_per_second = table_.rate("rate", 0);
      if (!table_.has("rate")) table_.wrong("rate", "is needed, what the adapter takes in");
    }
    const std::uint64_t buffer = table_.bytes("buffer", slow.buffer_bytes);
    if (buffer < frame_bytes_max || buffer > 0xFFFF'FFFF) {
      table_.wrong("buffer", fmt::format("must be from {} bytes to 4 GB", frame_bytes_max));
    }
    if (!host) return;
    refuse_twice(faults_.slow_hosts, &sim::SlowHost::host, *host, until, "host");
    slow.host = *host;
    slow.from = from_;
    slow.until = until;
    slow.buffer_bytes = static_cast<std::uint32_t>(buffer);
    faults_.slow_hosts.push_back(slow);
  }

  void read_switch_reboot() {
    const Time until = read_until();
    const auto node = read_node("switch", false, "a switch");
    if (!node) return;
    for (std::uint32_t link = 0; link < topology_.links.size(); ++link) {
      const fabric::Link& of = topology_.links[link];
      if (of.a == *node || of.b == *node) faults_.outages.push_back({link, from_, until});
    }
  }

  Time read_until() {
    const Time until = table_.time("until", Time::never(), last_moment);
    if (until <= from_) table_.wrong("until", "must be later than at");
    return until;
  }

  Time read_length(std::string_view key) {
    const Time length = table_.time(key, Time::zero());
    if (length <= Time::zero()) table_.wrong(key, "is needed, a time of more than zero");
    return length;
  }

  // Returns all links between the two nodes, or only the parallel one that is named.
  std::vector<std::uint32_t> read_link() {
    const std::vector<std::string> names = table_.texts("link", {});
    const std::int64_t parallel = table_.integer("parallel", -1, 0, fabric::max_switch_ports);
    if (names.size() != 2) {
      table_.wrong("link", "is needed, the two ends, such as [\"leaf 0\", \"spine 1\"]");
      return {};
    }
    const auto a = find("link", names[0]);
    const auto b = find("link", names[1]);
    if (!a || !b) return {};
    std::vector<std::uint32_t> found;
    for (std::uint32_t i = 0; i < topology_.links.size(); ++i) {
      const fabric::Link& link = topology_.links[i];
      if (std::minmax(link.a, link.b) == std::minmax(*a, *b)) found.push_back(i);
    }
    if (found.empty()) {
      table_.wrong("link", fmt::format("there is none from {} to {}", names[0], names[1]));
      return {};
    }
    if (parallel < 0) return found;
    if (static_cast<std::size_t>(parallel) < found.size()) {
      return {found[static_cast<std::size_t>(parallel)]};
    }
    table_.wrong("parallel", fmt::format("there are {} such links, from 0", found.size()));
    return {};
  }

  std::optional<std::uint32_t> read_node(std::string_view key, bool is_host,
                                         std::string_view what) {
    if (!table_.has(key)) {
      table_.wrong(key, fmt::format("is needed, the name of {}", what));
      return {};
    }
    const auto node = find(key, table_.text(key, ""));
    if (!node || topology_.is_host(*node) == is_host) return node;
    table_.wrong(key, fmt::format("must be the name of {}", what));
    return {};
  }

  std::optional<std::uint32_t> find(std::string_view key, const std::string& name) {
    const auto node = topology_.find(name);
    if (!node) {
      table_.wrong(key,
                   fmt::format("there is no \"{}\" here; nodes are called \"{}\" to \"{}\"", name,
                               topology_.name(0), topology_.name(topology_.nodes() - 1)));
    }
    return node;
  }

  // Refuses two faults of one kind at the same place and time, since it would not be clear which
  // holds.
  template <typename Fault>
  void refuse_twice(const std::vector<Fault>& others, std::uint32_t Fault::*place,
                    std::uint32_t here, Time until, std::string_view key) {
    const bool overlaps = std::ranges::any_of(others, [&](const Fault& other) {
      return other.*place == here && other.from < until && from_ < other.until;
    });
    if (overlaps) table_.wrong(key, "has such a fault at this time already");
  }

  static constexpr std::uint64_t frame_bytes_max = 4'178;

  TableReader& table_;
  const fabric::Topology& topology_;
  sim::Faults& faults_;
  Time from_;
};

void read_route_recovery(TableReader table, Setup& setup) {
  fabric::RecoverySettings& recovery = setup.recovery;
  recovery.subnet_manager = setup.network.link_layer == sim::LinkLayer::infiniband;
  recovery.lmc = setup.network.lmc;
  if (recovery.subnet_manager) {
    recovery.traps = table.boolean("traps", recovery.traps);
    recovery.trap_delay = table.time("trap_delay", recovery.trap_delay);
    recovery.sweep_interval = table.time("sweep_interval", recovery.sweep_interval);
    recovery.computing = table.time("computing", recovery.computing);
    // With this limit, the tables of even the largest subnet are written before virtual time ends.
    recovery.programming = table.time("programming", recovery.programming, Time::milliseconds(1));
    if (recovery.sweep_interval <= Time::zero()) {
      table.wrong("sweep_interval", "must be more than zero");
    }
  } else {
    recovery.detection = table.time("detection", recovery.detection);
    recovery.routing = table.time("routing", recovery.routing);
  }
  table.finish();
}

// Refuses a host that is stuck for good, since it holds back others for good, unless stop_at ends
// the run.
void check_end(TableReader& root, const Setup& setup) {
  if (setup.stop_at < last_moment) return;
  for (const sim::SlowHost& slow : setup.network.faults.slow_hosts) {
    if (slow.bits_per_second > 0 || !slow.until.is_never()) continue;
    return root.wrong("fault",
                      "a host is stuck for ever, and the run may never end: set its "
                      "until, or the scenario's stop_at");
  }
}

}  // namespace

void build_faults(TableReader& root, Setup& setup) {
  for (TableReader& table : root.tables("fault")) FaultReader(table, setup).read();
  read_route_recovery(root.table("recovery"), setup);
  if (setup.network.non_minimal.is_used() && !setup.network.faults.outages.empty()) {
    root.wrong("fault",
               "takes links down, for which there is no way around with routing.non_minimal: take "
               "\"none\"");
  }
  if (!root.findings().any()) check_end(root, setup);
}

}  // namespace tulle::scenario
