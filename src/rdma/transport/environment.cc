#include "rdma/transport/environment.h"

namespace tulle::transport {

Environment::Environment(const RandomSource& keys, std::size_t ports) : keys(keys), ports(ports) {}
Environment::~Environment() = default;

void Environment::rebase(Time by) {
  for (auto& [destination, limit] : endpoint_limits) limit.rebase(by);
  if (injections != nullptr) {
    for (congestion::Injection& injection : *injections) injection.rebase(by);
  }
  if (peers != nullptr) peers->rebase(by);
}

}  // namespace tulle::transport
