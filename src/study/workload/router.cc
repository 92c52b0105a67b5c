#include "study/workload/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace tulle::workload {

Router::Router(const RouterSettings& settings)
    : settings_(settings),
      experts_of_server_(settings.experts / settings.servers),
      random_(settings.seed) {
  // The popular experts are anywhere. Weights are whole numbers, so that two libraries' powers,
  // which may differ in the last bit, give the same ones.
  std::vector<std::uint32_t> places(settings.experts);
  std::iota(places.begin(), places.end(), 1u);
  for (std::uint32_t i = settings.experts; i > 1; --i) {
    std::swap(places[i - 1], places[random_.below(i)]);
  }
  std::uint64_t sum = 0;
  for (const std::uint32_t place : places) {
    const double weight = std::pow(static_cast<double>(place), -settings.skew);
    sum += std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(weight * 1e6)));
    sums_.push_back(sum);
  }
}

const std::vector<std::uint32_t>& Router::choose() {
  chosen_.clear();
  allowed_.assign(settings_.servers, settings_.servers_of_token == 0);
  std::uint32_t servers_left = settings_.servers_of_token;
  while (chosen_.size() < settings_.experts_of_token) {
    const bool any_server = settings_.servers_of_token == 0 || servers_left > 0;
    const std::uint32_t expert = draw(any_server);
    const std::uint32_t server = expert / experts_of_server_;
    if (!allowed_[server]) {
      allowed_[server] = true;
      --servers_left;
    }
    chosen_.push_back(expert);
  }
  return chosen_;
}

std::uint32_t Router::expert_at(std::uint64_t value) const {
  return static_cast<std::uint32_t>(std::ranges::upper_bound(sums_, value) - sums_.begin());
}

bool Router::can_be(std::uint32_t expert, bool any_server) const {
  return (any_server || allowed_[expert / experts_of_server_]) &&
         std::ranges::find(chosen_, expert) == chosen_.end();
}

// Draws until an expert can be chosen, or, if that takes long, draws among those that can.
std::uint32_t Router::draw(bool any_server) {
  constexpr int tries = 16;
  for (int i = 0; i < tries; ++i) {
    const std::uint32_t expert = expert_at(random_.below(sums_.back()));
    if (can_be(expert, any_server)) return expert;
  }
  return any_server ? draw_among_all() : draw_on_allowed_servers();
}

// Draws from the weights that are left when those of the chosen experts are taken out.
std::uint32_t Router::draw_among_all() {
  sorted_ = chosen_;
  std::ranges::sort(sorted_);
  std::uint64_t left = sums_.back();
  for (const std::uint32_t expert : sorted_) left -= sums_[expert] - begin_of(expert);
  std::uint64_t value = random_.below(left);
  for (const std::uint32_t expert : sorted_) {
    if (value < begin_of(expert)) break;
    value += sums_[expert] - begin_of(expert);
  }
  return expert_at(value);
}

std::uint32_t Router::draw_on_allowed_servers() {
  const auto weight = [&](std::uint32_t expert) -> std::uint64_t {
    return can_be(expert, false) ? sums_[expert] - begin_of(expert) : 0;
  };
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < sums_.size(); ++i) sum += weight(i);
  std::uint64_t value = random_.below(sum);
  std::uint32_t expert = 0;
  while (value >= weight(expert)) value -= weight(expert++);
  return expert;
}

}  // namespace tulle::workload
