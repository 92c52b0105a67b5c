#include "study/scenario/prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "study/report/quantity.h"
#include "study/scenario/reading.h"

namespace tulle::scenario {
namespace {

Piece read_piece(TableReader& table, std::string_view key) {
  constexpr double most = 1e9;
  const std::string watts = fmt::format("{}_watts", key);
  for (const std::string_view needed : {key, std::string_view(watts)}) {
    if (!table.has(needed)) table.wrong(needed, "is needed: an amount of one piece");
  }
  return {table.number(key, 0, 0, most), table.number(watts, 0, 0, most)};
}

PriceList read_list(TableReader& file, std::string_view key) {
  PriceList list;
  for (TableReader& table : file.tables(key)) {
    const std::int64_t rate = table.rate("rate", 0);
    if (rate == 0) table.wrong("rate", "is needed, such as \"400Gbps\"");
    if (list.contains(rate)) table.wrong("rate", "is there twice");
    list[rate] = {read_piece(table, "adapter"), read_piece(table, "switch_port"),
                  read_piece(table, "cable")};
    table.finish();
  }
  return list;
}

}  // namespace

Result<Prices> parse_prices(std::string_view text, std::string_view path) {
  auto parsed = parse_toml(text, std::string(path));
  if (!parsed) return parsed.error();
  Findings findings{std::string(path)};
  TableReader file({&*parsed}, "", 0, findings);
  file.text("currency", "");
  Prices prices;
  prices.infiniband = read_list(file, "infiniband");
  prices.ethernet = read_list(file, "ethernet");
  file.finish();
  if (findings.any()) return Error{findings.first()};
  return prices;
}

Result<Price> price_of(const fabric::Topology& topology, const PriceList& list,
                       std::string_view list_name) {
  Price price;
  const auto add = [&](const Piece& piece) {
    price.amount += piece.price;
    price.watts += piece.watts;
  };
  const auto missing = [&](std::int64_t rate) {
    return Error{fmt::format("there is no [[{}]] of rate {}, which {} of this network have",
                             list_name, report::rate_text(static_cast<double>(rate)),
                             topology.planes > 1 ? "links, or adapters by all planes," : "links")};
  };
  for (const fabric::Link& link : topology.links) {
    const std::uint32_t lower = std::min(link.a, link.b);
    if (topology.is_host(lower) && !topology.is_adapter(lower)) continue;  // inside of a switch
    const auto found = list.find(link.bits_per_second);
    if (found == list.end()) return missing(link.bits_per_second);
    for (const std::uint32_t end : {link.a, link.b}) {
      if (!topology.is_host(end)) {
        add(found->second.switch_port);
      } else if (end % topology.planes == 0) {
        const std::int64_t rate = link.bits_per_second * topology.planes;
        const auto whole = list.find(rate);
        if (whole == list.end()) return missing(rate);
        add(whole->second.adapter);
      }
    }
    add(found->second.cable);
  }
  return price;
}

}  // namespace tulle::scenario
