#pragma once

// Whether a process and its host agent seal alike. The agent sends and takes the datagrams of the
// connection manager for the process, so that one that seals otherwise would give away, in clear,
// what connections are opened with.

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "live/security/seal.h"
#include "live/settings.h"

namespace tulle::live {

// The key that a process seals with.
struct OwnKey {
  std::uint16_t id = 0;  // 0: its datagrams are plain
  KeyProof proof{};
};
// Returns this process's key. One that can no longer read its file has the key that it had before.
Result<OwnKey> own_key(const Settings& settings);
// Returns an error for a person if an agent with that key does not do as this process must.
Result<void> check_agents_key(const Settings& settings, std::uint16_t own, std::uint16_t agents);
// Returns the seal of this process's datagrams, or null if they are plain.
Result<std::unique_ptr<Seal>> seal_like(const Settings& settings, std::uint16_t agents_key_id);

}  // namespace tulle::live
