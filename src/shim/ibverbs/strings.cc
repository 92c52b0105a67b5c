// Tables of names and rates.

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>

#include "shim/ibverbs/newer.h"
#include "shim/ibverbs/private_nodes.h"

namespace tulle::shim {
namespace {

struct Rate {
  ibv_rate rate;
  int multiple;  // of 2.5 Gb/s; `none` where rdma-core gives none
  int megabits;  // rate of the lanes: FDR's 14 Gb/s are 14.0625
};
constexpr int none = -1;
constexpr std::array<Rate, 23> rates = {{
    {IBV_RATE_2_5_GBPS, 1, 2500},       {IBV_RATE_5_GBPS, 2, 5000},
    {IBV_RATE_10_GBPS, 4, 10000},       {IBV_RATE_20_GBPS, 8, 20000},
    {IBV_RATE_30_GBPS, 12, 30000},      {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},      {IBV_RATE_80_GBPS, 32, 80000},
    {IBV_RATE_120_GBPS, 48, 120000},    {IBV_RATE_14_GBPS, none, 14062},
    {IBV_RATE_56_GBPS, none, 56250},    {IBV_RATE_112_GBPS, none, 112500},
    {IBV_RATE_168_GBPS, none, 168750},  {IBV_RATE_25_GBPS, none, 25781},
    {IBV_RATE_100_GBPS, none, 103125},  {IBV_RATE_200_GBPS, none, 206250},
    {IBV_RATE_300_GBPS, none, 309375},  {IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_50_GBPS, 20, 53125},      {IBV_RATE_400_GBPS, 160, 425000},
    {IBV_RATE_600_GBPS, 240, 637500},   {IBV_RATE_800_GBPS, 320, 850000},
    {IBV_RATE_1200_GBPS, 480, 1275000},
}};

template <std::size_t Count>
const char* name_of(const std::array<const char*, Count>& names, int value) {
  const bool known = value >= 0 && static_cast<std::size_t>(value) < Count &&
                     names[static_cast<std::size_t>(value)] != nullptr;
  return known ? names[static_cast<std::size_t>(value)] : "unknown";
}

constexpr std::array<const char*, 8> node_types = {nullptr,
                                                   "InfiniBand channel adapter",
                                                   "InfiniBand switch",
                                                   "InfiniBand router",
                                                   "iWARP NIC",
                                                   "usNIC",
                                                   "usNIC UDP",
                                                   "unspecified"};

constexpr std::array<const char*, 6> port_states = {
    "no state change (NOP)", "down", "init", "armed", "active", "active defer"};

constexpr std::array<const char*, 21> event_types = {"CQ error",
                                                     "local work queue catastrophic error",
                                                     "invalid request local work queue error",
                                                     "local access violation work queue error",
                                                     "communication established",
                                                     "send queue drained",
                                                     "path migrated",
                                                     "path migration request error",
                                                     "local catastrophic error",
                                                     "port active",
                                                     "port error",
                                                     "LID change",
                                                     "P_Key change",
                                                     "SM change",
                                                     "SRQ catastrophic error",
                                                     "SRQ limit reached",
                                                     "last WQE reached",
                                                     "client reregistration",
                                                     "GID table change",
                                                     "WQ fatal",
                                                     "Device link speed change"};

constexpr std::array<const char*, 24> completion_statuses = {"success",
                                                             "local length error",
                                                             "local QP operation error",
                                                             "local EE context operation error",
                                                             "local protection error",
                                                             "Work Request Flushed Error",
                                                             "memory management operation error",
                                                             "bad response error",
                                                             "local access error",
                                                             "remote invalid request error",
                                                             "remote access error",
                                                             "remote operation error",
                                                             "transport retry counter exceeded",
                                                             "RNR retry counter exceeded",
                                                             "local RDD violation error",
                                                             "remote invalid RD request",
                                                             "aborted error",
                                                             "invalid EE context number",
                                                             "invalid EE context state",
                                                             "fatal error",
                                                             "response timeout error",
                                                             "general error",
                                                             "TM error",
                                                             "TM software rendezvous"};

// Names by the numbers of ibv_wr_opcode.
constexpr std::array<const char*, 16> work_opcodes = {"rdma-write",
                                                      "rdma-write-with-imm",
                                                      "send",
                                                      "send-with-imm",
                                                      "rdma-read",
                                                      "atomic-cmp-and-swp",
                                                      "atomic-fetch-and-add",
                                                      "local-inv",
                                                      "bind-mw",
                                                      "send-with-inv",
                                                      "tso",
                                                      "driver1",
                                                      nullptr,
                                                      nullptr,
                                                      "flush",
                                                      "atomic-write"};

}  // namespace

extern "C" {

const char* ibv_node_type_str(ibv_node_type type) { return name_of(node_types, type); }
const char* ibv_port_state_str(ibv_port_state state) { return name_of(port_states, state); }
const char* ibv_event_type_str(ibv_event_type type) { return name_of(event_types, type); }
const char* ibv_wc_status_str(ibv_wc_status status) { return name_of(completion_statuses, status); }
// Later releases declare this function among the public ones, but export it at the private nodes.
const char* ibv_wr_opcode_str(ibv_wr_opcode opcode) { return name_of(work_opcodes, opcode); }
TULLE_SINCE_34(ibv_wr_opcode_str)

int ibv_rate_to_mult(ibv_rate rate) {
  for (const Rate& known : rates) {
    if (known.rate == rate) return known.multiple;
  }
  return -1;
}

ibv_rate mult_to_ibv_rate(int multiple) {
  for (const Rate& known : rates) {
    if (known.multiple == multiple && multiple != none) return known.rate;
  }
  return IBV_RATE_MAX;
}

int ibv_rate_to_mbps(ibv_rate rate) {
  for (const Rate& known : rates) {
    if (known.rate == rate) return known.megabits;
  }
  return -1;
}

ibv_rate mbps_to_ibv_rate(int megabits) {
  for (const Rate& known : rates) {
    if (known.megabits == megabits) return known.rate;
  }
  return IBV_RATE_MAX;
}

}  // extern "C"

}  // namespace tulle::shim
