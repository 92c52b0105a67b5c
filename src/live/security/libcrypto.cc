#include "live/security/libcrypto.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "os/trusted_folder.h"

namespace tulle::live {
namespace {

constexpr char library_name[] = "libcrypto.so.3";
// A use takes microseconds. One that a signal handler interrupted to exit never ends.
constexpr int waits_max = 100;
constexpr int wait_microseconds = 1'000;

std::atomic<int> uses{0};
std::atomic<bool> is_exiting{false};

void end_uses() {
  is_exiting = true;
  for (int i = 0; i < waits_max && uses > 0; ++i) usleep(wait_microseconds);
}

// The library reads a configuration that the environment names, which may load any library into the
// process. su keeps the variables, which may be another user's.
bool trusts_environment() {
  const auto is_right = [](const char* name, Result<std::string> (*check)(const std::string&)) {
    const char* path = secure_getenv(name);
    return path == nullptr || *path == '\0' || check(path);
  };
  return is_right("OPENSSL_CONF", trusted_file) && is_right("OPENSSL_MODULES", trusted_folder) &&
         is_right("OPENSSL_ENGINES", trusted_folder);
}

Result<Libcrypto> load() {
  void* library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Error{fmt::format("cannot load {}, which sealing needs (Debian's package libssl3): {}",
                             library_name, dlerror()),
                 ENOENT};
  }
  Libcrypto functions;
  bool has_all = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    has_all = has_all && function != nullptr;
  };
  find(functions.new_context, "EVP_CIPHER_CTX_new");
  find(functions.free_context, "EVP_CIPHER_CTX_free");
  find(functions.aes_256_gcm, "EVP_aes_256_gcm");
  find(functions.begin_encryption, "EVP_EncryptInit_ex");
  find(functions.encrypt, "EVP_EncryptUpdate");
  find(functions.end_encryption, "EVP_EncryptFinal_ex");
  find(functions.begin_decryption, "EVP_DecryptInit_ex");
  find(functions.decrypt, "EVP_DecryptUpdate");
  find(functions.end_decryption, "EVP_DecryptFinal_ex");
  find(functions.control, "EVP_CIPHER_CTX_ctrl");
  find(functions.sha256, "EVP_sha256");
  find(functions.hmac, "HMAC");
  decltype(&::OPENSSL_init_crypto) initialize = nullptr;
  find(initialize, "OPENSSL_init_crypto");
  if (!has_all) return Error{fmt::format("{} lacks functions of OpenSSL 3", library_name), ENOSYS};
  // The library's own handler is there before ours, which therefore runs first.
  if (initialize(trusts_environment() ? 0 : OPENSSL_INIT_NO_LOAD_CONFIG, nullptr) != 1) {
    return Error{fmt::format("{} does not start: is there memory?", library_name), ENOMEM};
  }
  std::atexit(end_uses);
  return functions;
}

}  // namespace

LibcryptoUse::LibcryptoUse() {
  ++uses;
  is_allowed_ = !is_exiting;
}

LibcryptoUse::~LibcryptoUse() { --uses; }

Result<const Libcrypto*> libcrypto() {
  static Result<Libcrypto> loaded = load();
  if (!loaded) return loaded.error();
  return &*loaded;
}

}  // namespace tulle::live
