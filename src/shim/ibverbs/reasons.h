#pragma once

// Why a verb was refused. Verbs answer with an errno, and EINVAL has a hundred reasons. `tulle
// status` shows the last reason of each process, and with TULLE_EXPLAIN=1 each reason is a line on
// standard error. Nothing here is reached by a verb that succeeds.

#include <string>

#include "shim/ibverbs/objects.h"

namespace tulle::shim {

// Keeps the reason for people, such as "path_mtu is 4096 and the port's active_mtu 1024". An empty
// one says nothing more than the error. Leaves errno as it is, and never throws.
void keep_refusal(Context& context, const char* verb, int error, const std::string& why) noexcept;

// Where no way to an address was found.
inline constexpr char no_way_text[] =
    "the destination has no route, or nobody there answers (ARP or neighbour discovery)";

// These return the first thing that is wrong, or an empty text if it is none that they know. The
// caller holds the device's lock.
std::string why_not_modified(Context& context, const Qp& qp, const ibv_qp_attr& attributes,
                             int mask);
std::string why_no_address(Context& context, const ibv_ah_attr& attributes);
std::string why_not_created(Context& context, const ibv_qp_init_attr& attributes);
std::string why_not_posted(Context& context, const Qp& qp, const verbs::SendRequest& request);
std::string why_not_posted(const Qp& qp, const verbs::ReceiveRequest& request);
std::string why_not_posted(const verbs::ReceiveQueue& queue, const verbs::ReceiveRequest& request);

// Keeps why work was not posted. That a queue is full is kept once in a context, since programs
// fill queues on purpose and over and over.
void keep_refused_work(Context& context, const char* verb, int error,
                       const std::string& why) noexcept;

}  // namespace tulle::shim
