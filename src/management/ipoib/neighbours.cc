#include "management/ipoib/neighbours.h"

#include <algorithm>
#include <utility>

#include "management/administration/paths.h"

namespace tulle::ipoib {
namespace {

// RFC 4861 §10 has these for IPv6.
constexpr Time confirmed_for = Time::seconds(30);
constexpr Time between_tries = Time::seconds(1);
constexpr unsigned tries_max = 3;
// A neighbour that was not found is looked for again after this.
constexpr Time refused_for = Time::seconds(3);
// Answers that one neighbour is owed at most.
constexpr std::size_t owed_max = 4;

}  // namespace

void Neighbours::set_deadline(Neighbour& neighbour, Time at) {
  neighbour.deadline = at;
  next_deadline_ = std::min(next_deadline_, at);
}

void Neighbours::drop_waiting(Neighbour& neighbour) {
  all_waiting_ -= neighbour.waiting.size();
  unresolved_ += neighbour.waiting.size();
  neighbour.waiting.clear();
}

// An answer about the path to the address may still come. It then counts for nothing.
void Neighbours::forget_address(Neighbour& neighbour) {
  neighbour.address.reset();
  neighbour.route.reset();
  neighbour.question = 0;
  neighbour.wants_path = false;
}

void Neighbours::forget(Map::iterator at) {
  drop_waiting(at->second);
  by_use_.erase(at->second.place);
  neighbours_.erase(at);
}

Neighbours::Neighbour& Neighbours::add(Time now, const Gid& ip) {
  if (neighbours_.size() >= neighbours_max) forget(neighbours_.find(by_use_.front()));
  Neighbour& made = neighbours_[ip];
  made.place = by_use_.insert(by_use_.end(), ip);
  made.used_at = now;
  set_deadline(made, now);
  return made;
}

std::optional<Neighbours::Route> Neighbours::find_to_send(Time now, const Gid& ip,
                                                          std::span<const std::byte> packet) {
  const auto found = neighbours_.find(ip);
  Neighbour& neighbour = found == neighbours_.end() ? add(now, ip) : found->second;
  neighbour.used_at = now;
  by_use_.splice(by_use_.end(), by_use_, neighbour.place);
  if (neighbour.route) return neighbour.route;
  const bool may_wait = !neighbour.is_refused && neighbour.waiting.size() < waiting_max &&
                        all_waiting_ < all_waiting_max;
  if (!may_wait) {
    ++unresolved_;
    return std::nullopt;
  }
  neighbour.waiting.emplace_back(packet.begin(), packet.end());
  ++all_waiting_;
  return std::nullopt;
}

void Neighbours::hear(Time now, const Gid& ip, const wire::IpoibAddress& address, bool is_new,
                      const std::optional<Gid>& owed_target) {
  const auto found = neighbours_.find(ip);
  if (found == neighbours_.end() && !is_new) return;
  Neighbour& neighbour = found == neighbours_.end() ? add(now, ip) : found->second;
  neighbour.heard_at = now;
  neighbour.tries = 0;
  neighbour.is_refused = false;
  const bool is_other = neighbour.address != address;
  if (is_other) {
    neighbour.address = address;
    neighbour.route.reset();
    neighbour.question = 0;
  }
  neighbour.wants_path = neighbour.wants_path || is_other;
  if (owed_target && neighbour.owed_targets.size() < owed_max) {
    neighbour.owed_targets.push_back(*owed_target);
    neighbour.wants_path = true;  // the answer goes when the path is known again
  }
  set_deadline(neighbour, neighbour.wants_path ? now : now + confirmed_for);
}

void Neighbours::route_anew(Time now, const Gid& port) {
  port_ = port;
  for (auto& [ip, neighbour] : neighbours_) {
    neighbour.question = 0;
    neighbour.wants_path = neighbour.address.has_value();
    set_deadline(neighbour, now);
  }
}

Question Neighbours::ask_path(Neighbour& neighbour, std::uint32_t number) const {
  neighbour.question = number;
  neighbour.wants_path = false;
  const auto asked = management::administration::path_question(port_.bytes, neighbour.address->gid,
                                                               partition_.value);
  return {Question::Kind::path, number, asked.components, asked.record};
}

void Neighbours::give_up(Time now, Neighbour& neighbour) {
  drop_waiting(neighbour);
  forget_address(neighbour);
  neighbour.owed_targets.clear();
  neighbour.is_refused = true;
  set_deadline(neighbour, now + refused_for);
}

// A neighbour that is in use is asked at its address whether it is still there, and then everybody.
void Neighbours::look_for(Time now, const Gid& ip, Neighbour& neighbour,
                          std::vector<Search>& searches) {
  if (neighbour.tries >= tries_max && neighbour.route) {
    forget_address(neighbour);
    neighbour.tries = 0;
  }
  if (neighbour.tries >= tries_max) return give_up(now, neighbour);
  ++neighbour.tries;
  searches.push_back({ip, neighbour.route, neighbour.route ? neighbour.address : std::nullopt});
  // The path is looked up again, too, since nobody tells of a path that has changed.
  neighbour.wants_path = neighbour.address.has_value();
  set_deadline(neighbour, now + between_tries);
}

void Neighbours::progress(Time now, std::uint32_t& next_number, std::vector<Question>& questions,
                          std::vector<Search>& searches) {
  if (now < next_deadline_) return;
  next_deadline_ = Time::never();
  for (auto at = neighbours_.begin(); at != neighbours_.end();) {
    auto& [ip, neighbour] = *at;
    if (now < neighbour.deadline) {
      next_deadline_ = std::min(next_deadline_, neighbour.deadline);
      ++at;
      continue;
    }
    const bool is_idle = neighbour.waiting.empty() && neighbour.owed_targets.empty() &&
                         now >= neighbour.used_at + confirmed_for;
    if (neighbour.is_refused || (is_idle && now >= neighbour.heard_at + confirmed_for)) {
      const auto old = at++;
      forget(old);
      continue;
    }
    if (neighbour.wants_path && neighbour.address) {
      questions.push_back(ask_path(neighbour, next_number++));
      set_deadline(neighbour, now + between_tries * 4);  // unless an answer comes before
    } else {
      look_for(now, ip, neighbour, searches);
      if (neighbour.wants_path) questions.push_back(ask_path(neighbour, next_number++));
    }
    ++at;
  }
}

bool Neighbours::take(Time now, std::uint32_t number, const wire::PathRecord* record,
                      std::optional<Found>& found) {
  const auto at = std::find_if(neighbours_.begin(), neighbours_.end(), [number](const auto& each) {
    return each.second.question == number;
  });
  if (at == neighbours_.end()) return false;
  auto& [ip, neighbour] = *at;
  neighbour.question = 0;
  if (record == nullptr || !neighbour.address) {
    // The neighbour is out of reach, whatever it said.
    give_up(now, neighbour);
    return true;
  }
  constexpr std::uint16_t sl_mask = 0xF;
  constexpr unsigned flow_shift = 8;
  constexpr std::uint32_t flow_mask = 0xF'FFFF;
  const std::uint32_t word = record->raw_flow_and_hops;
  Route route;
  route.qp = QpNumber(neighbour.address->qp);
  route.lid = Lid(record->destination_lid);
  route.service_level = static_cast<std::uint8_t>(record->qos_class_and_sl & sl_mask);
  route.hop_limit = static_cast<std::uint8_t>(word);
  route.has_global = route.hop_limit > 1;  // a packet that leaves its subnet (IBTA 15.2.5.16)
  route.gid = {neighbour.address->gid};
  route.traffic_class = record->traffic_class;
  route.flow_label = word >> flow_shift & flow_mask;
  neighbour.route = route;
  found.emplace(Found{route, ip, *neighbour.address, std::exchange(neighbour.owed_targets, {}),
                      std::exchange(neighbour.waiting, {})});
  all_waiting_ -= found->packets.size();
  const bool is_confirming = neighbour.tries > 0;
  set_deadline(neighbour, is_confirming ? now + between_tries : neighbour.heard_at + confirmed_for);
  return true;
}

void Neighbours::rebase(Time by) {
  for (auto& [ip, neighbour] : neighbours_) {
    tulle::rebase(by, neighbour.heard_at, neighbour.used_at, neighbour.deadline);
  }
  tulle::rebase(by, next_deadline_);
}

}  // namespace tulle::ipoib
