#pragma once

// The functions of OpenSSL's libcrypto that sealing needs. The library is loaded when the first key
// is read, because a program that seals nothing should not get another library into its process.
//
// The library clears itself away when the program exits, while datagrams may still come to the
// device's thread. Each caller of the library holds a LibcryptoUse. At exit the calls under way end
// before the library goes, and there are no further ones.

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/result.h"

namespace tulle::live {

struct Libcrypto {
  decltype(&::EVP_CIPHER_CTX_new) new_context = nullptr;
  decltype(&::EVP_CIPHER_CTX_free) free_context = nullptr;
  decltype(&::EVP_aes_256_gcm) aes_256_gcm = nullptr;
  decltype(&::EVP_EncryptInit_ex) begin_encryption = nullptr;
  decltype(&::EVP_EncryptUpdate) encrypt = nullptr;
  decltype(&::EVP_EncryptFinal_ex) end_encryption = nullptr;
  decltype(&::EVP_DecryptInit_ex) begin_decryption = nullptr;
  decltype(&::EVP_DecryptUpdate) decrypt = nullptr;
  decltype(&::EVP_DecryptFinal_ex) end_decryption = nullptr;
  decltype(&::EVP_CIPHER_CTX_ctrl) control = nullptr;
  decltype(&::EVP_sha256) sha256 = nullptr;
  decltype(&::HMAC) hmac = nullptr;
};

class LibcryptoUse {
 public:
  LibcryptoUse();
  ~LibcryptoUse();
  LibcryptoUse(const LibcryptoUse&) = delete;
  LibcryptoUse& operator=(const LibcryptoUse&) = delete;
  // Returns false if the program exits, and the library must not be called.
  bool is_allowed() const { return is_allowed_; }

 private:
  bool is_allowed_;
};

// Loads the library at the first call. The error is one line for a person.
Result<const Libcrypto*> libcrypto();

}  // namespace tulle::live
