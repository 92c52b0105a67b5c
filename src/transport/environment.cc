#include "transport/environment.h"

#include "transport/srd/peers.h"

namespace tulle::transport {

Environment::Environment(const RandomSource& keys, std::size_t ports) : keys(keys), ports(ports) {}
Environment::~Environment() = default;

}  // namespace tulle::transport
