#include "management/performance/agent.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "management/mad_test.h"
#include "rdma/wire/pma.h"

namespace tulle::management::performance {
namespace {

constexpr std::size_t data = wire::performance_data_offset;

Mad ask(std::uint16_t attribute, std::uint8_t port_select = 1, std::uint8_t method = method_get) {
  Mad mad = request_of(wire::performance_class, method, attribute);
  mad[data + 1] = std::byte{port_select};
  return mad;
}

Mad answer_to(const Mad& request, const Counters& counters = {}) {
  Mad out{};
  EXPECT_TRUE(answer(request, counters, out));
  const wire::MadHeader header = header_of(out);
  EXPECT_EQ(header.method, method_get_response);
  EXPECT_EQ(header.transaction_id, header_of(request).transaction_id);
  EXPECT_EQ(header.attribute_id, header_of(request).attribute_id);
  EXPECT_EQ(header.management_class, wire::performance_class);
  return out;
}

std::uint16_t status_of(const Mad& answer) { return header_of(answer).status; }

// Offsets are those of IBTA 16.1.3.5, table 208, which gives bits: CounterSelect 16, PortRcvErrors
// 64 …
TEST(PerformanceAgent, port_counters_stand_where_ibta_says) {
  const Counters counters{.bytes_sent = 4'003,
                          .bytes_received = 8'000,
                          .packets_sent = 7,
                          .packets_received = 9,
                          .receive_errors = 3,
                          .transmit_discards = 5};
  const Mad out = answer_to(ask(wire::attribute_port_counters), counters);
  EXPECT_EQ(status_of(out), 0);
  EXPECT_EQ(number_at(out, data + 1, 1), 1u);
  EXPECT_EQ(number_at(out, data + 8, 2), 3u);
  EXPECT_EQ(number_at(out, data + 14, 2), 5u);
  EXPECT_EQ(number_at(out, data + 24, 4), 1'000u);  // only whole words count
  EXPECT_EQ(number_at(out, data + 28, 4), 2'000u);
  EXPECT_EQ(number_at(out, data + 32, 4), 7u);
  EXPECT_EQ(number_at(out, data + 36, 4), 9u);
}

TEST(PerformanceAgent, counters_stop_at_their_greatest_value) {
  constexpr std::uint64_t huge = 1ull << 40;
  const Counters counters{huge, huge, huge, huge, huge, huge, huge};
  const Mad out = answer_to(ask(wire::attribute_port_counters), counters);
  EXPECT_EQ(number_at(out, data + 8, 2), 0xFFFFu);
  EXPECT_EQ(number_at(out, data + 14, 2), 0xFFFFu);
  for (const std::size_t at : {24, 28, 32, 36}) {
    EXPECT_EQ(number_at(out, data + at, 4), 0xFFFF'FFFFu);
  }
}

TEST(PerformanceAgent, extended_counters_have_64_bits) {
  constexpr std::uint64_t huge = 1ull << 40;
  const Counters counters{4 * huge, 4 * huge + 4, huge + 2, huge + 3, 0, 0, 0};
  const Mad out = answer_to(ask(wire::attribute_port_counters_extended, wire::all_ports), counters);
  EXPECT_EQ(number_at(out, data + 1, 1), wire::all_ports);
  EXPECT_EQ(number_at(out, data + 8, 8), huge);
  EXPECT_EQ(number_at(out, data + 16, 8), huge + 1);
  EXPECT_EQ(number_at(out, data + 24, 8), huge + 2);
  EXPECT_EQ(number_at(out, data + 32, 8), huge + 3);
}

TEST(PerformanceAgent, says_what_it_can_do) {
  const Mad request = ask(wire::attribute_class_port_info);
  EXPECT_FALSE(needs_counters(request));
  const Mad out = answer_to(request);
  EXPECT_EQ(number_at(out, data, 2), 0x0101u);  // versions
  EXPECT_EQ(number_at(out, data + 2, 2), 0x0500u);
  EXPECT_EQ(number_at(out, data + 4, 4), 14u);
  EXPECT_TRUE(needs_counters(ask(wire::attribute_port_counters)));
}

TEST(PerformanceAgent, refuses_what_it_has_not) {
  const Counters counters{4'000, 4'000, 7, 9, 3, 5};
  const Mad refused = ask(wire::attribute_port_counters, 2);
  const Mad answered = answer_to(refused, counters);
  EXPECT_TRUE(std::equal(answered.begin() + data, answered.end(), refused.begin() + data))
      << "an answer with an error tells nothing";
  EXPECT_EQ(status_of(answer_to(ask(wire::attribute_port_counters, 2))), 7 << 2);
  EXPECT_EQ(status_of(answer_to(ask(wire::attribute_port_counters, 0))), 7 << 2);
  EXPECT_EQ(status_of(answer_to(ask(wire::attribute_port_counters, 1, method_set))), 3 << 2);
  EXPECT_EQ(status_of(answer_to(ask(0x0010))), 3 << 2);  // PortSamplesControl
  for (const auto change : {&wire::MadHeader::base_version, &wire::MadHeader::class_version}) {
    Mad request = ask(wire::attribute_port_counters);
    wire::MadHeader header = header_of(request);
    header.*change = 9;
    set_header(request, header);
    EXPECT_EQ(status_of(answer_to(request)), 1 << 2);
    EXPECT_FALSE(needs_counters(request));
  }
}

// IBTA 13.4.6.4: answers, and methods that ask for none, get no answer.
TEST(PerformanceAgent, answers_no_answer) {
  for (const std::uint8_t method : std::initializer_list<std::uint8_t>{0x81, 3, 5, 7, 0, 0xFF}) {
    Mad out{};
    EXPECT_FALSE(answer(ask(wire::attribute_port_counters, 1, method), {}, out)) << int{method};
    EXPECT_EQ(out, Mad{});
  }
}

// Counters of ports, behind which there is no memory.
class GuardedCounters {
 public:
  GuardedCounters() {
    void* made =
        mmap(nullptr, 2 * page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(made, MAP_FAILED);
    begin_ = static_cast<std::byte*>(made);
    mprotect(begin_ + page(), page(), PROT_NONE);
    counters_ = new (begin_ + page() - ports * sizeof(Counters)) Counters[ports];
  }
  GuardedCounters(const GuardedCounters&) = delete;
  GuardedCounters& operator=(const GuardedCounters&) = delete;
  ~GuardedCounters() { munmap(begin_, 2 * page()); }

  std::span<Counters> all() const { return {counters_, ports}; }

 private:
  static constexpr std::size_t ports = 3;
  static std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

  std::byte* begin_;
  Counters* counters_;
};

TEST(PerformanceAgent, any_port_may_be_named) {
  const GuardedCounters counters;
  for (unsigned select = 0; select < 256; ++select) {
    for (const std::uint16_t attribute :
         {wire::attribute_class_port_info, wire::attribute_port_counters,
          wire::attribute_port_counters_extended, std::uint16_t{0x77}}) {
      for (const std::uint8_t method : {method_get, method_set}) {
        for (Counters& each : counters.all()) each.packets_sent = 5;
        Mad out{};
        const Mad request = ask(attribute, static_cast<std::uint8_t>(select), method);
        ASSERT_TRUE(answer_by_port(request, counters.all(), out));
        const bool is_description = attribute == wire::attribute_class_port_info;
        const bool is_known = attribute != 0x77 && (method == method_get || !is_description);
        const bool names_port = is_description || select < 3 || select == wire::all_ports;
        EXPECT_EQ(status_of(out) == 0, is_known && names_port) << select;
        const auto taken_back = std::ranges::count(counters.all(), 0u, &Counters::packets_sent);
        const bool sets = status_of(out) == 0 && method == method_set;
        EXPECT_EQ(taken_back, !sets ? 0 : select == wire::all_ports ? 3 : 1) << select;
      }
    }
  }
}

}  // namespace
}  // namespace tulle::management::performance
