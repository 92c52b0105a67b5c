#include <fmt/format.h>

#include "study/scenario/build.h"
#include "study/scenario/prices.h"
#include "study/scenario/reading.h"
#include "study/scenario/scenario.h"

namespace tulle::scenario {

void build_prices(TableReader& root, const std::string& folder, Setup& setup) {
  const std::string name = root.text("prices", "");
  if (name.empty()) return;
  auto found = find_named_or_file(folder, "prices", name, "price list");
  if (!found) return root.wrong("prices", found.error().message);
  const std::string& path = *found;
  auto text = read_file(path);
  if (!text) return root.wrong("prices", text.error().message);
  auto prices = parse_prices(*text, path);
  if (!prices) return root.wrong("prices", prices.error().message);
  const bool is_infiniband = setup.network.link_layer == sim::LinkLayer::infiniband;
  auto price = price_of(setup.topology, is_infiniband ? prices->infiniband : prices->ethernet,
                        is_infiniband ? "infiniband" : "ethernet");
  if (!price) return root.wrong("prices", fmt::format("{}: {}", path, price.error().message));
  setup.price = *price;
}

}  // namespace tulle::scenario
