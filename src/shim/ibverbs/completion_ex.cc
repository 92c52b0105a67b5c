// Polling without ibv_wc: the program takes one completion at a time and reads the fields that it
// wants.

#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

// Returns 0 if `current` holds the next completion, and ENOENT if there is none.
int take(Cq& cq, bool make_progress) {
  Context& context = Context::of(cq.context);
  auto guard = context.lock_for_work();
  std::uint32_t count = shim::take(context, *cq.queue, {&cq.current, 1});
  while (count == 0 && make_progress) {
    context.live->progress();
    count = shim::take(context, *cq.queue, {&cq.current, 1});
    if (count == 0 && !may_have_come(cq, guard)) break;
  }
  if (count == 0) return ENOENT;
  if (context.is_strict) [[unlikely]]
    note_polled(context, cq.current);
  cq.is_being_drained = true;
  cq.wr_id = cq.current.wr_id;
  cq.status = to_wc_status(cq.current.status);
  return 0;
}

int start_poll(ibv_cq_ex* ibv, ibv_poll_cq_attr* attributes) {
  if (attributes != nullptr && attributes->comp_mask != 0) return report(EINVAL);
  Cq& cq = Cq::of(ibv);
  if (!cq.single_threaded) cq.polling.lock();
  const int error = take(cq, true);
  // A program that gets no completion does not call ibv_end_poll.
  if (error != 0 && !cq.single_threaded) cq.polling.unlock();
  return error;
}

// This function makes no progress, so that a round of polling ends.
int next_poll(ibv_cq_ex* ibv) { return take(Cq::of(ibv), false); }

void end_poll(ibv_cq_ex* ibv) {
  Cq& cq = Cq::of(ibv);
  if (!cq.single_threaded) cq.polling.unlock();
}

const verbs::Completion& current(ibv_cq_ex* ibv) { return Cq::of(ibv).current; }

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) { return to_wc_opcode(current(cq).opcode); }
std::uint32_t read_vendor_error(ibv_cq_ex*) { return 0; }
std::uint32_t read_byte_length(ibv_cq_ex* cq) { return current(cq).byte_length; }
std::uint32_t read_qp_number(ibv_cq_ex* cq) { return current(cq).qp.value; }
std::uint32_t read_source_qp(ibv_cq_ex* cq) { return current(cq).source_qp.value; }
unsigned read_flags(ibv_cq_ex* cq) { return to_wc_flags(current(cq)); }

// Returns immediate data, or the key that was invalidated. The C API reads both here.
__be32 read_immediate(ibv_cq_ex* cq) {
  return current(cq).has_invalidate ? current(cq).invalidated_rkey.value : current(cq).immediate;
}

std::uint8_t read_service_level(ibv_cq_ex* cq) { return to_service_level(current(cq)); }

// These are 0 on a RoCE port, which has no LIDs.
std::uint32_t read_source_lid(ibv_cq_ex* cq) { return to_local_source(current(cq)).lid; }
std::uint8_t read_path_bits(ibv_cq_ex* cq) { return to_local_source(current(cq)).path_bits; }

}  // namespace

void serve_polling(Cq& cq) {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read_opcode;
  cq.read_vendor_err = read_vendor_error;
  cq.read_byte_len = read_byte_length;
  cq.read_imm_data = read_immediate;
  cq.read_qp_num = read_qp_number;
  cq.read_src_qp = read_source_qp;
  cq.read_wc_flags = read_flags;
  cq.read_slid = read_source_lid;
  cq.read_sl = read_service_level;
  cq.read_dlid_path_bits = read_path_bits;
}

}  // namespace tulle::shim
