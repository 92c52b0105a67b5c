#pragma once

// The functions of OpenSSL's libcrypto that sealing needs. The library is loaded when the first key
// is read, because a program that seals nothing should not get another library into its process.

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

// Loads the library at the first call. The error is one line for a person.
Result<const Libcrypto*> libcrypto();

}  // namespace tulle::live
