#pragma once

// The router of a mixture of experts, which chooses the experts of each token. Here, they are drawn
// from a seed.

#include <cstdint>
#include <vector>

#include "base/random.h"

namespace tulle::workload {

struct RouterSettings {
  std::uint32_t experts = 0;
  std::uint32_t experts_of_token = 0;  // 1 to as many as the servers that a token may have hold
  std::uint32_t servers = 1;           // on which the experts are; divides them
  std::uint32_t servers_of_token = 0;  // on which those of one token may be; 0: any number
  // The expert at place n of popularity, from 1 on, is chosen in proportion to n^-skew (Zipf). 0
  // means that all are alike.
  double skew = 0;
  std::uint64_t seed = 1;
};

class Router {
 public:
  explicit Router(const RouterSettings& settings);

  // Returns the experts of a token, each once, in the order of their choice.
  const std::vector<std::uint32_t>& choose();

 private:
  std::uint64_t begin_of(std::uint32_t expert) const { return expert == 0 ? 0 : sums_[expert - 1]; }
  std::uint32_t expert_at(std::uint64_t value) const;
  bool can_be(std::uint32_t expert, bool any_server) const;
  std::uint32_t draw(bool any_server);
  std::uint32_t draw_among_all();
  std::uint32_t draw_on_allowed_servers();

  RouterSettings settings_;
  std::uint32_t experts_of_server_;
  Random random_;
  std::vector<std::uint64_t> sums_;  // by expert: the weights up to it
  std::vector<std::uint32_t> chosen_;
  std::vector<std::uint32_t> sorted_;  // room for the same, by number
  std::vector<bool> allowed_;          // by server
};

}  // namespace tulle::workload
