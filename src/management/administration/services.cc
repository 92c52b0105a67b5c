#include "management/administration/services.h"

#include <algorithm>

namespace tulle::management::administration {

bool Services::set(Time now, const wire::ServiceRecord& record, std::uint64_t owner) {
  const Key key = key_of(record);
  if (!services_.contains(key)) {
    const auto of_port = std::ranges::count_if(
        services_, [owner](const auto& each) { return each.second.owner == owner; });
    if (services_.size() >= services_max ||
        static_cast<std::size_t>(of_port) >= services_of_port_max) {
      return false;
    }
  }
  // IBTA 15.2.5.14: a lease of zero seconds is over at once.
  constexpr std::int64_t longest = 90 * 24 * 3'600;  // less than Time holds
  const std::uint32_t seconds = record.lease_seconds;
  const bool is_endless = seconds == wire::ServiceRecord::for_ever || seconds > longest;
  services_[key] = {record, is_endless ? Time::never() : now + Time::seconds(seconds), owner};
  return true;
}

bool Services::remove(const wire::ServiceRecord& record) {
  return services_.erase(key_of(record)) > 0;
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

Time Services::next_timeout() const {
  Time next = Time::never();
  for (const auto& [key, service] : services_) next = std::min(next, service.end);
  return next;
}

void Services::expire(Time now) {
  std::erase_if(services_, [now](const auto& each) { return each.second.end <= now; });
}

}  // namespace tulle::management::administration
