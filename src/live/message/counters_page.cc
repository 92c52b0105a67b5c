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
  for (std::size_t i = 0; i < counter_count; ++i) {
    const std::uint64_t value = counter_table[i].value(adapter, driver);
    page_->values[i].store(value, std::memory_order_relaxed);
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
