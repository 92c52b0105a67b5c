#include "shim/ibverbs/reasons.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "rdma/transport/rc/extended.h"
#include "rdma/verbs/qp_state.h"

namespace tulle::shim {
namespace {

using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;

struct Name {
  QpAttribute attribute;
  std::string_view name;
};
constexpr std::array<Name, 21> attribute_names = {{
    {QpAttribute::current_state, "IBV_QP_CUR_STATE"},
    {QpAttribute::sqd_async_notify, "IBV_QP_EN_SQD_ASYNC_NOTIFY"},
    {QpAttribute::access_flags, "IBV_QP_ACCESS_FLAGS"},
    {QpAttribute::pkey_index, "IBV_QP_PKEY_INDEX"},
    {QpAttribute::port, "IBV_QP_PORT"},
    {QpAttribute::qkey, "IBV_QP_QKEY"},
    {QpAttribute::address_vector, "IBV_QP_AV"},
    {QpAttribute::path_mtu, "IBV_QP_PATH_MTU"},
    {QpAttribute::timeout, "IBV_QP_TIMEOUT"},
    {QpAttribute::retry_count, "IBV_QP_RETRY_CNT"},
    {QpAttribute::rnr_retry, "IBV_QP_RNR_RETRY"},
    {QpAttribute::rq_psn, "IBV_QP_RQ_PSN"},
    {QpAttribute::max_rd_atomic, "IBV_QP_MAX_QP_RD_ATOMIC"},
    {QpAttribute::alternate_path, "IBV_QP_ALT_PATH"},
    {QpAttribute::min_rnr_timer, "IBV_QP_MIN_RNR_TIMER"},
    {QpAttribute::sq_psn, "IBV_QP_SQ_PSN"},
    {QpAttribute::max_dest_rd_atomic, "IBV_QP_MAX_DEST_RD_ATOMIC"},
    {QpAttribute::path_migration_state, "IBV_QP_PATH_MIG_STATE"},
    {QpAttribute::capabilities, "IBV_QP_CAP"},
    {QpAttribute::destination_qp, "IBV_QP_DEST_QPN"},
    {QpAttribute::rate_limit, "IBV_QP_RATE_LIMIT"},
}};

std::string names_of(QpAttributeMask mask) {
  std::string text;
  for (const Name& each : attribute_names) {
    if (!mask.has(each.attribute)) continue;
    text += text.empty() ? "" : ", ";
    text += each.name;
  }
  return text;
}

constexpr std::array<std::string_view, 7> state_names = {"RESET", "INIT", "RTR", "RTS",
                                                         "SQD",   "SQE",  "ERR"};
std::string_view name_of(QpState state) { return state_names[static_cast<std::size_t>(state)]; }

std::string wrong_step(const Qp& qp, const ibv_qp_attr& attributes, QpAttributeMask mask) {
  const QpState from = qp.pair->state();
  QpState to = from;
  if (mask.has(QpAttribute::state) && !to_state(attributes.qp_state, to)) {
    return fmt::format("qp_state {} is no state", static_cast<int>(attributes.qp_state));
  }
  if (mask.has(QpAttribute::current_state)) {
    QpState current = from;
    if (!to_state(attributes.cur_qp_state, current) || current != from) {
      return fmt::format("the queue pair is in {}, and cur_qp_state is another state",
                         name_of(from));
    }
  }
  const verbs::StepFinding found = verbs::find_in_step(qp.pair->transport.ladder, from, to, mask);
  switch (found.verdict) {
    case verbs::LadderVerdict::ok:
      return "";
    case verbs::LadderVerdict::no_such_step:
      return fmt::format("there is no step from {} to {}", name_of(from), name_of(to));
    case verbs::LadderVerdict::attribute_missing:
      return fmt::format("the step from {} to {} needs {}", name_of(from), name_of(to),
                         names_of(found.attributes));
    case verbs::LadderVerdict::attribute_not_allowed:
      return fmt::format("the step from {} to {} does not take {}", name_of(from), name_of(to),
                         names_of(found.attributes));
  }
  return "";
}

bool is_port(const device::Configuration& device, unsigned number) {
  return number >= 1 && number <= device.ports;
}

std::string above(const char* name, std::uint64_t value, std::uint64_t most) {
  return value <= most ? "" : fmt::format("{} is {}, and {} is the most", name, value, most);
}

std::string wrong_value(Context& context, const ibv_qp_attr& from, QpAttributeMask mask) {
  const device::Configuration& device = context.adapter().configuration();
  const std::uint32_t depth = device.limits.read_atomic_depth;
  struct Value {
    QpAttribute attribute;
    const char* name;
    std::uint64_t value, most;
  };
  const std::array values = {
      Value{QpAttribute::timeout, "timeout", from.timeout, 31},
      Value{QpAttribute::retry_count, "retry_cnt", from.retry_cnt, 7},
      Value{QpAttribute::rnr_retry, "rnr_retry", from.rnr_retry, 7},
      Value{QpAttribute::min_rnr_timer, "min_rnr_timer", from.min_rnr_timer, 31},
      Value{QpAttribute::destination_qp, "dest_qp_num", from.dest_qp_num, 0xFF'FFFF},
      Value{QpAttribute::max_rd_atomic, "max_rd_atomic", from.max_rd_atomic, depth},
      Value{QpAttribute::max_dest_rd_atomic, "max_dest_rd_atomic", from.max_dest_rd_atomic, depth},
  };
  for (const Value& each : values) {
    if (!mask.has(each.attribute)) continue;
    if (std::string text = above(each.name, each.value, each.most); !text.empty()) return text;
  }
  if (mask.has(QpAttribute::port) && !is_port(device, from.port_num)) {
    return fmt::format("port_num is {}; the device has ports 1 to {}", from.port_num, device.ports);
  }
  if (mask.has(QpAttribute::pkey_index) && from.pkey_index != 0 && !context.is_infiniband) {
    return fmt::format("pkey_index is {}; RoCE has one P_Key, at index 0", from.pkey_index);
  }
  if (mask.has(QpAttribute::path_mtu)) {
    const auto code = static_cast<std::uint8_t>(from.path_mtu);
    if (code < 1 || code > verbs::mtu_code_max) {
      return fmt::format("path_mtu {} is no enum ibv_mtu", static_cast<int>(from.path_mtu));
    }
    if (verbs::mtu_bytes(code) > device.mtu_bytes) {
      return fmt::format(
          "path_mtu is {} and the port's active_mtu {}: take the smaller of both "
          "ends' active_mtu",
          verbs::mtu_bytes(code), device.mtu_bytes);
    }
  }
  return "";
}

}  // namespace

std::string why_no_address(Context& context, const ibv_ah_attr& from) {
  device::Adapter& adapter = context.adapter();
  if (!is_port(adapter.configuration(), from.port_num)) {
    return fmt::format("ah_attr.port_num is {}; the device has ports 1 to {}", from.port_num,
                       adapter.configuration().ports);
  }
  if (context.is_infiniband && from.dlid == 0) return "ah_attr.dlid is 0";
  if (!context.is_infiniband && from.is_global == 0) {
    return "ah_attr.is_global is 0; RoCE needs a GRH, with the peer's GID (dgid) and the index of "
           "an own one (sgid_index)";
  }
  if (from.is_global == 0) return "";
  const unsigned index = from.grh.sgid_index;
  if (!adapter.has_gid(index, from.port_num)) {
    return fmt::format("there is no GID at ah_attr.grh.sgid_index {} (`tulle devices` lists them)",
                       index);
  }
  const bool is_ipv4 = adapter.gids(from.port_num)[index].is_ipv4_mapped();
  if (!context.is_infiniband && to_gid(from.grh.dgid.raw).is_ipv4_mapped() != is_ipv4) {
    return fmt::format(
        "the GID at ah_attr.grh.sgid_index {} is of {}, and ah_attr.grh.dgid is not "
        "(`tulle devices` lists the GIDs)",
        index, is_ipv4 ? "IPv4" : "IPv6");
  }
  return "";
}

std::string why_not_modified(Context& context, const Qp& qp, const ibv_qp_attr& from, int mask) {
  QpAttributeMask given;
  if (!to_mask(mask, given)) return fmt::format("attr_mask {:#x} has unknown bits", mask);
  if (std::string text = wrong_step(qp, from, given); !text.empty()) return text;
  if (std::string text = wrong_value(context, from, given); !text.empty()) return text;
  if (given.has(QpAttribute::address_vector)) {
    if (std::string text = why_no_address(context, from.ah_attr); !text.empty()) return text;
    const std::uint8_t port =
        given.has(QpAttribute::port) ? from.port_num : qp.pair->attributes().port;
    if (from.ah_attr.port_num != port) {
      return fmt::format("ah_attr.port_num is {}, and the queue pair's port {}",
                         from.ah_attr.port_num, port);
    }
  }
  if (given.has(QpAttribute::rate_limit)) return "the device does not pace (IBV_QP_RATE_LIMIT)";
  return "";
}

std::string why_not_created(Context& context, const ibv_qp_init_attr& from) {
  const device::Limits& limits = context.adapter().configuration().limits;
  struct Value {
    const char* name;
    std::uint64_t value, most;
  };
  for (const Value& each :
       {Value{"cap.max_send_wr", from.cap.max_send_wr, limits.work_requests},
        Value{"cap.max_recv_wr", from.cap.max_recv_wr, limits.work_requests},
        Value{"cap.max_send_sge", from.cap.max_send_sge, limits.sges},
        Value{"cap.max_recv_sge", from.cap.max_recv_sge, limits.sges},
        Value{"cap.max_inline_data", from.cap.max_inline_data, limits.inline_bytes}}) {
    if (std::string text = above(each.name, each.value, each.most); !text.empty()) return text;
  }
  if (context.adapter().queue_pairs_in_use() >= context.adapter().configuration().qp_count) {
    return fmt::format("the process has {} queue pairs, and no more are to be had",
                       context.adapter().queue_pairs_in_use());
  }
  return "";
}

namespace {

constexpr std::array<std::string_view, 11> operation_names = {"SEND",
                                                              "SEND with immediate",
                                                              "SEND with invalidate",
                                                              "WRITE",
                                                              "WRITE with immediate",
                                                              "READ",
                                                              "compare and swap",
                                                              "fetch and add",
                                                              "atomic write",
                                                              "local invalidate",
                                                              "bind of a window"};

std::string_view name_of(verbs::SendOpcode opcode) {
  return operation_names[static_cast<std::size_t>(opcode)];
}

std::string full(const char* queue, std::uint32_t entries, bool is_until_polled) {
  const char* until =
      is_until_polled ? "a completion of one of them is polled" : "one of them ends";
  return fmt::format("the {} queue is full: it has {} requests, until {}", queue, entries, until);
}

std::string wrong_handle(const transport::QueuePair& pair, const verbs::AddressHandle* handle) {
  if (handle == nullptr) return "wr.ud.ah is null";
  if (handle->to.port != pair.attributes().port) {
    return fmt::format("wr.ud.ah is of port {}, and the queue pair's port is {}", handle->to.port,
                       pair.attributes().port);
  }
  const bool is_foreign = handle->pd != pair.init.pd && !pair.transport.finds_foreign_handles_late;
  return is_foreign ? "wr.ud.ah is of another protection domain" : "";
}

}  // namespace

std::string why_not_posted(Context& context, const Qp& qp, const verbs::SendRequest& request) {
  const transport::QueuePair& pair = *qp.pair;
  const QpState state = pair.state();
  if (state == QpState::reset || state == QpState::init || state == QpState::rtr) {
    return fmt::format("the queue pair is in {}, and sends are posted from RTS on", name_of(state));
  }
  if (context.like != nullptr && !context.like->has_atomics && is_atomic(request.opcode)) {
    return fmt::format("{} has no atomic operations", context.like->name);
  }
  if (!pair.transport.sends.has(request.opcode)) {
    return fmt::format("a queue pair of type {} has no {}", pair.transport.name,
                       name_of(request.opcode));
  }
  if (qp.qp_base.qp_type == IBV_QPT_XRC_SEND && !transport::rc::extended::names_queue(request)) {
    return fmt::format("qp_type.xrc.remote_srqn {:#x} is no number of a shared receive queue",
                       request.xrc_srq);
  }
  if (pair.transport.is_datagram) {
    if (std::string text = wrong_handle(pair, request.address_handle); !text.empty()) return text;
  }
  const bool is_inline = request.flags.has(verbs::SendFlag::inline_data);
  if (is_inline && request.opcode == verbs::SendOpcode::read) {
    return "a READ has IBV_SEND_INLINE, and no data to send";
  }
  const std::size_t entries = request.sges.size();
  const std::size_t most = pair.send_queue.sges_per_request();
  if (!is_inline && entries > most) return above("num_sge", entries, most);
  const std::uint64_t length = transport::length_of(request);
  if (is_inline && length > pair.send_queue.inline_bytes()) {
    return fmt::format("{} bytes are inline, and max_inline_data is {}", length,
                       pair.send_queue.inline_bytes());
  }
  if (length > transport::message_bytes_max) {
    return fmt::format("the message has {} bytes, and {} is the most (max_msg_sz)", length,
                       transport::message_bytes_max);
  }
  if (qp.entries != nullptr && !qp.entries->has_room()) {
    return full("send", pair.send_queue.capacity(), true);
  }
  if (pair.send_queue.size() >= pair.send_queue.capacity())
    return full("send", pair.send_queue.capacity(), false);
  return "";
}

std::string why_not_posted(const verbs::ReceiveQueue& queue, const verbs::ReceiveRequest& request) {
  std::string many = above("num_sge", request.sges.size(), queue.sges_per_request());
  if (!many.empty()) return many;
  return queue.size() >= queue.capacity() ? full("receive", queue.capacity(), false) : "";
}

std::string why_not_posted(const Qp& qp, const verbs::ReceiveRequest& request) {
  const transport::QueuePair& pair = *qp.pair;
  if (pair.init.srq != nullptr) {
    return "the queue pair receives from a shared receive queue (ibv_post_srq_recv)";
  }
  if (!pair.transport.has_receive_queue()) {
    return fmt::format("a queue pair of type {} has no receive queue", pair.transport.name);
  }
  if (pair.state() == QpState::reset) {
    return "the queue pair is in RESET, and receives are posted from INIT on";
  }
  if (qp.receive_entries && !qp.receive_entries->has_room()) {
    return full("receive", pair.receive_queue.capacity(), true);
  }
  return why_not_posted(pair.receive_queue, request);
}

void keep_refused_work(Context& context, const char* verb, int error,
                       const std::string& why) noexcept {
  if (error == ENOMEM && std::exchange(context.has_told_full, true)) return;
  keep_refusal(context, verb, error, why);
}

void keep_refusal(Context& context, const char* verb, int error, const std::string& why) noexcept
    try {
  const int saved = errno;
  const char* colon = why.empty() ? "" : ": ";
  context.live->keep_refusal(fmt::format("{}: {}{}{}", verb, std::strerror(error), colon, why));
  errno = saved;
} catch (...) {  // there is no memory for a reason
}

}  // namespace tulle::shim
