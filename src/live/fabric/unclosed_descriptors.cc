#include "live/fabric/unclosed_descriptors.h"

#include <sys/resource.h>

#include "live/message/socket.h"

namespace tulle::live {
namespace {

constexpr char many_open_text[] = "too many descriptors of this process are not closed yet";
constexpr char many_of_all_open_text[] =
    "too many descriptors that came to this fabric are not closed yet";

// The most that this process may have.
std::size_t descriptors_max() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1'024;
}

}  // namespace

UnclosedDescriptors::UnclosedDescriptors() : UnclosedDescriptors(descriptors_max() / 4) {}

const char* UnclosedDescriptors::objection_to_reading(const FabricSession& session,
                                                      int socket) const {
  if (closer_.waiting(session.sender()) >= of_sender_max) return many_open_text;
  if (closer_.waiting() < all_max_ || !next_has_descriptors(socket)) return nullptr;
  return many_of_all_open_text;
}

}  // namespace tulle::live
