#include "transport/environment.h"

#include "transport/srd/peers.h"

namespace tulle::transport {

Environment::Environment(std::uint64_t seed) : keys(seed) {}
Environment::~Environment() = default;

}  // namespace tulle::transport
