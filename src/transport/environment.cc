#include "transport/environment.h"

#include "transport/srd/peers.h"

namespace tulle::transport {

Environment::Environment(std::uint64_t seed, std::size_t ports) : keys(seed), ports(ports) {}
Environment::~Environment() = default;

}  // namespace tulle::transport
