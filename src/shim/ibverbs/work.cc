// Posts work: translates lists of requests one by one.

#include <fmt/format.h>

#include <array>
#include <span>

#include "shim/ibverbs/access.h"
#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"
#include "shim/ibverbs/reasons.h"

namespace tulle::shim {
namespace {

using verbs::SendFlag;
using verbs::SendOpcode;

// Opcodes in the order of ibv_wr_opcode, up to SEND_WITH_INV. Behind that come segmentation offload
// and the opcodes of vendors, which are not offered, and atomic write.
constexpr std::array<SendOpcode, 10> send_opcodes = {
    SendOpcode::write,       SendOpcode::write_with_immediate,
    SendOpcode::send,        SendOpcode::send_with_immediate,
    SendOpcode::read,        SendOpcode::compare_swap,
    SendOpcode::fetch_add,   SendOpcode::local_invalidate,
    SendOpcode::bind_window, SendOpcode::send_with_invalidate};
static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_SEND == 2 && IBV_WR_RDMA_READ == 4 &&
              IBV_WR_LOCAL_INV == 7 && IBV_WR_SEND_WITH_INV == 9);

struct FlagName {
  unsigned c_api;
  SendFlag flag;
};
constexpr std::array<FlagName, 4> flag_names = {{{IBV_SEND_FENCE, SendFlag::fence},
                                                 {IBV_SEND_SIGNALED, SendFlag::signaled},
                                                 {IBV_SEND_SOLICITED, SendFlag::solicited},
                                                 {IBV_SEND_INLINE, SendFlag::inline_data}}};

bool fits(const ibv_sge* list, int count) {
  return count >= 0 && count <= static_cast<int>(verbs::sges_max) &&
         (list != nullptr || count == 0);
}

std::string why_no_list(const ibv_sge* list, int count) {
  if (fits(list, count)) return "";
  if (count > 0 && list == nullptr) return fmt::format("sg_list is null, and num_sge {}", count);
  return fmt::format("num_sge is {}, and {} is the most", count, verbs::sges_max);
}

std::span<const verbs::Sge> to_sges(const ibv_sge* list, int count, Context& context) {
  const auto entries = static_cast<std::size_t>(count);
  for (std::size_t i = 0; i < entries; ++i) {
    context.sges[i] = {list[i].addr, list[i].length, LocalKey{list[i].lkey}};
  }
  return {context.sges.data(), entries};
}

std::span<const std::span<const std::byte>> to_pieces(const ibv_sge* list, int count,
                                                      Context& context) {
  const auto entries = static_cast<std::size_t>(count);
  for (std::size_t i = 0; i < entries; ++i) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the C API holds addresses as numbers
    context.pieces[i] = {reinterpret_cast<const std::byte*>(list[i].addr), list[i].length};
  }
  return {context.pieces.data(), entries};
}

int bind_from(const ibv_send_wr& from, verbs::SendRequest& to) {
  if (from.bind_mw.mw == nullptr) return EINVAL;
  const ibv_mw_bind_info& info = from.bind_mw.bind_info;
  if (!to_access(info.mw_access_flags, to.window_access)) return EINVAL;
  to.window = Mw::of(from.bind_mw.mw).window;
  to.window_rkey = RemoteKey{from.bind_mw.rkey};
  to.window_region = info.mr != nullptr ? Mr::of(info.mr).region : nullptr;
  to.window_address = info.addr;
  to.window_length = info.length;
  return 0;
}

// Returns 0 or an errno. The caller holds the device's lock.
int translate(const ibv_send_wr& from, bool datagram, Context& context, verbs::SendRequest& to) {
  to = {};
  to.wr_id = from.wr_id;
  if (!to_send_opcode(from.opcode, to.opcode)) return EOPNOTSUPP;
  if (!to_send_flags(from.send_flags, to.flags) || !fits(from.sg_list, from.num_sge)) return EINVAL;
  if (to.flags.has(SendFlag::inline_data)) {
    to.inline_pieces = to_pieces(from.sg_list, from.num_sge, context);
  } else {
    to.sges = to_sges(from.sg_list, from.num_sge, context);
  }
  if (datagram) {
    to.address_handle = from.wr.ud.ah != nullptr ? Ah::of(from.wr.ud.ah).target : nullptr;
    to.remote_qp = QpNumber{from.wr.ud.remote_qpn};
    to.remote_qkey = Qkey{from.wr.ud.remote_qkey};
  }
  switch (to.opcode) {
    case SendOpcode::send:
      break;
    case SendOpcode::send_with_immediate:
      to.immediate = from.imm_data;
      break;
    case SendOpcode::write_with_immediate:
      to.immediate = from.imm_data;
      [[fallthrough]];
    case SendOpcode::write:
    case SendOpcode::read:
      to.remote_address = from.wr.rdma.remote_addr;
      to.rkey = RemoteKey{from.wr.rdma.rkey};
      break;
    case SendOpcode::atomic_write:
      // A request without data has nothing to write.
      if (from.num_sge == 0) return EINVAL;
      to.remote_address = from.wr.rdma.remote_addr;
      to.rkey = RemoteKey{from.wr.rdma.rkey};
      break;
    case SendOpcode::compare_swap:
    case SendOpcode::fetch_add:
      to.remote_address = from.wr.atomic.remote_addr;
      to.rkey = RemoteKey{from.wr.atomic.rkey};
      to.compare_add = from.wr.atomic.compare_add;
      to.swap = from.wr.atomic.swap;
      break;
    case SendOpcode::send_with_invalidate:
    case SendOpcode::local_invalidate:
      to.invalidate_rkey = RemoteKey{from.invalidate_rkey};
      break;
    case SendOpcode::bind_window:
      return bind_from(from, to);
  }
  return 0;
}

// Returns why a request could not be translated, or an empty text.
std::string why_not_translated(const ibv_send_wr& from) {
  SendOpcode opcode;
  if (!to_send_opcode(from.opcode, opcode)) {
    return fmt::format("opcode {} is not offered", static_cast<int>(from.opcode));
  }
  verbs::SendFlags flags;
  if (!to_send_flags(from.send_flags, flags)) {
    return fmt::format("send_flags {:#x} has flags that are not offered", from.send_flags);
  }
  verbs::SendRequest unused;
  if (opcode == SendOpcode::bind_window && bind_from(from, unused) != 0) {
    return from.bind_mw.mw == nullptr ? "bind_mw.mw is null"
                                      : "bind_mw.bind_info.mw_access_flags are not offered";
  }
  if (opcode == SendOpcode::atomic_write && from.num_sge == 0) return "num_sge is 0: no value";
  return why_no_list(from.sg_list, from.num_sge);
}

void tell_refused(Context& context, const Qp& qp, const ibv_send_wr& wr,
                  const verbs::SendRequest& request, int error) noexcept try {
  if (error == ENOMEM && context.has_told_full) return;
  std::string why = why_not_translated(wr);
  if (why.empty()) why = why_not_posted(context, qp, request);
  keep_refused_work(context, "ibv_post_send", error, why);
} catch (const std::bad_alloc&) {  // there is no memory for a reason
}

int post_send(ibv_qp* ibv, ibv_send_wr* wr, ibv_send_wr** bad) {
  if (ibv == nullptr) return report(EINVAL);
  Qp& qp = Qp::of(ibv);
  Context& context = Context::of(ibv->context);
  const bool datagram = ibv->qp_type == IBV_QPT_UD;
  const bool extended = ibv->qp_type == IBV_QPT_XRC_SEND;
  const auto guard = context.lock_for_work();
  int error = 0;
  verbs::SendRequest request;
  try {
    for (; wr != nullptr; wr = wr->next) {
      error = translate(*wr, datagram, context, request);
      if (extended) request.xrc_srq = wr->qp_type.xrc.remote_srqn;
      if (error == 0) error = post_request(context, qp, request);
      if (error != 0) break;
      // As adapters' drivers do (irdma), whose programs read the key there.
      if (wr->opcode == IBV_WR_BIND_MW) wr->bind_mw.mw->rkey = wr->bind_mw.rkey;
    }
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  context.live->transmit_posted();
  if (error != 0) [[unlikely]] {
    if (bad != nullptr) *bad = wr;
    tell_refused(context, qp, *wr, request, error);
  }
  return report(error);
}

// Each returns 0 or an errno.
int post_receive(Context& context, Qp& qp, const verbs::ReceiveRequest& request) {
  return post_request(context, qp, request);
}

int post_receive(Context& context, transport::QueuePair& qp, const verbs::ReceiveRequest& request) {
  return to_errno(context.adapter().post_receive(qp, request));
}

int post_receive(Context& context, verbs::SharedReceiveQueue& srq,
                 const verbs::ReceiveRequest& request) {
  return to_errno(context.adapter().objects().post_receive(srq, request));
}

std::string why_not_taken(const Qp& qp, const verbs::ReceiveRequest& request) {
  return why_not_posted(qp, request);
}
std::string why_not_taken(const transport::QueuePair& qp, const verbs::ReceiveRequest& request) {
  return why_not_posted(qp.receive_queue, request);
}
std::string why_not_taken(const verbs::SharedReceiveQueue& srq,
                          const verbs::ReceiveRequest& request) {
  return why_not_posted(srq.queue, request);
}

template <typename Queue>
void tell_refused(Context& context, const char* verb, const Queue& queue, const ibv_recv_wr& wr,
                  int error) noexcept try {
  if (error == ENOMEM && context.has_told_full) return;
  std::string why = why_no_list(wr.sg_list, wr.num_sge);
  if (why.empty()) {
    why = why_not_taken(queue, {wr.wr_id, to_sges(wr.sg_list, wr.num_sge, context)});
  }
  keep_refused_work(context, verb, error, why);
} catch (const std::bad_alloc&) {  // there is no memory for a reason
}

// Posts receives to the queue of a queue pair, or to a shared one.
template <typename Queue>
int post_receives(Context& context, const char* verb, Queue& queue, ibv_recv_wr* wr,
                  ibv_recv_wr** bad) {
  const auto guard = context.lock_for_work();
  int error = 0;
  try {
    for (; wr != nullptr; wr = wr->next) {
      error = EINVAL;
      if (fits(wr->sg_list, wr->num_sge)) {
        const auto sges = to_sges(wr->sg_list, wr->num_sge, context);
        error = post_receive(context, queue, {wr->wr_id, sges});
      }
      if (error != 0) break;
    }
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error != 0) [[unlikely]] {
    if (bad != nullptr) *bad = wr;
    tell_refused(context, verb, queue, *wr, error);
  }
  return report(error);
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  if (qp == nullptr) return report(EINVAL);
  return post_receives(Context::of(qp->context), "ibv_post_recv", Qp::of(qp), wr, bad);
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  if (srq == nullptr) return report(EINVAL);
  return post_receives(Context::of(srq->context), "ibv_post_srq_recv", *Srq::of(srq).queue, wr,
                       bad);
}

}  // namespace

bool to_sges(const ibv_sge* list, int count, Context& context, std::span<const verbs::Sge>& out) {
  if (!fits(list, count)) return false;
  out = to_sges(list, count, context);
  return true;
}

int post_wq_receive(ibv_wq* wq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  if (wq == nullptr) return report(EINVAL);
  return post_receives(Context::of(wq->context), "ibv_post_wq_recv", *Wq::of(wq).pair, wr, bad);
}

void serve_work(Context& context) {
  context.context.ops.post_send = post_send;
  context.context.ops.post_recv = post_recv;
  context.context.ops.post_srq_recv = post_srq_recv;
}

bool to_send_opcode(unsigned opcode, SendOpcode& out) {
  if (opcode == IBV_WR_ATOMIC_WRITE) {
    out = SendOpcode::atomic_write;
    return true;
  }
  if (opcode >= send_opcodes.size()) return false;
  out = send_opcodes[opcode];
  return true;
}

bool to_send_flags(unsigned flags, verbs::SendFlags& out) {
  out = {};
  for (const FlagName& name : flag_names) {
    if ((flags & name.c_api) == 0) continue;
    out |= name.flag;
    flags &= ~name.c_api;
  }
  return flags == 0;
}

}  // namespace tulle::shim
