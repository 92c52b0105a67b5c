#include "study/scenario/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/split.h"
#include "study/report/picture.h"
#include "study/workload/csv.h"

namespace tulle::scenario {
namespace {

using report::PictureSettings;
using Kind = PictureSettings::Kind;
using Scale = PictureSettings::Scale;

constexpr std::array<std::string_view, 5> kind_names = {"bars", "cdf", "by-size", "progress",
                                                        "over-time"};
constexpr std::array<std::string_view, 3> scale_names = {"automatic", "linear", "logarithmic"};
constexpr std::array<std::string_view, 5> show_defaults = {"fct_us.p99", "slowdown", "slowdown.p99",
                                                           "", "rate_gbps"};

std::vector<PictureSettings::Range> read_flows(TableReader& table) {
  const std::string text = table.text("flows", "");
  std::vector<PictureSettings::Range> found;
  for (const std::string_view part : split(text, ',')) {
    const std::string_view range = workload::trimmed(part);
    const std::size_t dash = std::min(range.find('-'), range.size());
    const auto first =
        workload::parse_number<std::uint32_t>(workload::trimmed(range.substr(0, dash)));
    const auto last =
        dash == range.size()
            ? first
            : workload::parse_number<std::uint32_t>(workload::trimmed(range.substr(dash + 1)));
    if (!first || !last || *first > *last) {
      table.wrong("flows", "must be flows, as flows.csv numbers them, such as \"0-3, 8\"");
      return {};
    }
    found.push_back({*first, *last});
  }
  return found;
}

void check_show(TableReader& table, const PictureSettings& picture) {
  const auto [name, kind] = report::name_and_kind(picture.show);
  const bool of_flows = report::is_flow_figure(name);
  switch (picture.kind) {
    case Kind::cdf:
      if (!of_flows || !kind.empty()) {
        table.wrong("show", fmt::format("with \"cdf\" must be {}", report::flow_figure_list));
      }
      return;
    case Kind::progress:
      if (table.has("show")) table.wrong("show", "goes with the other kinds of pictures");
      return;
    case Kind::over_time:
      if (picture.show != "rate_gbps" && picture.show != "queue_bytes") {
        table.wrong("show", "with \"over-time\" must be rate_gbps or queue_bytes");
      }
      return;
    case Kind::by_size:
    case Kind::bars:
      break;
  }
  if (of_flows && !report::is_statistic(kind)) {
    table.wrong("show", fmt::format("needs .min, .median, .p99 or .max after \"{}\"", name));
  } else if (!of_flows && picture.kind == Kind::by_size) {
    table.wrong("show", fmt::format("with \"by-size\" must be one of {}, with .min, .median, .p99 "
                                    "or .max",
                                    report::flow_figure_list));
  } else if (!of_flows && !picture.flows.empty()) {
    table.wrong("flows",
                fmt::format("needs a figure of flows: show = {}", report::flow_figure_list));
  }
}

}  // namespace

PictureSettings read_picture(TableReader table, const std::vector<Variant>& variants) {
  PictureSettings picture;
  picture.file = table.findings().file();
  picture.kind = table.choice("kind", kind_names, Kind::bars);
  picture.show = table.text("show", show_defaults[static_cast<std::size_t>(picture.kind)]);
  picture.label = table.text("label", "");
  picture.scale = table.choice("scale", scale_names, Scale::automatic);
  picture.variants = table.texts("variants", {});
  for (const std::string& name : picture.variants) {
    if (std::ranges::find(variants, name, &Variant::name) == variants.end()) {
      table.wrong("variants", fmt::format("there is no variant \"{}\"", name));
    }
  }
  picture.flows = read_flows(table);
  picture.link = table.texts("link", {});
  if (picture.kind != Kind::over_time) {
    if (table.has("link")) table.wrong("link", "goes with \"over-time\"");
  } else if (picture.link.size() != 2) {
    table.wrong("link", "is needed, two nodes: link = [\"switch 0\", \"host 1\"]");
  }
  check_show(table, picture);
  table.finish();
  return picture;
}

}  // namespace tulle::scenario
