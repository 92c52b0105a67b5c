// A stranger's datagrams and key files. Nothing of a datagram that the stranger made is taken, and
// the genuine one that follows is.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/check.h"
#include "live/security/seal.h"
#include "os/unique_fd.h"

namespace tulle::live {
namespace {

std::unique_ptr<Seal> make_seal() {
  std::string path = "/tmp/tulle-seal-fuzz-XXXXXX";
  const UniqueFd file(mkostemp(path.data(), O_CLOEXEC));
  const std::string text(64, '7');
  TULLE_CHECK(write(file.get(), text.data(), text.size()) == ssize_t{64});
  auto seal = Seal::create(path);
  unlink(path.c_str());
  TULLE_CHECK(seal);
  return std::move(*seal);
}

}  // namespace
}  // namespace tulle::live

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tulle::live;
  static const auto sender = make_seal();
  static const auto receiver = make_seal();
  auto keys = parse_keys({reinterpret_cast<const char*>(data), size});
  TULLE_CHECK(!keys || (!keys->empty() && keys->size() <= keys_max));
  const auto bytes = std::as_bytes(std::span(data, size));
  TULLE_CHECK(!receiver->open({}, bytes));
  // A genuine datagram, of which the input overwrites a part.
  std::vector<std::byte> room(200);
  TULLE_CHECK(sender->seal({}, room));
  const std::vector<std::byte> genuine = room;
  if (size >= 2) {
    const std::size_t at = data[0] % room.size();
    const std::size_t count = std::min(size - 1, room.size() - at);
    std::copy_n(bytes.begin() + 1, count, room.begin() + at);
    room.resize(room.size() - data[1] % 8);
  }
  TULLE_CHECK(receiver->open({}, room).has_value() == (room == genuine));
  TULLE_CHECK(room == genuine || receiver->open({}, genuine));
  return 0;
}
