#include "management/administration/services.h"

#include <algorithm>

namespace tulle::management::administration {

namespace {

bool has_key_of(const wire::ServiceRecord& known, const wire::ServiceRecord& asked) {
  return known.key != decltype(known.key){} && known.key == asked.key;
}

}  // namespace

ServiceOutcome Services::set(Time now, const wire::ServiceRecord& record,
                             const ServiceAsker& asker) {
  const auto found = services_.find(key_of(record));
  const bool is_new = found == services_.end();
  const bool may = asker.may_change || (!is_new && has_key_of(found->second.record, record));
  if (!may) return ServiceOutcome::not_allowed;
  if (is_new) {
    const auto of_port = std::ranges::count_if(
        services_, [&](const auto& each) { return each.second.owner == asker.port; });
    if (services_.size() >= services_max ||
        static_cast<std::size_t>(of_port) >= services_of_port_max) {
      return ServiceOutcome::no_room;
    }
  }
  const std::uint64_t owner = is_new ? asker.port : found->second.owner;
  // IBTA 15.2.5.14: a lease of zero seconds is over at once.
  constexpr std::int64_t longest = 90 * 24 * 3'600;  // less than Time holds
  const std::uint32_t seconds = record.lease_seconds;
  const bool is_endless = seconds == wire::ServiceRecord::for_ever || seconds > longest;
  const Time end = is_endless ? Time::never() : now + Time::seconds(seconds);
  services_[key_of(record)] = {record, end, owner};
  next_end_ = std::min(next_end_, end);
  return ServiceOutcome::ok;
}

ServiceOutcome Services::remove(const wire::ServiceRecord& record, const ServiceAsker& asker) {
  const auto found = services_.find(key_of(record));
  if (found == services_.end()) return ServiceOutcome::unknown;
  const bool may = asker.may_change || has_key_of(found->second.record, record);
  if (!may) return ServiceOutcome::not_allowed;
  services_.erase(found);
  return ServiceOutcome::ok;
}

std::vector<wire::ServiceRecord> Services::records(Time now) const {
  std::vector<wire::ServiceRecord> out;
  for (const auto& [key, service] : services_) {
    wire::ServiceRecord& record = out.emplace_back(service.record);
    if (service.end.is_never()) continue;
    const Time left = service.end > now ? service.end - now : Time::zero();
    record.lease_seconds = static_cast<std::uint32_t>(left.to_microseconds() / 1'000'000);
  }
  return out;
}

void Services::expire(Time now) {
  if (now < next_end_) return;
  std::erase_if(services_, [now](const auto& each) { return each.second.end <= now; });
  next_end_ = Time::never();
  for (const auto& [key, service] : services_) next_end_ = std::min(next_end_, service.end);
}

}  // namespace tulle::management::administration
