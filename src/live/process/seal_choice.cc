#include "live/process/seal_choice.h"

#include <fmt/format.h>

#include <cerrno>
#include <mutex>

namespace tulle::live {

Result<OwnKey> own_key(const Settings& settings) {
  static std::mutex mutex;
  static OwnKey last;
  if (settings.secure.empty()) return OwnKey{};
  auto seal = Seal::create(settings.secure);
  const std::lock_guard lock(mutex);
  if (seal) last = {(*seal)->key_id(), (*seal)->key_proof()};
  if (last.id != 0) return last;
  return seal.error();
}

Result<void> check_agents_key(const Settings& settings, std::uint16_t own, std::uint16_t agents) {
  if (own == agents) return {};
  const int seconds = Settings{}.idle_exit_seconds;
  if (own == 0) {
    return Error{fmt::format("the running host agent seals its datagrams: try `tulle run --secure "
                             "KEYFILE`, or wait until it ends, {} seconds after its last program",
                             seconds),
                 EPROTO};
  }
  return Error{fmt::format("the running host agent at {} does not seal with the first key of {}: "
                           "wait until it ends, {} seconds after its last program, or end it and "
                           "start `tulle agent --secure {}`",
                           settings.agent, settings.secure, seconds, settings.secure),
               EPROTO};
}

Result<std::unique_ptr<Seal>> seal_like(const Settings& settings, std::uint16_t agents_key_id) {
  std::unique_ptr<Seal> seal;
  if (!settings.secure.empty()) {
    auto created = Seal::create(settings.secure);
    if (!created) return created.error();
    seal = std::move(*created);
  }
  const std::uint16_t own = seal != nullptr ? seal->key_id() : std::uint16_t{0};
  if (auto alike = check_agents_key(settings, own, agents_key_id); !alike) return alike.error();
  return seal;
}

}  // namespace tulle::live
