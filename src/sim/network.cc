#include "sim/network.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/kernel_driver.h"

namespace tulle::sim {

void Network::alarm(Time at, std::uint32_t host, std::uint32_t token) {
  if (Part* acting = Synchronizer::acting(); acting != nullptr)
    return acting->alarm(at, host, token);
  if (owns(host)) part_of(host).alarm(at, host, token);
}

void Network::request(std::uint32_t host, std::uint32_t token, std::uint32_t note,
                      Application& application) {
  Part* acting = Synchronizer::acting();
  if (acting == nullptr || (owns(host) && acting == &part_of(host))) {
    application.meet_request(host, token, note);
  } else {
    acting->crossings().request(host, token, note);
  }
}

bool Network::play(Time until, Application& application) {
  if (synchronizer_ != nullptr) return synchronizer_->play(until, application);
  return parts_.front()->play_alone(until, application);
}

// --- what has happened ---

Time Network::now() const {
  if (synchronizer_ == nullptr) return parts_.front()->now();
  Time latest;
  for (const auto& part : parts_) latest = std::max(latest, part->latest());
  return latest;
}

bool Network::has_begun() const {
  return std::ranges::any_of(parts_, [](const auto& part) { return part->has_begun(); });
}

Time Network::next_event() const {
  return synchronizer_ != nullptr ? synchronizer_->next_event() : parts_.front()->earliest_event();
}

template <typename Value>
std::uint64_t Network::sum(Value value) const {
  return std::accumulate(
      parts_.begin(), parts_.end(), std::uint64_t{0},
      [value](std::uint64_t sum, const auto& part) { return sum + value(*part); });
}

std::uint64_t Network::events() const {
  return sum([](const Part& part) { return part.events(); });
}

std::uint64_t Network::data_packet_hops() const {
  return sum([](const Part& part) { return part.links().data_hops(); });
}

std::uint64_t Network::frames_sent() const {
  return sum([](const Part& part) { return part.links().all_hops(); });
}

std::uint64_t Network::frames_in_use() const {
  return sum([](const Part& part) { return part.frames().in_use(); });
}

std::uint64_t Network::notices() const {
  std::uint64_t sent = 0;
  nodes_.switches.for_each([&](const fabric::Switch& at) { sent += at.notices(); });
  return sent;
}

const device::HostStack* Network::stack(std::uint32_t host) const {
  const Host& at = nodes_.hosts[host];
  return at.kernel == nullptr ? nullptr : &at.kernel->stack;
}

}  // namespace tulle::sim
