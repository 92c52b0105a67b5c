// Posts work by ibv_wr_*: builders and setters between ibv_wr_start and ibv_wr_complete. The work
// is staged outside the queue pair and posted all at once at the end, because ibv_wr_abort and any
// error must leave the queue as it was. Setters may be called in any order, but always after their
// builder: they complete the last item.

#include <algorithm>
#include <cstring>

#include "shim/ibverbs/access.h"
#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"
#include "shim/ibverbs/reasons.h"

namespace tulle::shim {
namespace {

using verbs::SendFlag;
using verbs::SendOpcode;

// The setter of the data decides whether the data is inline. IBV_SEND_INLINE is for ibv_post_send.
constexpr unsigned flags_of_builders = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;

// Notes what is wrong first, for the program and for people.
void note(StagedWork& staged, int error, const char* why) {
  if (staged.error != 0) return;
  staged.error = error;
  staged.why = why;
}

// Adds an item of work, with the fields that all builders have in common.
verbs::SendRequest& stage(ibv_qp_ex* ibv, SendOpcode opcode, std::uint64_t operation) {
  Qp& qp = Qp::of(ibv);
  StagedWork& staged = qp.staged;
  if ((qp.allowed_operations & operation) == 0) {
    note(staged, EOPNOTSUPP, "the queue pair was created without this operation (send_ops_flags)");
  }
  staged.items.push_back({});
  StagedWork::Item& item = staged.items.back();
  item.first_sge = staged.sges.size();
  item.first_byte = staged.bytes.size();
  item.request.wr_id = ibv->wr_id;
  item.request.opcode = opcode;
  if (!to_send_flags(ibv->wr_flags & flags_of_builders, item.request.flags) ||
      (ibv->wr_flags & ~(flags_of_builders | IBV_SEND_INLINE)) != 0) {
    note(staged, EINVAL, "wr_flags has flags that are not offered");
  }
  return item.request;
}

// Returns null, and notes an error, if a setter comes without a builder.
StagedWork::Item* last_item(StagedWork& staged) {
  if (!staged.items.empty()) return &staged.items.back();
  note(staged, EINVAL, "a setter was called without a builder before it");
  return nullptr;
}

void stage_remote(ibv_qp_ex* qp, SendOpcode opcode, std::uint64_t operation, std::uint32_t rkey,
                  std::uint64_t address, std::uint32_t immediate = 0) {
  verbs::SendRequest& request = stage(qp, opcode, operation);
  request.rkey = RemoteKey{rkey};
  request.remote_address = address;
  request.immediate = immediate;
}

void build_send(ibv_qp_ex* qp) { stage(qp, SendOpcode::send, IBV_QP_EX_WITH_SEND); }

void build_send_imm(ibv_qp_ex* qp, __be32 immediate) {
  stage(qp, SendOpcode::send_with_immediate, IBV_QP_EX_WITH_SEND_WITH_IMM).immediate = immediate;
}

void build_send_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  stage(qp, SendOpcode::send_with_invalidate, IBV_QP_EX_WITH_SEND_WITH_INV).invalidate_rkey =
      RemoteKey{rkey};
}

void build_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  stage_remote(qp, SendOpcode::write, IBV_QP_EX_WITH_RDMA_WRITE, rkey, address);
}

void build_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
  stage_remote(qp, SendOpcode::write_with_immediate, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, rkey,
               address, immediate);
}

void build_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  stage_remote(qp, SendOpcode::read, IBV_QP_EX_WITH_RDMA_READ, rkey, address);
}

void build_compare_swap(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address,
                        std::uint64_t compare, std::uint64_t swap) {
  verbs::SendRequest& request =
      stage(qp, SendOpcode::compare_swap, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP);
  request.rkey = RemoteKey{rkey};
  request.remote_address = address;
  request.compare_add = compare;
  request.swap = swap;
}

void build_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t add) {
  verbs::SendRequest& request =
      stage(qp, SendOpcode::fetch_add, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
  request.rkey = RemoteKey{rkey};
  request.remote_address = address;
  request.compare_add = add;
}

void build_atomic_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address,
                        const void* value) {
  verbs::SendRequest& request = stage(qp, SendOpcode::atomic_write, IBV_QP_EX_WITH_ATOMIC_WRITE);
  if (value == nullptr) return note(Qp::of(qp).staged, EINVAL, "the atomic write has no value");
  request.rkey = RemoteKey{rkey};
  request.remote_address = address;
  std::memcpy(&request.compare_add, value, sizeof(request.compare_add));
}

void build_local_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  stage(qp, SendOpcode::local_invalidate, IBV_QP_EX_WITH_LOCAL_INV).invalidate_rkey =
      RemoteKey{rkey};
}

void build_bind(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  verbs::SendRequest& request = stage(qp, SendOpcode::bind_window, IBV_QP_EX_WITH_BIND_MW);
  if (mw == nullptr || info == nullptr ||
      !to_access(info->mw_access_flags, request.window_access)) {
    return note(Qp::of(qp).staged, EINVAL,
                "the bind has no window or no bind_info, or mw_access_flags that are not offered");
  }
  request.window = Mw::of(mw).window;
  request.window_rkey = RemoteKey{rkey};
  request.window_region = info->mr != nullptr ? Mr::of(info->mr).region : nullptr;
  request.window_address = info->addr;
  request.window_length = info->length;
}

void set_ud_address(ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t remote_qp, std::uint32_t qkey) {
  StagedWork::Item* item = last_item(Qp::of(qp).staged);
  if (item == nullptr || ah == nullptr) return note(Qp::of(qp).staged, EINVAL, "ah is null");
  item->request.address_handle = Ah::of(ah).target;
  item->request.remote_qp = QpNumber{remote_qp};
  item->request.remote_qkey = Qkey{qkey};
}

void set_xrc_srq(ibv_qp_ex* qp, std::uint32_t number) {
  StagedWork::Item* item = last_item(Qp::of(qp).staged);
  if (item != nullptr) item->request.xrc_srq = number;
}

void set_sge_list(ibv_qp_ex* qp, std::size_t count, const ibv_sge* list) {
  StagedWork& staged = Qp::of(qp).staged;
  StagedWork::Item* item = last_item(staged);
  if (item == nullptr || (list == nullptr && count > 0) || count > verbs::sges_max) {
    return note(staged, EINVAL, "sg_list is null, or num_sge is above 16");
  }
  for (std::size_t i = 0; i < count; ++i) {
    staged.sges.push_back({list[i].addr, list[i].length, LocalKey{list[i].lkey}});
  }
  item->sge_count = staged.sges.size() - item->first_sge;
}

void set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  const ibv_sge sge = {address, length, lkey};
  set_sge_list(qp, 1, &sge);
}

void set_inline_list(ibv_qp_ex* qp, std::size_t count, const ibv_data_buf* list) {
  StagedWork& staged = Qp::of(qp).staged;
  StagedWork::Item* item = last_item(staged);
  if (item == nullptr || (list == nullptr && count > 0)) {
    return note(staged, EINVAL, "the list of inline data is null");
  }
  item->request.flags |= SendFlag::inline_data;
  for (std::size_t i = 0; i < count; ++i) {
    const auto* bytes = static_cast<const std::byte*>(list[i].addr);
    const std::size_t so_far = staged.bytes.size() - item->first_byte;
    if (list[i].length > Qp::of(qp).pair->init.inline_bytes - so_far) {
      return note(staged, EINVAL, "the inline data is longer than max_inline_data");
    }
    if (list[i].length > 0) {
      staged.bytes.insert(staged.bytes.end(), bytes, bytes + list[i].length);
    }
  }
  item->byte_count = staged.bytes.size() - item->first_byte;
}

void set_inline(ibv_qp_ex* qp, void* address, std::size_t length) {
  const ibv_data_buf buffer = {address, length};
  set_inline_list(qp, 1, &buffer);
}

void start(ibv_qp_ex* ibv) {
  Qp& qp = Qp::of(ibv);
  qp.building.lock();
  qp.staged.items.clear();
  qp.staged.sges.clear();
  qp.staged.bytes.clear();
  qp.staged.error = 0;
}

// A request in the middle that would fail must be found before the first is posted.
int check(Qp& qp) {
  StagedWork& staged = qp.staged;
  if (staged.error != 0) return staged.error;
  const transport::QueuePair& pair = *qp.pair;
  if (staged.items.size() > pair.init.send_work_requests - pair.send_queue.size()) return ENOMEM;
  for (StagedWork::Item& item : staged.items) {
    item.request.sges = {staged.sges.data() + item.first_sge, item.sge_count};
    item.bytes = {staged.bytes.data() + item.first_byte, item.byte_count};
    item.request.inline_pieces = {&item.bytes, 1};
    if (const int error = to_errno(pair.check(item.request)); error != 0) return error;
  }
  return 0;
}

int post(Qp& qp, Context& context) {
  for (const StagedWork::Item& item : qp.staged.items) {
    const int error = post_request(context, qp, item.request);
    if (error != 0) return error;
  }
  return 0;
}

// Builders and setters return nothing. ibv_wr_complete says that one of them got no memory.
template <auto function>
struct Builder;
template <typename... Arguments, void (*function)(ibv_qp_ex*, Arguments...)>
struct Builder<function> {
  static void call(ibv_qp_ex* qp, Arguments... arguments) {
    try {
      function(qp, arguments...);
    } catch (const std::bad_alloc&) {
      note(Qp::of(qp).staged, ENOMEM, "");
    }
  }
};
template <auto function>
constexpr auto builder = &Builder<function>::call;

void tell_refused(Context& context, const Qp& qp, int error) noexcept try {
  if (error == ENOMEM && context.has_told_full) return;
  const StagedWork& staged = qp.staged;
  std::string why = staged.error != 0 ? staged.why : "";
  if (staged.error == 0 && error == ENOMEM) why = "the send queue has no room for all requests";
  for (std::size_t i = 0; i < staged.items.size() && staged.error == 0 && why.empty(); ++i) {
    why = why_not_posted(context, qp, staged.items[i].request);
  }
  keep_refused_work(context, "ibv_wr_complete", error, why);
} catch (const std::bad_alloc&) {  // there is no memory for a reason
}

int complete(ibv_qp_ex* ibv) {
  Qp& qp = Qp::of(ibv);
  Context& context = Context::of(ibv->qp_base.context);
  int error = 0;
  {
    const auto guard = context.lock_for_work();
    try {
      error = check(qp);
      if (error == 0) error = post(qp, context);
    } catch (const std::bad_alloc&) {
      error = ENOMEM;
    }
    context.live->transmit_posted();
    if (error != 0) [[unlikely]]
      tell_refused(context, qp, error);
  }
  qp.building.unlock();
  return report(error);
}

void abort_work(ibv_qp_ex* qp) { Qp::of(qp).building.unlock(); }

}  // namespace

void serve_builders(Qp& qp) {
  qp.wr_start = start;
  qp.wr_complete = complete;
  qp.wr_abort = abort_work;
  qp.wr_send = builder<build_send>;
  qp.wr_send_imm = builder<build_send_imm>;
  qp.wr_send_inv = builder<build_send_inv>;
  qp.wr_rdma_write = builder<build_write>;
  qp.wr_rdma_write_imm = builder<build_write_imm>;
  qp.wr_rdma_read = builder<build_read>;
  qp.wr_atomic_cmp_swp = builder<build_compare_swap>;
  qp.wr_atomic_fetch_add = builder<build_fetch_add>;
  qp.wr_atomic_write = builder<build_atomic_write>;
  qp.wr_local_inv = builder<build_local_inv>;
  qp.wr_bind_mw = builder<build_bind>;
  qp.wr_set_ud_addr = builder<set_ud_address>;
  qp.wr_set_xrc_srqn = builder<set_xrc_srq>;
  qp.wr_set_sge = builder<set_sge>;
  qp.wr_set_sge_list = builder<set_sge_list>;
  qp.wr_set_inline_data = builder<set_inline>;
  qp.wr_set_inline_data_list = builder<set_inline_list>;
}

}  // namespace tulle::shim
