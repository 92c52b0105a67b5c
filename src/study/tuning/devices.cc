#include "study/tuning/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace tulle::tuning {
namespace {

using json_t = nlohmann::ordered_json;

bool is_ethernet(const scenario::Setup& setup) {
  return setup.network.link_layer == sim::LinkLayer::ethernet && !setup.network.is_roce_v1;
}

// SONiC has whole per cent, and 0 would never mark below the upper threshold.
double per_cent_of(const port::EcnSettings& ecn) {
  return std::clamp(std::round(ecn.probability * 100), 1.0, 100.0);
}

// SONiC's dynamic_th is the logarithm of alpha to base 2, from -8 to 8.
double dynamic_threshold(const fabric::SwitchSettings& switches) {
  return std::clamp(std::round(std::log2(switches.alpha)), -8.0, 8.0);
}

json_t wred_profile(const port::EcnSettings& ecn) {
  json_t profile;
  profile["ecn"] = "ecn_all";
  for (const char* color : {"green", "yellow", "red"}) {
    profile[fmt::format("wred_{}_enable", color)] = "true";
    profile[fmt::format("{}_min_threshold", color)] = fmt::format("{}", ecn.least_bytes);
    profile[fmt::format("{}_max_threshold", color)] = fmt::format("{}", ecn.most_bytes);
    profile[fmt::format("{}_drop_probability", color)] = fmt::format("{:.0f}", per_cent_of(ecn));
  }
  return profile;
}

// No memory is reserved for a priority group besides its headroom, which SONiC calls xoff.
json_t buffer_profile(const fabric::SwitchSettings& switches) {
  json_t profile;
  profile["pool"] = "ingress_lossless_pool";
  profile["size"] = "0";
  profile["xon"] = "0";
  profile["xon_offset"] = fmt::format("{}", switches.xon_gap_bytes);
  profile["xoff"] = fmt::format("{}", switches.headroom_bytes);
  if (switches.xoff_bytes > 0) {
    profile["static_th"] = fmt::format("{}", switches.xoff_bytes);
  } else {
    profile["dynamic_th"] = fmt::format("{:.0f}", dynamic_threshold(switches));
  }
  return profile;
}

// The lines of a script that set an adapter's parameters.
class Script {
 public:
  // Sets a parameter that has whole values from `least` to `most`.
  void set(std::string_view file, double value, double least, double most) {
    const double held = std::clamp(std::round(value), least, std::max(most, least));
    write(file, held, held, value);
  }
  // Sets a parameter that means the value `means`, where `value` was simulated.
  void write(std::string_view file, double held, double means, double value) {
    const bool is_near = std::abs(means - value) <= 0.02 * std::abs(value);
    text_ += fmt::format("put {} {:.0f}{}\n", file, held,
                         is_near ? "" : fmt::format("  # {:.6g} was simulated", value));
  }
  void say(std::string_view comment) { text_ += fmt::format("# {}\n", comment); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::int64_t fastest_host_link(const fabric::Topology& topology) {
  std::int64_t most = 0;
  for (const fabric::Link& link : topology.links) {
    const bool is_of_host = topology.is_host(link.a) || topology.is_host(link.b);
    if (is_of_host) most = std::max(most, link.bits_per_second);
  }
  return most;
}

double microseconds(Time time) { return static_cast<double>(time.ps) * 1e-6; }
double megabits(std::int64_t bits_per_second) {
  return static_cast<double>(bits_per_second) * 1e-6;
}

}  // namespace

std::string sonic_config(const scenario::Setup& setup) {
  const fabric::SwitchSettings& switches = setup.network.switches;
  json_t config;
  if (is_ethernet(setup) && switches.ecn.enabled) {
    config["WRED_PROFILE"]["TULLE_ECN"] = wred_profile(switches.ecn);
  }
  if (is_ethernet(setup) && switches.flow_control == port::FlowControl::pfc) {
    config["BUFFER_PROFILE"]["TULLE_LOSSLESS"] = buffer_profile(switches);
  }
  return config.empty() ? "" : config.dump(2) + "\n";
}

std::vector<std::string> sonic_differences(const scenario::Setup& setup) {
  const fabric::SwitchSettings& switches = setup.network.switches;
  std::vector<std::string> differences;
  const auto differ = [](double a, double b) { return std::abs(a - b) > 0.02 * std::abs(b); };
  const double marks = per_cent_of(switches.ecn) / 100;
  if (is_ethernet(setup) && switches.ecn.enabled && differ(marks, switches.ecn.probability)) {
    differences.push_back(fmt::format("its drop probability is {:.0f} %, and {:.4g} was simulated",
                                      marks * 100, switches.ecn.probability));
  }
  const double alpha = std::exp2(dynamic_threshold(switches));
  const bool has_alpha =
      switches.flow_control == port::FlowControl::pfc && switches.xoff_bytes == 0;
  if (is_ethernet(setup) && has_alpha && differ(alpha, switches.alpha)) {
    differences.push_back(fmt::format(
        "its dynamic_th is {:.0f}, which is an alpha of {:.4g}, and {:.4g} was simulated",
        dynamic_threshold(switches), alpha, switches.alpha));
  }
  return differences;
}

std::string adapter_script(const scenario::Setup& setup) {
  const transport::congestion::Settings& congestion = setup.network.host.congestion;
  const transport::congestion::DcqcnSettings& dcqcn = congestion.dcqcn;
  if (!is_ethernet(setup) || !dcqcn.enabled) return "";
  const double line_mbps = megabits(fastest_host_link(setup.topology));
  constexpr double whole_most = 4'294'967'295;
  Script script;
  script.say("alpha = alpha * G / 1024 every dce_tcp_rtt microseconds, G = 1024 * (1 - g)");
  const double held_g = std::clamp(std::round(1024 * (1 - dcqcn.g)), 0.0, 1023.0);
  script.write("roce_rp/dce_tcp_g", held_g, 1 - held_g / 1024, dcqcn.g);
  script.set("roce_rp/dce_tcp_rtt", microseconds(dcqcn.alpha_interval), 1, 131'071);
  script.set("roce_rp/rate_reduce_monitor_period", microseconds(dcqcn.decrease_interval), 1,
             whole_most);
  script.set("roce_rp/rpg_time_reset", microseconds(dcqcn.increase_interval), 1, 131'071);
  // The field has 15 bits. More bytes than it holds are nearer to none than to its most.
  constexpr std::uint64_t byte_reset_max = 32'767;
  if (dcqcn.increase_bytes > byte_reset_max) {
    script.say(
        fmt::format("no increase by bytes: {} were simulated, and the adapter has {} at most",
                    dcqcn.increase_bytes, byte_reset_max));
    script.set("roce_rp/rpg_byte_reset", 0, 0, byte_reset_max);
  } else {
    script.set("roce_rp/rpg_byte_reset", static_cast<double>(dcqcn.increase_bytes), 0,
               byte_reset_max);
  }
  script.set("roce_rp/rpg_threshold", dcqcn.fast_recovery_rounds, 1, 31);
  script.set("roce_rp/rpg_ai_rate", megabits(dcqcn.additive_bits_per_second), 1, line_mbps);
  script.set("roce_rp/rpg_hai_rate", megabits(dcqcn.hyper_bits_per_second), 1, line_mbps);
  script.set("roce_rp/rpg_min_rate", megabits(dcqcn.least_bits_per_second), 1, line_mbps);
  script.set("roce_rp/clamp_tgt_rate", dcqcn.clamp_target ? 1 : 0, 0, 1);
  script.set("roce_np/min_time_between_cnps", microseconds(congestion.notification_interval), 0,
             4'095);
  const bool has_pfc = setup.network.switches.flow_control == port::FlowControl::pfc;
  return fmt::format(
      "#!/bin/sh\n"
      "# Gives an NVIDIA adapter (ConnectX-4 or later, MLNX_OFED) what was simulated.\n"
      "# Usage: sh adapter.sh INTERFACE [PRIORITY]\n"
      "# Other parameters (rpg_gd, rpg_min_dec_fac, initial_alpha_value, "
      "clamp_tgt_rate_after_time_inc)\n"
      "# stay as they are: the simulation has what their defaults mean.\n"
      "set -eu\n"
      "interface=${{1:?name the interface, such as eth0}}\n"
      "priority=${{2:-3}}\n"
      "ecn=/sys/class/net/$interface/ecn\n"
      "put() {{ echo \"$2\" > \"$ecn/$1\"; }}\n\n"
      "mlnx_qos -i \"$interface\" --trust dscp\n"
      "pfc=\n"
      "for each in 0 1 2 3 4 5 6 7; do\n"
      "  pfc=$pfc${{pfc:+,}}$([ \"$each\" = \"$priority\" ] && echo {} || echo 0)\n"
      "done\n"
      "mlnx_qos -i \"$interface\" --pfc \"$pfc\"\n"
      "put \"roce_np/enable/$priority\" 1\n"
      "put \"roce_rp/enable/$priority\" 1\n"
      "{}",
      has_pfc ? 1 : 0, script.text());
}

}  // namespace tulle::tuning
