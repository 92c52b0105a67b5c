#pragma once

// For tests: topologies and routes that must come to be.

#include <gtest/gtest.h>

#include <utility>

#include "fabric/routing.h"
#include "fabric/topology.h"

namespace tulle::fabric {

inline Topology built(Result<Topology> result) {
  EXPECT_TRUE(result) << result.error().message;
  return result ? std::move(result.value()) : Topology{};
}

inline Routes routes_of(const Topology& t, RoutingKind kind) {
  auto routes = compute_routes(t, {.kind = kind});
  EXPECT_TRUE(routes) << routes.error().message;
  return routes ? std::move(*routes) : Routes{};
}

}  // namespace tulle::fabric
