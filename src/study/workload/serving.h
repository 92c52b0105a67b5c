#pragma once

// Inference as a graph of tasks, with prefill and decode on separate servers (Zhong et al., OSDI
// 2024; Patel et al., ISCA 2024). A request arrives at a prefill server, which computes the keys
// and values of its prompt (the KV cache). They go to a decode server by the network, and there the
// request joins a batch, each round of which makes one token for each of its requests.

#include <cstdint>

#include "base/result.h"
#include "study/workload/job.h"
#include "study/workload/servers.h"
#include "study/workload/training.h"

namespace tulle::workload {

struct ServingSettings {
  TransformerModel model;  // without a sequence
  Gpu gpu;
  Servers servers;
  std::uint32_t prefill = 1;  // servers that do so; all others decode
  std::uint32_t tensor = 0;   // GPUs that share each layer, within a server; 0: all of a server
  std::uint32_t requests = 0;
  double rate = 0;                // requests a second
  bool is_poisson = true;         // otherwise they come at equal distances
  std::uint32_t prompt = 0;       // tokens
  std::uint32_t output = 0;       // tokens
  std::uint32_t batch = 256;      // requests of one decode group at most
  std::uint32_t value_bytes = 2;  // of a weight, and of a key's or value's number
  std::uint64_t seed = 1;         // of the arrivals

  std::uint32_t group() const { return tensor == 0 ? servers.gpus : tensor; }
  std::uint64_t cache_bytes_of_token() const;  // keys and values of all layers
  std::uint64_t cache_bytes() const { return prompt * cache_bytes_of_token(); }
};

struct Serving {
  TaskGraph graph{1};
  BatchSettings batches;
  std::vector<Request> requests;  // in the order of their arrival
};

// The graph has the phases "prefill", "cache" and "decode". The error is one line.
Result<Serving> make_serving(const ServingSettings& settings);

}  // namespace tulle::workload
