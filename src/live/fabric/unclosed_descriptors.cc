#include "live/fabric/unclosed_descriptors.h"

#include "live/message/socket.h"
#include "os/service_process.h"

namespace tulle::live {
namespace {

constexpr char many_open_text[] = "too many descriptors of this process are not closed yet";
constexpr char many_of_all_open_text[] =
    "too many descriptors that came to this fabric are not closed yet";

}  // namespace

UnclosedDescriptors::UnclosedDescriptors() : UnclosedDescriptors(file_limit() / 4) {}

const char* UnclosedDescriptors::objection_to_reading(const FabricSession& session,
                                                      int socket) const {
  if (closers_.files().waiting(session.sender()) >= of_sender_max) return many_open_text;
  if (closers_.files().waiting() < all_max_) return nullptr;
  auto has_descriptors = next_has_descriptors(socket);
  return has_descriptors && *has_descriptors ? many_of_all_open_text : nullptr;
}

}  // namespace tulle::live
