#pragma once

// Topologies and routes for tests, whose construction must succeed.

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
