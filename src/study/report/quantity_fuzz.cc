// Reads any text as a time, a rate and a number of bytes. What is accepted is in the range that the
// readers promise, and is text again.

#include <string_view>

#include "base/check.h"
#include "study/report/quantity.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tulle;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto time = report::parse_time(text)) {
    TULLE_CHECK(*time >= Time::zero() && !time->is_never());
    TULLE_CHECK(!report::time_text(*time).empty());
  }
  if (const auto rate = report::parse_rate(text)) {
    TULLE_CHECK(*rate >= 1);
    TULLE_CHECK(!report::rate_text(static_cast<double>(*rate)).empty());
  }
  if (const auto bytes = report::parse_bytes(text)) {
    TULLE_CHECK(!report::bytes_text(static_cast<double>(*bytes)).empty());
  }
  return 0;
}
