#include "shim/ibverbs/strict.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"
#include "shim/ibverbs/reasons.h"

namespace tulle::shim {
namespace {

std::atomic<std::uint64_t> pinned_pages = 0;  // of the process

bool may_lock_without_limit() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> data = {};
  if (syscall(SYS_capget, &header, data.data()) != 0) return false;
  return (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0;
}

}  // namespace

void SendEntries::post(bool is_signalled) {
  if (is_signalled) signalled_.push_back(posted_);
  ++posted_;
}

void SendEntries::complete(bool has_succeeded) {
  if (has_succeeded && !signalled_.empty()) {
    freed_ = signalled_.front() + 1;
    signalled_.pop_front();
    return;
  }
  // The first that fails, and each behind it, has a completion of its own.
  if (freed_ < posted_) ++freed_;
  while (!signalled_.empty() && signalled_.front() < freed_) signalled_.pop_front();
}

void SendEntries::clear() {
  posted_ = freed_ = 0;
  signalled_.clear();
}

bool Pinned::take(const void* address, std::size_t length) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  pages_ = (first + length - 1) / page - first / page + 1;
  const std::uint64_t now = pinned_pages += pages_;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
  return now <= limit.rlim_cur / page || may_lock_without_limit();
}

Pinned::~Pinned() { pinned_pages -= pages_; }

int post_request(Context& context, Qp& qp, const verbs::SendRequest& request) {
  if (qp.entries == nullptr) return to_errno(context.adapter().post_send(*qp.pair, request));
  if (!qp.entries->has_room()) {
    keep_refusal(context, "ibv_post_send", ENOMEM,
                 "the send queue is full until a completion of one of its requests is polled");
    return ENOMEM;
  }
  const int error = to_errno(context.adapter().post_send(*qp.pair, request));
  const bool is_signalled =
      qp.pair->init.signal_all || request.flags.has(verbs::SendFlag::signaled);
  if (error == 0) qp.entries->post(is_signalled);
  return error;
}

void note_polled(Context& context, const verbs::Completion& completion) {
  if (!context.is_strict || completion.opcode >= verbs::CompletionOpcode::receive) return;
  // A completion may be of a queue pair that is gone.
  const auto qp = context.qps.find(static_cast<Qp*>(completion.qp_cookie));
  if (qp == context.qps.end() || (*qp)->entries == nullptr) return;
  (*qp)->entries->complete(completion.status == verbs::CompletionStatus::success);
}

}  // namespace tulle::shim
