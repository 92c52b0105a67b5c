#include "shim/ibverbs/strict.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

// The pages of a process. A forked child inherits its parent's number with its memory, though not
// the pages.
std::atomic<pid_t> pinning_process = 0;
std::atomic<std::uint64_t> pinned_pages = 0;

// Returns the number of this process, whose pages are counted from now on.
pid_t count_own_pages() {
  const pid_t own = getpid();
  if (pinning_process.exchange(own) != own) pinned_pages = 0;
  return own;
}

bool may_lock_without_limit() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> data = {};
  if (syscall(SYS_capget, &header, data.data()) != 0) return false;
  return (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0;
}

}  // namespace

bool is_atomic(verbs::SendOpcode opcode) {
  using enum verbs::SendOpcode;
  return opcode == compare_swap || opcode == fetch_add || opcode == atomic_write;
}

void SendEntries::post(bool is_signalled) {
  if (is_signalled) signalled_.push_back(posted_);
  ++posted_;
}

void SendEntries::complete() {
  if (signalled_.empty()) return;
  freed_ = signalled_.front() + 1;
  signalled_.pop_front();
}

// The numbers wrap around.
void SendEntries::fail(std::uint32_t place) {
  const std::uint32_t taken = posted_ - freed_;
  if (place - freed_ >= taken) return;  // it was posted before a reset
  freed_ = place + 1;
  while (!signalled_.empty() && posted_ - signalled_.front() > posted_ - freed_) {
    signalled_.pop_front();
  }
}

void SendEntries::clear() {
  posted_ = freed_ = 0;
  signalled_.clear();
}

bool Pinned::take(const void* address, std::size_t length) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  pages_ = (first + length - 1) / page - first / page + 1;
  process_ = count_own_pages();
  const std::uint64_t now = pinned_pages += pages_;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
  return now <= limit.rlim_cur / page || may_lock_without_limit();
}

Pinned::~Pinned() {
  if (pages_ > 0 && process_ == getpid()) pinned_pages -= pages_;
}

int post_request(Context& context, Qp& qp, const verbs::SendRequest& request) {
  if (context.like != nullptr && !context.like->has_atomics && is_atomic(request.opcode))
      [[unlikely]] {
    return EINVAL;
  }
  if (qp.entries == nullptr) return to_errno(context.adapter().post_send(*qp.pair, request));
  if (!qp.entries->has_room()) return ENOMEM;
  const int error = to_errno(context.adapter().post_send(*qp.pair, request));
  const bool is_signalled =
      qp.pair->init.signal_all || request.flags.has(verbs::SendFlag::signaled);
  if (error == 0) qp.entries->post(is_signalled);
  return error;
}

int post_request(Context& context, Qp& qp, const verbs::ReceiveRequest& request) {
  if (qp.receive_entries && !qp.receive_entries->has_room()) return ENOMEM;
  const int error = to_errno(context.adapter().post_receive(*qp.pair, request));
  if (error == 0 && qp.receive_entries) qp.receive_entries->post();
  return error;
}

void clear_entries(Qp& qp) {
  if (qp.entries != nullptr) qp.entries->clear();
  if (qp.receive_entries) qp.receive_entries->clear();
}

void blur(const Context& context, const verbs::Completion& completion, ibv_wc& out) {
  constexpr std::uint32_t undefined = 0xA5A5A5A5;
  constexpr std::uint16_t undefined_half = 0xA5A5;
  constexpr std::uint8_t undefined_byte = 0xA5;
  using verbs::CompletionOpcode;
  const bool has_failed = completion.status != verbs::CompletionStatus::success;
  const bool is_receive = completion.opcode >= CompletionOpcode::receive;
  const bool is_datagram = completion.network != verbs::DatagramNetwork::none;
  if (has_failed) {
    out.opcode = static_cast<ibv_wc_opcode>(undefined_byte);
    out.wc_flags = undefined;
  }
  const bool has_length = is_receive || completion.opcode == CompletionOpcode::read ||
                          completion.opcode == CompletionOpcode::compare_swap ||
                          completion.opcode == CompletionOpcode::fetch_add;
  if (has_failed || !has_length) out.byte_len = undefined;
  if (has_failed || (!completion.has_immediate && !completion.has_invalidate)) {
    out.imm_data = undefined;
  }
  if (!has_failed && is_datagram) return;
  out.src_qp = undefined;
  out.sl = undefined_byte;
  out.dlid_path_bits = undefined_byte;
  out.slid = undefined_half;
  if (!context.is_infiniband || has_failed) out.pkey_index = undefined_half;
}

std::uint32_t take_strictly(Context& context, verbs::CompletionQueue& queue,
                            std::span<verbs::Completion> out) {
  const auto turn = context.live->memory_turn();
  return context.adapter().objects().poll(queue, out);
}

void note_polled(Context& context, const verbs::Completion& completion) {
  // A completion may be of a queue pair that is gone.
  const auto found = context.qps.find(static_cast<Qp*>(completion.qp_cookie));
  if (!context.is_strict || found == context.qps.end()) return;
  Qp& qp = **found;
  if (completion.opcode >= verbs::CompletionOpcode::receive) {
    if (qp.receive_entries) qp.receive_entries->complete();
  } else if (qp.entries != nullptr && completion.status == verbs::CompletionStatus::success) {
    qp.entries->complete();
  } else if (qp.entries != nullptr) {
    qp.entries->fail(completion.place);
  }
}

}  // namespace tulle::shim
