#include "rdma/optional/host_stack.h"
#include "study/scenario/build.h"

namespace tulle::scenario {

// The default of every key is the value that the stack has already, so that a scenario can change
// parts of a profile.
void read_kernel(TableReader& table, device::HostStackSettings& stack) {
  if (!table.is_given()) return;
  const auto count = [&table](std::string_view key, std::uint32_t otherwise, std::int64_t least,
                              std::int64_t most) {
    return static_cast<std::uint32_t>(table.integer(key, otherwise, least, most));
  };
  const auto size = [&table](std::string_view key, std::uint32_t otherwise) {
    const std::uint64_t bytes = table.bytes(key, otherwise);
    if (bytes > 1u << 30) table.wrong(key, "must be at most 1 GiB");
    return static_cast<std::uint32_t>(bytes);
  };
  stack.cores = count("cores", stack.cores == 0 ? 2 : stack.cores, 1, 1'024);
  stack.application_apart = table.boolean("application_apart", stack.application_apart);
  stack.system_call = table.time("system_call", stack.system_call);
  stack.call_bytes = size("call_bytes", stack.call_bytes);
  stack.copy_bits_per_second = table.rate("copy_rate", stack.copy_bits_per_second);
  stack.transmit = table.time("transmit", stack.transmit);
  stack.transmit_frame = table.time("transmit_frame", stack.transmit_frame);
  stack.chunk_bytes = size("chunk", stack.chunk_bytes);
  stack.interrupt = table.time("interrupt", stack.interrupt);
  stack.receive_frame = table.time("receive_frame", stack.receive_frame);
  stack.receive = table.time("receive", stack.receive);
  stack.acknowledgement = table.time("acknowledgement", stack.acknowledgement);
  stack.merges = table.boolean("merge", stack.merges);
  stack.interrupt_delay = table.time("interrupt_delay", stack.interrupt_delay);
  stack.interrupt_frames = count("interrupt_frames", stack.interrupt_frames, 0, 1 << 20);
  stack.wake_up = table.time("wake_up", stack.wake_up);
  stack.idle_exit = table.time("idle_exit", stack.idle_exit);
  stack.idle_after = table.time("idle_after", stack.idle_after);
  stack.receive_ring_frames = count("receive_ring", stack.receive_ring_frames, 1, 1 << 20);
  stack.transmit_queue_bytes = size("transmit_queue", stack.transmit_queue_bytes);
  if (stack.call_bytes == 0) table.wrong("call_bytes", "must be more than zero");
  if (stack.transmit_queue_bytes == 0) table.wrong("transmit_queue", "must be more than zero");
  table.finish();
}

}  // namespace tulle::scenario
