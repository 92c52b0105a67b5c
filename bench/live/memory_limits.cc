// Measures what memory allows between two processes of this machine, to set beside transfers on one
// host: a copy into memory that both map, a copy into the other's private memory by
// process_vm_writev, and the time that a cache line takes from one to the other.

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

// Both processes map this.
struct Shared {
  alignas(64) std::atomic<std::uint64_t> from_parent{0};
  alignas(64) std::atomic<std::uint64_t> from_child{0};
  alignas(64) std::atomic<std::uintptr_t> private_memory{0};  // the child's
};

std::byte* map(std::size_t bytes, int flags) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) die("mmap");
  return static_cast<std::byte*>(memory);
}

template <typename Run>
pid_t start_child(Run run) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child > 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == parent) run();
  _exit(0);
}

void end(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// Returns the median of the microseconds that each of `count` calls takes, after a tenth as many
// that warm up.
template <typename Run>
double median_us(int count, Run run) {
  std::vector<double> microseconds;
  for (int i = -count / 10; i < count; ++i) {
    const auto start = Clock::now();
    run();
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    if (i >= 0) microseconds.push_back(took.count());
  }
  std::sort(microseconds.begin(), microseconds.end());
  return microseconds[microseconds.size() / 2];
}

void print(double us, std::size_t bytes) {
  std::printf("{\"us\": %.3f, \"gb_per_second\": %.3f}\n", us,
              static_cast<double>(bytes) / us / 1e3);
}

// The parent copies into shared memory, and the child looks at each cache line of what has come,
// as whoever gets data does. Two places take turns, so that both sides work at the same time.
void copy(Shared& shared, std::size_t bytes, int count) {
  constexpr std::size_t places = 2;
  std::byte* const from = map(bytes, MAP_PRIVATE);
  std::byte* const to = map(places * bytes, MAP_SHARED);
  std::memset(from, 1, bytes);
  const pid_t child = start_child([&] {
    for (std::uint64_t seen = 0;;) {
      if (shared.from_parent.load(std::memory_order_acquire) == seen) continue;
      const volatile std::byte* const place = to + seen % places * bytes;
      for (std::size_t at = 0; at < bytes; at += 64) static_cast<void>(place[at]);
      shared.from_child.store(++seen, std::memory_order_release);
    }
  });
  std::uint64_t written = 0;
  const auto write_one = [&] {
    while (written - shared.from_child.load(std::memory_order_acquire) >= places) continue;
    std::memcpy(to + written % places * bytes, from, bytes);
    shared.from_parent.store(++written, std::memory_order_release);
  };
  for (int i = 0; i < count / 10; ++i) write_one();
  const auto start = Clock::now();
  for (int i = 0; i < count; ++i) write_one();
  const std::chrono::duration<double, std::micro> took = Clock::now() - start;
  end(child);
  print(took.count() / count, bytes);
}

// The parent writes into the child's private memory.
void visit(Shared& shared, std::size_t bytes, int count) {
  std::byte* const from = map(bytes, MAP_PRIVATE);
  std::memset(from, 1, bytes);
  const pid_t child = start_child([&] {
    std::byte* const own = map(bytes, MAP_PRIVATE);
    std::memset(own, 2, bytes);
    shared.private_memory.store(reinterpret_cast<std::uintptr_t>(own));
    for (;;) pause();
  });
  while (shared.private_memory.load() == 0) usleep(100);
  const iovec local{from, bytes};
  const iovec remote{reinterpret_cast<void*>(shared.private_memory.load()), bytes};
  const double us = median_us(count, [&] {
    if (process_vm_writev(child, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(bytes)) {
      const int error = errno;
      end(child);
      errno = error;
      die("process_vm_writev");
    }
  });
  end(child);
  print(us, bytes);
}

// The two processes tell each other a number in turns.
void line(Shared& shared, int count) {
  const pid_t child = start_child([&] {
    for (std::uint64_t seen = 0;;) {
      const std::uint64_t now = shared.from_parent.load(std::memory_order_acquire);
      if (now == seen) continue;
      seen = now;
      shared.from_child.store(now, std::memory_order_release);
    }
  });
  const double us = median_us(count, [&] {
    const std::uint64_t next = shared.from_parent.load(std::memory_order_relaxed) + 1;
    shared.from_parent.store(next, std::memory_order_release);
    while (shared.from_child.load(std::memory_order_acquire) != next) continue;
  });
  end(child);
  std::printf("{\"us\": %.3f}\n", us / 2);
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Measures what memory allows between two processes. Prints JSON.");
  std::size_t bytes = 0;
  int count = 2000;
  app.add_option("--count", count, "repetitions (2000)")->check(CLI::Range(10, 10'000'000));
  app.require_subcommand(1);
  CLI::App* const copies = app.add_subcommand("copy", "memcpy into memory that both map");
  CLI::App* const visits = app.add_subcommand("visit", "process_vm_writev into private memory");
  for (CLI::App* each : {copies, visits}) {
    each->add_option("bytes", bytes, "bytes at a time")->required()->check(CLI::Range(1, 1 << 30));
  }
  CLI::App* const lines = app.add_subcommand("line", "a cache line there, half of there and back");
  CLI11_PARSE(app, argc, argv);
  Shared& shared = *new (map(sizeof(Shared), MAP_SHARED)) Shared;
  if (*copies) copy(shared, bytes, count);
  if (*visits) visit(shared, bytes, count);
  if (*lines) line(shared, count);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "memory_limits: %s\n", error.what());
  return 1;
}
