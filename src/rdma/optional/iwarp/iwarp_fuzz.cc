// Whatever comes in an MPA stream, the engine must neither crash nor touch memory that it may not
// touch. Codecs must encode again what they accept.
//
// The first byte chooses whether FPDUs are made of the rest, with correct lengths and CRCs, since
// chance would never find one. Otherwise the rest is the stream. The first byte also says where the
// stream is cut.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "rdma/optional/iwarp/protocol_test.h"

namespace tulle::transport::iwarp {
namespace {

void check_codecs(std::span<const std::byte> segment) {
  ddp::Header header;
  if (!ddp::decode(segment, header)) return;
  Bytes again(header.bytes());
  ddp::encode(header, again);
  TULLE_CHECK(std::equal(again.begin(), again.end(), segment.begin()));
  const auto data = segment.subspan(header.bytes());
  std::size_t used = 0;
  const auto terminate = rdmap::decode_terminate(data, used);
  if (!terminate) return;
  Bytes written(rdmap::terminate_bytes_max);
  TULLE_CHECK(rdmap::encode(*terminate, written) == used);
  TULLE_CHECK(std::equal(written.begin(), written.begin() + static_cast<std::ptrdiff_t>(used),
                         data.begin()));
}

// Makes a segment of each stretch of up to 63 bytes, with keys and numbers that are mostly right.
Bytes framed(const testing::Host& host, std::span<const std::byte> in) {
  Bytes stream;
  while (in.size() > 2) {
    const auto length =
        std::min<std::size_t>(std::to_integer<std::size_t>(in[0]) % 64, in.size() - 2);
    const auto choice = std::to_integer<unsigned>(in[1]);
    Bytes segment(in.begin() + 2, in.begin() + 2 + static_cast<std::ptrdiff_t>(length));
    in = in.subspan(2 + length);
    ddp::Header header = header_of(static_cast<rdmap::Opcode>(choice % 8));
    header.last = (choice & 0x10) != 0;
    header.stag = host.region.rkey();
    header.tagged_offset = testing::iova + choice;
    header.sequence += choice >> 6;
    check_codecs(segment);
    const Bytes one = (choice & 0x20) != 0 ? fpdu(header, segment) : [&] {
      ddp::Header raw;
      if (!ddp::decode(segment, raw)) return fpdu(header, {});
      return fpdu(raw, std::span<const std::byte>(segment).subspan(raw.bytes()));
    }();
    stream.insert(stream.end(), one.begin(), one.end());
  }
  return stream;
}

}  // namespace
}  // namespace tulle::transport::iwarp

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tulle::transport::iwarp;
  if (size < 2) return 0;
  const auto bytes = std::as_bytes(std::span(data, size));
  End end;
  end.region.length = 16'384;  // the memory behind it must not be touched
  end.connect();
  end.post_receive(40);
  end.post_receive(2'000);
  end.post(tulle::verbs::SendOpcode::read, 30);
  end.post(tulle::verbs::SendOpcode::send, 30);
  end.sent();
  const Bytes stream =
      (data[0] & 1) != 0 ? framed(end, bytes.subspan(1)) : Bytes(bytes.begin() + 1, bytes.end());
  const std::size_t step = 1 + data[0] / 2;
  for (std::size_t at = 0; at < stream.size(); at += step) {
    end.take(std::span(stream).subspan(at, std::min(step, stream.size() - at)));
    end.sent();
  }
  end.acknowledge_all();
  for (std::size_t i = 16'384; i < end.memory.size(); ++i) {
    TULLE_CHECK(end.memory[i] == tulle::transport::testing::Host::pattern(i));
  }
  end.completions();
  return 0;
}
