#include "study/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "config/files.h"

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
  std::error_code error;
  const bool is_read = std::filesystem::is_regular_file(path, error) &&
                       std::filesystem::file_size(path, error) <= config::file_bytes_max;
  if (!is_read) return hex_of(digest);
  std::ifstream in(path, std::ios::binary);
  std::array<char, 65'536> some{};
  while (in.read(some.data(), some.size()) || in.gcount() > 0) {
    EVP_DigestUpdate(digest.get(), some.data(), static_cast<std::size_t>(in.gcount()));
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
