#pragma once

// Expert parallelism as a graph of tasks: the layers of a mixture of experts whose experts are on
// many GPUs. Each GPU sends its tokens to the GPUs of their experts (dispatch) and gets their
// outputs back (combine). A router chooses the experts of a token; here, they are drawn.

#include <array>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "study/workload/servers.h"
#include "study/workload/task_graph.h"

namespace tulle::workload {

enum class ExpertOperation : std::uint8_t {
  dispatch,  // alone
  combine,   // alone
  layer,     // attention, dispatch, the experts and combine
};
inline constexpr std::array<std::string_view, 3> expert_operation_names = {"dispatch", "combine",
                                                                           "layer"};

enum class ExpertRoute : std::uint8_t {
  // A token goes to each of its experts by itself, as in DeepEP's kernels for low latency.
  direct,
  // A token crosses the network once for each server that has experts of it, between GPUs of one
  // number, and the scale-up network does the rest, as in DeepEP's kernels for high throughput.
  by_server,
};
inline constexpr std::array<std::string_view, 2> expert_route_names = {"direct", "by-server"};

struct ExpertSettings {
  ExpertOperation operation = ExpertOperation::layer;
  ExpertRoute route = ExpertRoute::direct;
  Servers servers;
  // GPUs that share one set of experts; it divides all GPUs, and other GPUs have separate sets. 0
  // means all GPUs. With more than one server, a group has whole servers.
  std::uint32_t group = 0;
  // Experts of a group; a multiple of its GPUs. 0 means the least multiple from 256 on.
  std::uint32_t experts = 0;
  std::uint32_t experts_of_token = 8;  // at most the experts
  // The experts of a token are on so many servers at most (DeepSeek-V3 report, 2.1.2). 0 means any
  // number.
  std::uint32_t servers_of_token = 0;
  std::uint32_t tokens = 128;  // of a GPU, in one micro-batch
  // Bytes of a token on its way, once for each copy. The defaults are DeepEP's for a model of a
  // width of 7,168: FP8 values, a 4-byte scale for each 128 of them, and 16 bytes of header; and
  // the outputs in BF16.
  std::uint64_t dispatch_bytes = 7'408;
  std::uint64_t combine_bytes = 14'336;
  std::uint32_t chunk_tokens = 16;  // by server: tokens that go in one message
  // The expert at place n of popularity, from 1 on, is chosen in proportion to n^-skew (Zipf). 0
  // means that all are alike.
  double skew = 0;
  std::uint64_t seed = 1;
  // The time that a GPU takes for each dispatch or combine besides the messages: its kernel begins,
  // packs tokens, and waits for others. The default is what is missing in two of DeepEP's figures,
  // dispatch on 8 and on 16 H800 (study/experiment/experts_test.cc).
  Time overhead = Time::nanoseconds(28'900);
  Time attention_time;  // of a micro-batch, before each layer's dispatch
  Time token_time;      // that a GPU takes for one token at one expert
  std::uint32_t layers = 1;
  // Micro-batches go through the layers at once: the messages of one are under way while another
  // one is computed.
  std::uint32_t micro_batches = 1;
};

// The graph has the phases "attention", "dispatch", "experts" and "combine". The error is one line.
Result<TaskGraph> make_experts(const ExpertSettings& settings);

// Returns the mean number of bytes that a GPU's tokens have in one dispatch, or in one combine, if
// each copy for an expert is counted, also one that stays on the GPU. DeepEP's bandwidths are these
// bytes over the time.
std::uint64_t expert_bytes(const ExpertSettings& settings);

}  // namespace tulle::workload
