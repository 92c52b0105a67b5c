#pragma once

// When a queue pair may send its next packet, where its rate is limited.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/time.h"
#include "transport/congestion/dcqcn.h"
#include "transport/congestion/endpoint_limit.h"
#include "transport/congestion/infiniband.h"

namespace tulle::transport::congestion {

class Pacing {
 public:
  // The limit is shared with all that goes to the same host; null: there is none ever.
  void start(const DcqcnSettings& settings, EndpointLimit* endpoint = nullptr) {
    reset(settings.enabled || endpoint != nullptr);
    if (settings.enabled) limits_->dcqcn.emplace(settings);
    if (limits_) limits_->endpoint = endpoint;
  }
  // `shared` is the flow that the queue pair is one of; null: it is one by itself. Both must
  // outlive the queue pair.
  void start(const InfinibandSettings& settings, Injection* shared) {
    reset(settings.enabled);
    if (settings.enabled) limits_->table.emplace(Table{&settings, shared, {}});
  }
  bool is_limited() const { return limits_ != nullptr; }
  void notified(Time now) {
    if (!limits_) return;
    if (limits_->dcqcn) limits_->dcqcn->notified(now);
    if (limits_->table) limits_->table->flow().notified(*limits_->table->settings, now);
  }
  // False: not yet; next_deadline() then says when. `has_packet` says whether there is anything to
  // wait with.
  template <typename HasPacket>
  bool may_send(Time now, const HasPacket& has_packet) {
    if (!limits_) return true;
    if (limits_->endpoint != nullptr) {
      may_send_at_ = std::max(may_send_at_, limits_->endpoint->may_send_at());
    }
    waits_ = now < may_send_at_;
    if (!waits_ && limits_->table) waits_ = !take_turn(now, *limits_->table, has_packet);
    return !waits_;
  }
  bool may_send(Time now) {
    return may_send(now, [] { return true; });
  }
  void sent(Time now, std::uint32_t bytes) {
    if (!limits_) return;
    if (limits_->endpoint != nullptr) limits_->endpoint->sent(now, bytes);
    if (limits_->table) return sent(now, *limits_->table, bytes);
    if (!limits_->dcqcn) return;
    limits_->dcqcn->sent(now, bytes);
    const std::int64_t rate = limits_->dcqcn->bits_per_second(now);
    if (!limits_->dcqcn->is_limited()) return;
    constexpr std::int64_t bits_ps_per_byte = 8'000'000'000'000;
    may_send_at_ = now + Time{static_cast<std::int64_t>(bytes) * bits_ps_per_byte / rate};
  }
  Time next_deadline() const { return waits_ ? may_send_at_ : Time::never(); }
  void handle_deadline(Time now) {
    if (now >= may_send_at_) waits_ = false;
  }

 private:
  struct Table {
    const InfinibandSettings* settings;
    Injection* shared;
    Injection own;
    bool has_turn = false;  // may_send_at_ is this queue pair's turn among those that share a flow

    Injection& flow() { return shared != nullptr ? *shared : own; }
  };
  struct Limits {
    std::optional<Dcqcn> dcqcn;
    EndpointLimit* endpoint = nullptr;
    std::optional<Table> table;
  };

  void reset(bool is_limited) {
    limits_ = is_limited ? std::make_unique<Limits>() : nullptr;
    may_send_at_ = Time::zero();
    waits_ = false;
  }
  // Queue pairs that share a flow are given times one after the other, in the order in which they
  // ask. False: the queue pair's is still to come.
  template <typename HasPacket>
  bool take_turn(Time now, Table& table, const HasPacket& has_packet) {
    if (table.shared == nullptr || table.has_turn) return true;
    Injection& flow = *table.shared;
    if (now >= flow.free_at || !has_packet()) return true;
    may_send_at_ = flow.free_at;
    table.has_turn = true;
    flow.free_at += flow.last_spacing;
    return false;
  }
  void sent(Time now, Table& table, std::uint32_t bytes) {
    Injection& flow = table.flow();
    flow.last_spacing = flow.spacing(*table.settings, now, bytes);
    if (table.shared == nullptr) {
      may_send_at_ = now + flow.last_spacing;
    } else if (table.has_turn) {
      table.has_turn = false;  // its turn was counted when it was given
    } else {
      flow.free_at = now + flow.last_spacing;
    }
  }

  std::unique_ptr<Limits> limits_;  // null: none
  Time may_send_at_;
  bool waits_ = false;
};

}  // namespace tulle::transport::congestion
