#include "rdma/port/sl_to_vl.h"

#include <algorithm>

#include "base/check.h"

namespace tulle::port {

void SlToVl::set(std::uint16_t in_port, std::uint16_t out_port, const LaneRow& row) {
  TULLE_CHECK(in_port < ports_ && out_port < ports_);
  const auto found = std::find(rows_.begin(), rows_.end(), row);
  const auto index = static_cast<std::size_t>(found - rows_.begin());
  if (found == rows_.end()) rows_.push_back(row);
  TULLE_CHECK(index <= 0xFF);
  row_of_[std::size_t{in_port} * ports_ + out_port] = static_cast<std::uint8_t>(index);
}

}  // namespace tulle::port
