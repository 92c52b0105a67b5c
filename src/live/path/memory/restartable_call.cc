#include "live/path/memory/restartable_call.h"

#include <cstddef>

#if defined(__x86_64__) && __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#define TULLE_HAS_RESTARTABLE_CALLS 1
#endif

namespace tulle::live {

#ifdef TULLE_HAS_RESTARTABLE_CALLS

// A sequence begins at 1, where it checks both words, and ends at 2. If the thread is stopped or
// loses the processor in it, it resumes at 4, before which the kernel demands RSEQ_SIG behind an
// undefined instruction. `rcx` and `r11`, which a system call overwrites anyway, hold what is
// compared.
#define BEGIN_SEQUENCE                    \
  ".pushsection __rseq_cs, \"aw\"\n"      \
  ".balign 32\n"                          \
  "3:\n"                                  \
  ".long 0, 0\n"                          \
  ".quad 1f, 2f - 1f, 4f\n"               \
  ".popsection\n"                         \
  "leaq 3b(%%rip), %%rcx\n"               \
  "movq %%rcx, %c[descriptor](%[area])\n" \
  "1:\n"                                  \
  "movq (%[first]), %%r11\n"              \
  "movl 8(%[first]), %%ecx\n"             \
  "cmpl %%ecx, (%%r11)\n"                 \
  "jne 5f\n"                              \
  "movq (%[second]), %%r11\n"             \
  "movl 8(%[second]), %%ecx\n"            \
  "cmpl %%ecx, (%%r11)\n"                 \
  "jne 5f\n"
#define END_SEQUENCE                      \
  "2:\n"                                  \
  "movq $1, %[made]\n"                    \
  "jmp 5f\n"                              \
  ".pushsection __rseq_failure, \"ax\"\n" \
  ".byte 0x0F, 0xB9, 0x3D\n"              \
  ".long %c[signature]\n"                 \
  "4:\n"                                  \
  "jmp 5f\n"                              \
  ".popsection\n"                         \
  "5:\n"                                  \
  "movq $0, %c[descriptor](%[area])\n"

bool can_make_restartable_calls() { return __rseq_size > 0; }

std::optional<long> call_if_unchanged(const ExpectedWord& first, const ExpectedWord& second,
                                      long number, const long (&arguments)[6]) {
  auto* const area = reinterpret_cast<struct rseq*>(static_cast<char*>(__builtin_thread_pointer()) +
                                                    __rseq_offset);
  long result = number;
  long made = 0;
  // The arguments are loaded here, and not by register variables, since a sanitizer's calls would
  // overwrite those.
  const long* loaded = arguments;
  asm volatile(
      "movq 40(%[loaded]), %%r9\n"
      "movq 32(%[loaded]), %%r8\n"
      "movq 24(%[loaded]), %%r10\n"
      "movq 16(%[loaded]), %%rdx\n"
      "movq 8(%[loaded]), %%rsi\n"
      "movq (%[loaded]), %[loaded]\n" BEGIN_SEQUENCE "syscall\n" END_SEQUENCE
      : "+a"(result), [made] "+r"(made), [loaded] "+D"(loaded)
      : [area] "r"(area), [first] "r"(&first), [second] "r"(&second),
        [descriptor] "i"(offsetof(struct rseq, rseq_cs)), [signature] "i"(RSEQ_SIG)
      : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
  if (made == 0) return {};
  return result;
}

bool copy_if_unchanged(const ExpectedWord& first, const ExpectedWord& second, void* to,
                       const void* from, std::size_t bytes) {
  auto* const area = reinterpret_cast<struct rseq*>(static_cast<char*>(__builtin_thread_pointer()) +
                                                    __rseq_offset);
  long made = 0;
  // The processor's own instruction is the fastest for many bytes, but takes dozens of cycles to
  // start. It may store its bytes in any order; the words behind it are stored after them.
  asm volatile(BEGIN_SEQUENCE
               "movq %[bytes], %%rcx\n"
               "cmpq $512, %%rcx\n"
               "jb 6f\n"
               "subq $16, %%rcx\n"
               "rep movsb\n"
               "movl $16, %%ecx\n"
               "6:\n"
               "subq $8, %%rcx\n"
               "jb 8f\n"
               "7:\n"
               "movq (%%rsi), %%rax\n"
               "movq %%rax, (%%rdi)\n"
               "addq $8, %%rsi\n"
               "addq $8, %%rdi\n"
               "subq $8, %%rcx\n"
               "jae 7b\n"
               "8:\n"
               "addq $8, %%rcx\n"
               "jz 2f\n"
               "9:\n"
               "movb (%%rsi), %%al\n"
               "movb %%al, (%%rdi)\n"
               "incq %%rsi\n"
               "incq %%rdi\n"
               "decq %%rcx\n"
               "jnz 9b\n" END_SEQUENCE
               : [made] "+r"(made), "+D"(to), "+S"(from)
               : [area] "r"(area), [first] "r"(&first), [second] "r"(&second), [bytes] "r"(bytes),
                 [descriptor] "i"(offsetof(struct rseq, rseq_cs)), [signature] "i"(RSEQ_SIG)
               : "rax", "rcx", "r11", "memory", "cc");
  return made != 0;
}

#else

bool can_make_restartable_calls() { return false; }

std::optional<long> call_if_unchanged(const ExpectedWord&, const ExpectedWord&, long,
                                      const long (&)[6]) {
  return {};
}

bool copy_if_unchanged(const ExpectedWord&, const ExpectedWord&, void*, const void*, std::size_t) {
  return false;
}

#endif

}  // namespace tulle::live
