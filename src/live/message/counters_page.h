#pragma once

// A page of counters in shared memory, one for each process. The host agent creates it and the
// process writes it, so that `tulle status` costs the data path nothing.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "live/driver_counters.h"
#include "os/unique_fd.h"
#include "rdma/device/adapter.h"

namespace tulle::live {

// What a counter is called, and where its value comes from. A new counter is a row of the table
// below, and a member of one of the three structs.
struct Counter {
  using Value = std::uint64_t (*)(device::Adapter& adapter, const DriverCounters& driver);

  std::string_view name;
  Value value;
  bool is_of_now = false;  // what a process has, not what it has done: it ends with the process
};

namespace counted {

inline std::uint64_t queue_pairs(device::Adapter& adapter, const DriverCounters&) {
  return adapter.queue_pairs_in_use();
}
template <port::Verdict verdict>
std::uint64_t of_verdict(device::Adapter& adapter, const DriverCounters&) {
  return adapter.counters().received_by_verdict[static_cast<std::size_t>(verdict)];
}
template <std::uint64_t device::Counters::*member>
std::uint64_t of_adapter(device::Adapter& adapter, const DriverCounters&) {
  return adapter.counters().*member;
}
template <std::uint64_t transport::Counters::*member>
std::uint64_t of_transport(device::Adapter& adapter, const DriverCounters&) {
  return adapter.counters().transport.*member;
}
template <std::uint64_t DriverCounters::*member>
std::uint64_t of_driver(device::Adapter&, const DriverCounters& driver) {
  return driver.*member;
}

inline constexpr auto table = std::to_array<Counter>({
    {"queue_pairs", queue_pairs, true},
    {"packets_sent", of_adapter<&device::Counters::packets_sent>},
    {"packets_received", of_adapter<&device::Counters::packets_received>},
    {"bytes_sent", of_adapter<&device::Counters::bytes_sent>},
    {"bytes_received", of_adapter<&device::Counters::bytes_received>},
    {"received_truncated", of_verdict<port::Verdict::truncated>},
    {"received_unknown_opcode", of_verdict<port::Verdict::unknown_opcode>},
    {"received_bad_version", of_verdict<port::Verdict::bad_version>},
    {"received_bad_icrc", of_verdict<port::Verdict::bad_icrc>},
    {"received_unknown_queue_pair", of_adapter<&device::Counters::unknown_queue_pair>},
    {"congestion_notifications", of_adapter<&device::Counters::congestion_notifications>},
    {"retransmitted_packets", of_transport<&transport::Counters::retransmitted_packets>},
    {"ack_timeouts", of_transport<&transport::Counters::ack_timeouts>},
    {"sequence_naks_sent", of_transport<&transport::Counters::sequence_naks_sent>},
    {"sequence_naks_received", of_transport<&transport::Counters::sequence_naks_received>},
    {"implied_naks", of_transport<&transport::Counters::implied_naks>},
    {"rnr_naks_sent", of_transport<&transport::Counters::rnr_naks_sent>},
    {"rnr_naks_received", of_transport<&transport::Counters::rnr_naks_received>},
    {"duplicate_requests", of_transport<&transport::Counters::duplicate_requests>},
    {"remote_errors_sent", of_transport<&transport::Counters::remote_errors_sent>},
    {"remote_errors_received", of_transport<&transport::Counters::remote_errors_received>},
    {"dropped_packets", of_transport<&transport::Counters::dropped_packets>},
    {"dropped_messages", of_transport<&transport::Counters::dropped_messages>},
    {"send_calls", of_driver<&DriverCounters::send_calls>},
    {"send_delays", of_driver<&DriverCounters::send_delays>},
    {"send_errors", of_driver<&DriverCounters::send_errors>},
    {"receive_calls", of_driver<&DriverCounters::receive_calls>},
    {"kernel_drops", of_driver<&DriverCounters::kernel_drops>},
    {"unsealed_drops", of_driver<&DriverCounters::unsealed_drops>},
    {"queue_pairs_by_memory", of_driver<&DriverCounters::queue_pairs_by_memory>, true},
    {"direct_transfers", of_driver<&DriverCounters::direct_transfers>},
    {"direct_bytes", of_driver<&DriverCounters::direct_bytes>},
    {"shared_files", of_driver<&DriverCounters::shared_files>, true},
    {"shared_bytes", of_driver<&DriverCounters::shared_bytes>, true},
    {"unshared_kind_of_memory", of_driver<&DriverCounters::unshared_kind_of_memory>},
    {"unshared_because_of_devices", of_driver<&DriverCounters::unshared_because_of_devices>},
    {"unshared_because_of_threads", of_driver<&DriverCounters::unshared_because_of_threads>},
    {"unshared_registered_before", of_driver<&DriverCounters::unshared_registered_before>},
    {"unshared_for_want_of_room", of_driver<&DriverCounters::unshared_for_want_of_room>},
    {"memory_packets_sent", of_driver<&DriverCounters::memory_packets_sent>},
    {"memory_packets_received", of_driver<&DriverCounters::memory_packets_received>},
    {"memory_packets_dropped", of_driver<&DriverCounters::memory_packets_dropped>},
    {"memory_delays", of_driver<&DriverCounters::memory_delays>},
    {"doorbells", of_driver<&DriverCounters::doorbells>},
    {"faults_dropped", of_driver<&DriverCounters::faults_dropped>},
    {"faults_duplicated", of_driver<&DriverCounters::faults_duplicated>},
    {"faults_corrupted", of_driver<&DriverCounters::faults_corrupted>},
    {"faults_reordered", of_driver<&DriverCounters::faults_reordered>},
});

}  // namespace counted

inline constexpr std::span<const Counter> counter_table = counted::table;
inline constexpr std::size_t counter_count = counted::table.size();

inline constexpr auto counter_names = [] {
  std::array<std::string_view, counter_count> names;
  for (std::size_t i = 0; i < counter_count; ++i) names[i] = counted::table[i].name;
  return names;
}();

// Returns the position of the counter with that name. Every name that the code asks for exists, so
// an unknown one does not compile.
consteval std::size_t counter_index(std::string_view name) {
  for (std::size_t i = 0; i < counter_count; ++i) {
    if (counter_names[i] == name) return i;
  }
  throw "no counter is called that";
}

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
