#pragma once

// The prices and the power of a network's pieces, as in the file that a scenario's key `prices`
// names.

#include <cstdint>
#include <map>
#include <string_view>

#include "base/result.h"
#include "fabric/topology.h"
#include "study/scenario/setup.h"

namespace tulle::scenario {

struct Piece {
  double price = 0;  // in the file's currency
  double watts = 0;
};

// Links of one rate need these pieces.
struct Pieces {
  Piece adapter, switch_port, cable;
};

using PriceList = std::map<std::int64_t, Pieces>;  // by a link's rate in bits a second

struct Prices {
  PriceList infiniband, ethernet;
};

// Reads the file's text. The error is one line that begins with the path.
Result<Prices> parse_prices(std::string_view text, std::string_view path);

// Adds up adapters, ports of switches and cables. An adapter has the rate of its ports in all
// planes. The error names the rate that has no price, and the list that lacks it.
Result<Price> price_of(const fabric::Topology& topology, const PriceList& list,
                       std::string_view list_name);

}  // namespace tulle::scenario
