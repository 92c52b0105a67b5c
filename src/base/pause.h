#pragma once

// Tells the processor that the caller waits in a loop for what another processor does. It then uses
// less power, and gives more to the other thread of its core.

namespace tulle {

inline void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tulle
