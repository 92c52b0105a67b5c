#include "live/message/counters_page.h"

#include <sys/mman.h>

#include <utility>

#include "base/quoted.h"
#include "os/shared_memory.h"

namespace tulle::live {

namespace {
constexpr std::size_t page_bytes = 4096;
}  // namespace

Result<CountersPage> CountersPage::create() {
  auto fd = make_shared_memory("tulle-counters", page_bytes);
  if (!fd) return fd.error();
  return map(std::move(*fd));
}

Result<CountersPage> CountersPage::map(UniqueFd fd) {
  static_assert(sizeof(Page) <= page_bytes);
  auto memory = map_shared_memory(fd.get(), page_bytes);
  if (!memory) return memory.error();
  return CountersPage(std::move(fd), static_cast<Page*>(*memory));
}

CountersPage::CountersPage(CountersPage&& other) noexcept
    : fd_(std::move(other.fd_)), page_(std::exchange(other.page_, nullptr)) {}

CountersPage& CountersPage::operator=(CountersPage&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(page_, other.page_);
  return *this;
}

CountersPage::~CountersPage() {
  if (page_ != nullptr) munmap(static_cast<void*>(page_), page_bytes);
}

void CountersPage::publish(device::Adapter& adapter, const DriverCounters& driver) {
  if (page_ == nullptr) return;
  const device::Counters& c = adapter.counters();
  const auto verdict = [&](port::Verdict v) {
    return c.received_by_verdict[static_cast<std::size_t>(v)];
  };
  const std::array<std::uint64_t, counter_count> now = {
      adapter.queue_pairs_in_use(),
      c.packets_sent,
      c.packets_received,
      c.bytes_sent,
      c.bytes_received,
      verdict(port::Verdict::truncated),
      verdict(port::Verdict::unknown_opcode),
      verdict(port::Verdict::bad_version),
      verdict(port::Verdict::bad_icrc),
      c.unknown_queue_pair,
      c.congestion_notifications,
      c.transport.retransmitted_packets,
      c.transport.ack_timeouts,
      c.transport.sequence_naks_sent,
      c.transport.sequence_naks_received,
      c.transport.implied_naks,
      c.transport.rnr_naks_sent,
      c.transport.rnr_naks_received,
      c.transport.duplicate_requests,
      c.transport.remote_errors_sent,
      c.transport.remote_errors_received,
      c.transport.dropped_packets,
      c.transport.dropped_messages,
      driver.send_calls,
      driver.send_delays,
      driver.send_errors,
      driver.receive_calls,
      driver.kernel_drops,
      driver.unsealed_drops,
      driver.queue_pairs_by_memory,
      driver.direct_transfers,
      driver.direct_bytes,
      driver.shared_files,
      driver.shared_bytes,
      driver.unshared_kind_of_memory,
      driver.unshared_because_of_devices,
      driver.unshared_because_of_threads,
      driver.unshared_registered_before,
      driver.unshared_for_want_of_room,
      driver.memory_packets_sent,
      driver.memory_packets_received,
      driver.memory_packets_dropped,
      driver.memory_delays,
      driver.doorbells,
      driver.faults_dropped,
      driver.faults_duplicated,
      driver.faults_corrupted,
      driver.faults_reordered,
  };
  for (std::size_t i = 0; i < now.size(); ++i) {
    page_->values[i].store(now[i], std::memory_order_relaxed);
  }
}

std::array<std::uint64_t, counter_count> CountersPage::read() const {
  std::array<std::uint64_t, counter_count> values{};
  if (page_ == nullptr) return values;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = page_->values[i].load(std::memory_order_relaxed);
  }
  return values;
}

void CountersPage::keep_refusal(std::string_view text) {
  if (page_ == nullptr) return;
  for (std::size_t i = 0; i < page_->refusal.size(); ++i) {
    page_->refusal[i].store(i < text.size() ? text[i] : '\0', std::memory_order_relaxed);
  }
}

std::string CountersPage::read_refusal() const {
  std::string text;
  if (page_ == nullptr) return text;
  for (const std::atomic<char>& each : page_->refusal) {
    const char next = each.load(std::memory_order_relaxed);
    if (next == '\0') break;
    text += next;
  }
  return one_line(text);
}

}  // namespace tulle::live
