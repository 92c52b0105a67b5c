#include "study/workload/flow_memory.h"

namespace tulle::workload {

void FlowMemory::give(std::uint32_t flow) {
  Memory& memory = memories_[flow];
  give(flows_[flow].source, flows_[flow].bytes, memory.sent);
  give(flows_[flow].destination, flows_[flow].bytes, memory.received);
  fill_payload(settings_.seed, flow, memory.sent.bytes);
}

void FlowMemory::give(std::uint32_t host, std::uint64_t bytes, Buffer& buffer) {
  buffer.bytes.resize(bytes);
  buffer.region = endpoints_.register_memory(host, buffer.bytes.data(), bytes);
}

void FlowMemory::take(std::uint32_t host, Buffer& buffer) {
  endpoints_.deregister(host, buffer.region);
  buffer = {};
}

void FlowMemory::check(std::uint32_t flow) {
  const auto difference = check_payload(settings_.seed, flow, memories_[flow].received.bytes);
  if (!difference) {
    bytes_verified_ += flows_[flow].bytes;
  } else if (!corruption_) {
    corruption_ = Corruption{flow, *difference};
  }
}

}  // namespace tulle::workload
