#include "management/cm/unasked_messages.h"

#include <utility>

namespace tulle::management::cm {

void UnaskedMessages::prove(const Gid& address) {
  if (proven_.size() >= addresses_max && !proven_.contains(address)) {
    proven_before_ = std::exchange(proven_, {});
  }
  proven_.insert(address);
}

bool UnaskedMessages::is_proven(const Gid& address) const {
  return proven_.contains(address) || proven_before_.contains(address);
}

bool UnaskedMessages::may_send(Time now, const Gid& address) {
  if (is_proven(address)) return true;
  for (; left_ < at_once_max && counted_until_ + interval <= now; counted_until_ += interval) {
    ++left_;
  }
  if (left_ == at_once_max) counted_until_ = now;
  if (left_ == 0) return false;
  --left_;
  return true;
}

}  // namespace tulle::management::cm
