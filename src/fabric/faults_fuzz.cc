// Reads any text as the faults of a network. It is refused in one line, or its probabilities are
// probabilities, and what is drawn from them is bounded.

#include <cmath>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "fabric/faults.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tulle;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto read = fabric::parse_faults(text);
  if (const auto* fault = std::get_if<std::string>(&read)) {
    TULLE_CHECK(!fault->empty());
    for (const char c : *fault) TULLE_CHECK(c < 0 || c >= ' ');
    return 0;
  }
  const auto& settings = std::get<fabric::FaultSettings>(read);
  for (const double each :
       {settings.drop, settings.duplicate, settings.reorder, settings.corrupt}) {
    TULLE_CHECK(each >= 0 && each <= 1);
  }
  TULLE_CHECK(settings.delay >= Time::zero() && settings.reorder_delay >= Time::zero());
  fabric::Faults faults(settings);
  for (std::size_t i = 0; i < 64; ++i) {
    const auto copies = faults.draw();
    TULLE_CHECK(copies.count <= copies.copies.size());
    for (std::size_t copy = 0; copy < copies.count; ++copy) {
      TULLE_CHECK(copies.copies[copy].held_up >= Time::zero());
    }
    std::vector<std::byte> bytes(i);
    TULLE_CHECK(faults.damage(bytes) <= i);
  }
  return 0;
}
