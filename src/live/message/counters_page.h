#pragma once

// A page of counters in shared memory, one for each process. The host agent creates it and the
// process writes it, so that `tulle status` costs the data path nothing.

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/adapter.h"
#include "os/unique_fd.h"

namespace tulle::live {

// Counters of the driver itself, besides those of the adapter.
struct DriverCounters {
  std::uint64_t send_calls = 0;
  std::uint64_t send_delays = 0;     // times a socket was full and datagrams waited
  std::uint64_t send_errors = 0;     // datagrams that the kernel refused
  std::uint64_t receive_calls = 0;   // receive calls that brought datagrams
  std::uint64_t kernel_drops = 0;    // datagrams for which the receiving socket had no room
  std::uint64_t unsealed_drops = 0;  // datagrams that no key of this host had sealed, or repeated
  std::uint64_t queue_pairs_by_memory = 0;  // those whose peer is a process of this host
  std::uint64_t direct_transfers = 0;  // WRITEs and READs that took the direct path on one host
  std::uint64_t direct_bytes = 0;
  // These count for the whole process, whatever device a region belongs to
  // (SharedRegions::Counters).
  std::uint64_t shared_files = 0;
  std::uint64_t shared_bytes = 0;
  std::uint64_t unshared_kind_of_memory = 0;
  std::uint64_t unshared_because_of_devices = 0;
  std::uint64_t unshared_because_of_threads = 0;
  std::uint64_t unshared_registered_before = 0;
  std::uint64_t unshared_for_want_of_room = 0;
  std::uint64_t memory_packets_sent = 0;  // packets that went by memory to processes of the host
  std::uint64_t memory_packets_received = 0;
  std::uint64_t memory_packets_dropped = 0;  // those that were lost on the way, or made no sense
  std::uint64_t memory_delays = 0;           // times a ring was full and a packet waited
  std::uint64_t doorbells = 0;               // times a sleeping process was told of packets
  std::uint64_t faults_dropped = 0;
  std::uint64_t faults_duplicated = 0;
  std::uint64_t faults_corrupted = 0;
  std::uint64_t faults_reordered = 0;
};

// Names of the counters, in the order in which publish() writes them.
inline constexpr auto counter_names = std::to_array<std::string_view>({
    "queue_pairs",
    "packets_sent",
    "packets_received",
    "bytes_sent",
    "bytes_received",
    "received_truncated",
    "received_unknown_opcode",
    "received_bad_version",
    "received_bad_icrc",
    "received_unknown_queue_pair",
    "congestion_notifications",
    "retransmitted_packets",
    "ack_timeouts",
    "sequence_naks_sent",
    "sequence_naks_received",
    "implied_naks",
    "rnr_naks_sent",
    "rnr_naks_received",
    "duplicate_requests",
    "remote_errors_sent",
    "remote_errors_received",
    "dropped_packets",
    "dropped_messages",
    "send_calls",
    "send_delays",
    "send_errors",
    "receive_calls",
    "kernel_drops",
    "unsealed_drops",
    "queue_pairs_by_memory",
    "direct_transfers",
    "direct_bytes",
    "shared_files",
    "shared_bytes",
    "unshared_kind_of_memory",
    "unshared_because_of_devices",
    "unshared_because_of_threads",
    "unshared_registered_before",
    "unshared_for_want_of_room",
    "memory_packets_sent",
    "memory_packets_received",
    "memory_packets_dropped",
    "memory_delays",
    "doorbells",
    "faults_dropped",
    "faults_duplicated",
    "faults_corrupted",
    "faults_reordered",
});
inline constexpr std::size_t counter_count = counter_names.size();

// Returns the position of the counter with that name. Every name that the code asks for exists, so
// an unknown one does not compile.
consteval std::size_t counter_index(std::string_view name) {
  for (std::size_t i = 0; i < counter_count; ++i) {
    if (counter_names[i] == name) return i;
  }
  throw "no counter is called that";
}
// These say what a process has, and not what it has done. They end with the process.
inline constexpr auto counters_of_now = std::to_array<std::size_t>(
    {counter_index("queue_pairs"), counter_index("queue_pairs_by_memory"),
     counter_index("shared_files"), counter_index("shared_bytes")});

class CountersPage {
 public:
  CountersPage() = default;
  static Result<CountersPage> create();          // makes a new page
  static Result<CountersPage> map(UniqueFd fd);  // maps a page that another process made
  CountersPage(CountersPage&& other) noexcept;
  CountersPage& operator=(CountersPage&& other) noexcept;
  ~CountersPage();

  int fd() const { return fd_.get(); }
  void publish(device::Adapter& adapter, const DriverCounters& driver);
  std::array<std::uint64_t, counter_count> read() const;

  // Keeps the reason for which a verb was refused last, of which the first bytes count. Any thread
  // may call it. What two write at once is read mixed.
  void keep_refusal(std::string_view text);
  // Returns it in one line, as the process wrote it. It may have any bytes.
  std::string read_refusal() const;

 private:
  static constexpr std::size_t refusal_bytes_max = 240;
  struct Page {
    std::array<std::atomic<std::uint64_t>, counter_count> values;
    std::array<std::atomic<char>, refusal_bytes_max> refusal;
  };
  explicit CountersPage(UniqueFd fd, Page* page) : fd_(std::move(fd)), page_(page) {}

  UniqueFd fd_;
  Page* page_ = nullptr;
};

}  // namespace tulle::live
