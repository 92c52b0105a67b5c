#include "study/digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "os/unique_fd.h"
#include "study/config/files.h"

namespace tulle::study {
namespace {

using Digest = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

std::string hex_of(const Digest& digest) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash{};
  EVP_DigestFinal_ex(digest.get(), hash.data(), nullptr);
  std::string text;
  for (const unsigned char byte : hash) text += fmt::format("{:02x}", byte);
  return text;
}

Digest begin_digest() {
  Digest digest(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr);
  return digest;
}

}  // namespace

std::string digest_of(const std::string& text) {
  const Digest digest = begin_digest();
  EVP_DigestUpdate(digest.get(), text.data(), text.size());
  return hex_of(digest);
}

std::string digest_of_file(const std::string& path) {
  const Digest digest = begin_digest();
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  const bool is_read = file && fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                       static_cast<std::uintmax_t>(status.st_size) <= config::file_bytes_max;
  if (!is_read) return hex_of(digest);
  // Files of /proc have no bytes by their size, and may have more without end.
  std::array<char, 65'536> some{};
  for (auto left = static_cast<std::size_t>(status.st_size); left > 0;) {
    const ssize_t count = read(file.get(), some.data(), std::min(left, some.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    EVP_DigestUpdate(digest.get(), some.data(), static_cast<std::size_t>(count));
    left -= static_cast<std::size_t>(count);
  }
  return hex_of(digest);
}

const std::string& build_version() {
  constexpr std::size_t digits = 16;
  static const std::string text =
      fmt::format("{} {}", TULLE_VERSION, digest_of_file("/proc/self/exe").substr(0, digits));
  return text;
}

}  // namespace tulle::study
