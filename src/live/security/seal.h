#pragma once

// Sealed datagrams: what hosts with a common key send one another in place of plain RoCE v2
// packets. A third party can neither read a sealed datagram nor make, change or repeat one.
//
// In the manner of Google's PSP, each datagram is sealed by itself, with a nonce that its header
// carries, and a sender's key follows from the common key without any exchange of messages. The
// header looks like a BTH as far as the host's steering reads it: the opcode is one of those that
// IBTA leaves to manufacturers, and the destination's queue pair number is at its place.
//
//   bytes  0       opcode 0xFE
//          1       version 2
//          2..3    key ID: tells which of several keys was used
//          4       0
//          5..7    destination queue pair number
//          8..19   sender: 12 random bytes
//          20..27  counter of the sender's datagrams, which is the nonce
//          28..31  time of sealing: seconds since 1970
//          32..    the RoCE v2 packet from BTH to ICRC, encrypted with AES-256-GCM
//          last 16 the authentication tag, of the header and of both IP addresses too
//
// Numbers are big-endian. The sender's key is HMAC-SHA-256(common key, label | sender): a key
// derivation function with one block (NIST SP 800-108).

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "live/key_proof.h"
#include "live/security/fork_mark.h"
#include "live/security/key_file.h"
#include "live/security/libcrypto.h"
#include "rdma/wire/ip_udp.h"

namespace tulle::live {

inline constexpr std::size_t seal_header_bytes = 32;
inline constexpr std::size_t seal_tag_bytes = 16;
inline constexpr std::size_t seal_bytes = seal_header_bytes + seal_tag_bytes;

// A cipher of libcrypto with the key of one sender.
class SenderCipher {
 public:
  using SenderId = std::array<std::byte, 12>;
  // Throws std::bad_alloc if the library lacks memory: no cipher must have another key.
  SenderCipher(const Libcrypto& library, const SecretKey& common, const SenderId& sender);

  // Encrypts `text` in place, or decrypts it, and writes the tag or compares it. `clear` is
  // authenticated, and begins with the header, which contains the nonce.
  [[nodiscard]] bool encrypt(std::span<const std::byte> clear, std::span<std::byte> text,
                             std::span<std::byte, seal_tag_bytes> tag);
  [[nodiscard]] bool decrypt(std::span<const std::byte> clear, std::span<const std::byte> text,
                             std::span<std::byte> plain,
                             std::span<const std::byte, seal_tag_bytes> tag);

 private:
  struct Free {
    decltype(&::EVP_CIPHER_CTX_free) free;
    void operator()(EVP_CIPHER_CTX* context) const { free(context); }
  };
  const Libcrypto& library_;
  std::unique_ptr<EVP_CIPHER_CTX, Free> encryption_;
  std::unique_ptr<EVP_CIPHER_CTX, Free> decryption_;
};

// The last datagrams of a sender. One that comes again, or so late that nobody can tell, is refused
// (RFC 6479).
class ReplayWindow {
 public:
  static constexpr std::uint64_t datagrams = 8'192;
  // Returns true, and takes note, if the number is new.
  bool admit(std::uint64_t number);

 private:
  std::uint64_t highest_ = 0;
  std::bitset<datagrams> seen_;
};

// Seals and opens the datagrams of one process.
class Seal {
 public:
  // Senders that are remembered. If more come, the one that was silent for longest is forgotten,
  // and what unknown senders sealed until then is refused: it could come again.
  static constexpr std::size_t senders_max = 4'096;
  // A sender that is not yet known must have sealed its datagram no longer ago than this, by the
  // clocks of both hosts. What somebody recorded earlier cannot be repeated to a new process.
  static constexpr std::int64_t age_seconds_max = 60;
  // The file is looked at this often, so that keys can be replaced while programs run.
  static constexpr Time look_interval = Time::seconds(1);

  // Returns the seconds since 1970.
  using Clock = std::int64_t (*)();
  static std::int64_t system_clock();

  // Reads the keys. The error is one line for a person. `library` is the usual one if it is null.
  static Result<std::unique_ptr<Seal>> create(const std::string& key_file,
                                              Clock clock = system_clock,
                                              const Libcrypto* library = nullptr);

  // Identifies the key that this host seals with, and does not betray it. It is never 0.
  std::uint16_t key_id() const { return keys_.front().id; }
  // Proves to a host agent that this process has that key. The ID is in all datagrams, and too
  // short to prove anything.
  const KeyProof& key_proof() const { return keys_.front().proof; }
  // Reads the file again if it has changed. A file that cannot be read leaves the keys as they are.
  void look_at_file(Time now);
  void rebase(Time by) { tulle::rebase(by, looked_at_); }

  // Refuses from now on what unknown senders sealed before this second, by their clocks. A host
  // agent, whose queue pair has the same number in each life, then takes little again that its
  // predecessor has taken: what was sealed in the same second, or by a clock that is fast. A sender
  // whose clock is slow has to wait for as long as that.
  void refuse_earlier() { not_before_ = clock_(); }

  // Seals a datagram in place: `room` has seal_header_bytes free bytes, then the packet, then
  // seal_tag_bytes free bytes. It is bound to the addresses of `ip`. Returns false if the cipher
  // failed; the datagram must not be sent.
  [[nodiscard]] bool seal(const wire::IpUdp& ip, std::span<std::byte> room);
  // Returns the packet of a sealed datagram, or nothing if the datagram is not genuine or not new,
  // or went from or to other addresses. The packet stays valid until the next call.
  std::optional<std::span<const std::byte>> open(const wire::IpUdp& ip,
                                                 std::span<const std::byte> datagram);

 private:
  struct Key {
    SecretKey secret{};
    std::uint16_t id = 0;
    KeyProof proof{};
  };
  struct Sender {
    std::uint16_t key_id = 0;
    std::optional<SenderCipher> cipher;  // none while its key is not in the file
    ReplayWindow window;
    std::int64_t sealed_at = 0;  // the latest time in its datagrams
    // What it sealed earlier was not taken while it was unknown, and is not taken now that it is
    // known.
    std::int64_t not_before = 0;
    std::list<SenderCipher::SenderId>::iterator place;
  };

  Seal(const Libcrypto& library, Clock clock) : library_(library), clock_(clock) {}
  // Leaves the keys as they are if two have the same ID, by which those that receive choose.
  Result<void> set_keys(const std::vector<SecretKey>& secrets);
  void begin_sending(const SecretKey& secret);
  std::optional<std::span<const std::byte>> open_or_throw(const wire::IpUdp& ip,
                                                          std::span<const std::byte> datagram);
  static const Key* find_key(const std::vector<Key>& keys, std::uint16_t id);
  bool is_too_early(std::int64_t sealed_at, std::int64_t& floor) const;
  bool has_cipher(const SenderCipher::SenderId& id, Sender& sender) const;
  void remember(const SenderCipher::SenderId& id, Sender sender);

  const Libcrypto& library_;
  Clock clock_;
  std::string file_;
  std::int64_t file_changed_ = 0;  // nanoseconds since 1970
  Time looked_at_;
  std::vector<Key> keys_;
  SenderCipher::SenderId own_id_{};
  std::optional<SenderCipher> own_;  // none in a child that has not sealed anything
  std::uint64_t sent_ = 0;
  ForkMark fork_mark_;
  std::map<SenderCipher::SenderId, Sender> senders_;
  std::list<SenderCipher::SenderId> by_silence_;  // the latest sender is the first
  std::int64_t not_before_ = 0;                   // unknown senders must have sealed since then
  std::vector<std::byte> opened_;
};

}  // namespace tulle::live
