#include "rdma/optional/iwarp/sent_records.h"

#include <algorithm>

#include "base/check.h"

namespace tulle::transport::iwarp {

namespace ddp = wire::ddp;
namespace mpa = wire::mpa;
namespace rdmap = wire::rdmap;

void MadeRecord::put_head(const ddp::Header& header, const rdmap::ReadRequest* read) {
  const std::uint32_t read_bytes = read != nullptr ? rdmap::read_request_bytes : 0;
  const std::uint32_t ulpdu = header.bytes() + read_bytes + data_bytes;
  head[0] = static_cast<std::byte>(ulpdu >> 8);
  head[1] = static_cast<std::byte>(ulpdu);
  const std::span<std::byte> rest = std::span(head).subspan(mpa::length_bytes);
  ddp::encode(header, rest);
  if (read != nullptr) {
    rdmap::encode(*read, rest.subspan(header.bytes()).first<rdmap::read_request_bytes>());
  }
  head_bytes = static_cast<std::uint8_t>(mpa::length_bytes + header.bytes() + read_bytes);
}

std::uint32_t MadeRecord::pad_bytes() const {
  return mpa::pad_bytes(head_bytes - mpa::length_bytes + data_bytes);
}

void MadeRecord::end(bool crc, FilledRecord& filled) const {
  const std::uint32_t pad = pad_bytes();
  if (filled.ghost_bytes > 0) {
    filled.ghost_bytes += pad + mpa::crc_bytes;
    return;
  }
  const auto trailer = std::span(filled.trailer).first(pad + mpa::crc_bytes);
  std::fill(trailer.begin(), trailer.end(), std::byte{0});
  if (crc) {
    mpa::Crc sum;
    for (std::uint8_t i = 0; i < filled.piece_count; ++i) sum.update(filled.pieces[i]);
    sum.update(trailer.first(pad));
    mpa::put_crc(sum.value(), trailer.last<mpa::crc_bytes>());
  }
  filled.pieces[filled.piece_count++] = trailer;
}

Record SentRecords::push(MadeRecord& made) {
  made.fpdu_bytes = mpa::fpdu_bytes(made.head_bytes - mpa::length_bytes + made.data_bytes);
  records_.push(made);
  return {next_number_++, made.fpdu_bytes};
}

const MadeRecord& SentRecords::operator[](std::uint64_t number) const {
  const std::uint64_t first = next_number_ - records_.size();
  TULLE_CHECK(number >= first && number < next_number_);
  return records_[static_cast<std::uint32_t>(number - first)];
}

std::optional<MadeRecord> SentRecords::pop_acknowledged(std::uint64_t bytes) {
  if (records_.empty() || acknowledged_bytes_ + records_.front().fpdu_bytes > bytes) return {};
  const MadeRecord made = records_.front();
  records_.pop();
  acknowledged_bytes_ += made.fpdu_bytes;
  return made;
}

}  // namespace tulle::transport::iwarp
