#include "live/security/seal.h"

#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "base/big_endian.h"
#include "base/on_throw.h"
#include "os/system_random.h"
#include "rdma/wire/bth.h"

namespace tulle::live {
namespace {

constexpr std::uint8_t seal_opcode = 0xFE;
constexpr std::uint8_t seal_version = 2;

struct Header {
  std::uint8_t opcode = seal_opcode;
  std::uint8_t version = seal_version;
  be16 key_id;
  std::uint8_t reserved = 0;
  be24 destination;
  SenderCipher::SenderId sender{};
  be64 counter;
  be32 time;
};
static_assert(sizeof(Header) == seal_header_bytes);

// What is authenticated and not encrypted.
struct Clear {
  Header header;
  Gid source;
  Gid destination;
};
static_assert(sizeof(Clear) == seal_header_bytes + 2 * sizeof(Gid));

// A sender takes another key long before its counter could wrap.
constexpr std::uint64_t datagrams_per_key = std::uint64_t{1} << 36;
constexpr std::string_view traffic_label = "tulle traffic key 1";
constexpr std::string_view id_label = "tulle key id 1";
constexpr std::string_view proof_label = "tulle key proof 1";

using Digest = std::array<std::byte, 32>;

// Throws std::bad_alloc if there is no memory for it: the digest of nothing would be known to all.
Digest hmac(const Libcrypto& library, const SecretKey& key, std::string_view label,
            std::span<const std::byte> context) {
  std::vector<unsigned char> text(label.begin(), label.end());
  for (const std::byte byte : context) text.push_back(static_cast<unsigned char>(byte));
  Digest digest{};
  unsigned bytes = 0;
  const unsigned char* const made =
      library.hmac(library.sha256(), key.data(), static_cast<int>(key.size()), text.data(),
                   text.size(), reinterpret_cast<unsigned char*>(digest.data()), &bytes);
  if (made == nullptr || bytes != digest.size()) throw std::bad_alloc();
  return digest;
}

const unsigned char* octets(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* octets(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

// GCM's nonce has 12 bytes: four zeros and the counter.
std::array<unsigned char, 12> nonce_of(std::span<const std::byte> header) {
  std::array<unsigned char, 12> nonce{};
  std::memcpy(nonce.data() + 4, header.data() + offsetof(Header, counter), sizeof(be64));
  return nonce;
}

// Another mode or owner is a change too: it decides whether the file is read.
std::int64_t change_time(const std::string& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0) return 0;
  return std::int64_t{status.st_ctim.tv_sec} * 1'000'000'000 + status.st_ctim.tv_nsec;
}

}  // namespace

SenderCipher::SenderCipher(const Libcrypto& library, const SecretKey& common,
                           const SenderId& sender)
    : library_(library),
      encryption_(library.new_context(), {library.free_context}),
      decryption_(library.new_context(), {library.free_context}) {
  SecretKey key;
  static_cast<std::array<std::byte, 32>&>(key) = hmac(library, common, traffic_label, sender);
  const EVP_CIPHER* cipher = library.aes_256_gcm();
  const bool is_ready = encryption_ && decryption_ &&
                        library.begin_encryption(encryption_.get(), cipher, nullptr,
                                                 octets(key.data()), nullptr) == 1 &&
                        library.begin_decryption(decryption_.get(), cipher, nullptr,
                                                 octets(key.data()), nullptr) == 1;
  if (!is_ready) throw std::bad_alloc();
}

bool SenderCipher::encrypt(std::span<const std::byte> clear, std::span<std::byte> text,
                           std::span<std::byte, seal_tag_bytes> tag) {
  EVP_CIPHER_CTX* const context = encryption_.get();
  int bytes = 0;
  const auto nonce = nonce_of(clear);
  return library_.begin_encryption(context, nullptr, nullptr, nullptr, nonce.data()) == 1 &&
         library_.encrypt(context, nullptr, &bytes, octets(clear.data()),
                          static_cast<int>(clear.size())) == 1 &&
         library_.encrypt(context, octets(text.data()), &bytes, octets(text.data()),
                          static_cast<int>(text.size())) == 1 &&
         library_.end_encryption(context, nullptr, &bytes) == 1 &&
         library_.control(context, EVP_CTRL_AEAD_GET_TAG, seal_tag_bytes, tag.data()) == 1;
}

bool SenderCipher::decrypt(std::span<const std::byte> clear, std::span<const std::byte> text,
                           std::span<std::byte> plain,
                           std::span<const std::byte, seal_tag_bytes> tag) {
  EVP_CIPHER_CTX* const context = decryption_.get();
  int bytes = 0;
  const auto nonce = nonce_of(clear);
  std::array<std::byte, seal_tag_bytes> expected;
  std::ranges::copy(tag, expected.begin());
  return library_.begin_decryption(context, nullptr, nullptr, nullptr, nonce.data()) == 1 &&
         library_.decrypt(context, nullptr, &bytes, octets(clear.data()),
                          static_cast<int>(clear.size())) == 1 &&
         library_.decrypt(context, octets(plain.data()), &bytes, octets(text.data()),
                          static_cast<int>(text.size())) == 1 &&
         library_.control(context, EVP_CTRL_AEAD_SET_TAG, seal_tag_bytes, expected.data()) == 1 &&
         library_.end_decryption(context, nullptr, &bytes) == 1;
}

bool ReplayWindow::admit(std::uint64_t number) {
  if (number > highest_) {
    const std::uint64_t steps = std::min(number - highest_, datagrams);
    for (std::uint64_t i = 1; i <= steps; ++i) seen_.reset((highest_ + i) % datagrams);
    if (steps == datagrams) seen_.reset();
    highest_ = number;
  } else if (highest_ - number >= datagrams || seen_.test(number % datagrams)) {
    return false;
  }
  seen_.set(number % datagrams);
  return true;
}

std::int64_t Seal::system_clock() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec;
}

Result<std::unique_ptr<Seal>> Seal::create(const std::string& key_file, Clock clock,
                                           const Libcrypto* library) {
  if (library == nullptr) {
    auto usual = libcrypto();
    if (!usual) return usual.error();
    library = *usual;
  }
  const std::int64_t changed = change_time(key_file);
  auto secrets = read_key_file(key_file);
  if (!secrets) return secrets.error();
  std::unique_ptr<Seal> seal(new Seal(*library, clock));
  seal->file_ = key_file;
  seal->file_changed_ = changed;
  if (auto set = seal->set_keys(*secrets); !set) {
    return unusable_key_file(key_file, set.error().message, EINVAL);
  }
  return seal;
}

Result<void> Seal::set_keys(const std::vector<SecretKey>& secrets) {
  std::vector<Key> keys;
  for (const SecretKey& secret : secrets) {
    if (std::ranges::find(keys, secret, &Key::secret) != keys.end()) continue;
    const Digest digest = hmac(library_, secret, id_label, {});
    const auto id = static_cast<std::uint16_t>(std::to_integer<unsigned>(digest[0]) << 8 |
                                               std::to_integer<unsigned>(digest[1]));
    const Digest shown = hmac(library_, secret, proof_label, {});
    Key& key = keys.emplace_back(Key{secret, std::max<std::uint16_t>(id, 1), {}});
    std::memcpy(key.proof.data(), shown.data(), key.proof.size());
    if (find_key(keys, key.id) != &key) {
      return Error{"two of its keys have the same ID: make another in place of one", EINVAL};
    }
  }
  const bool is_new = keys_.empty() || keys.front().secret != keys_.front().secret;
  if (!own_ || is_new) begin_sending(keys.front().secret);
  // Datagrams that were sealed with a removed key are no longer opened, although another may have
  // its ID. The windows stay: the key may come back, and nothing that was taken before may then be
  // repeated.
  const auto stays = [&](std::uint16_t id) {
    const Key* const before = find_key(keys_, id);
    const Key* const now = find_key(keys, id);
    return now != nullptr && (before == nullptr || before->secret == now->secret);
  };
  for (auto& [id, sender] : senders_) {
    if (!stays(sender.key_id)) sender.cipher.reset();
  }
  keys_.swap(keys);
  return {};
}

// Changes all or nothing, as set_keys() does.
void Seal::begin_sending(const SecretKey& secret) {
  SenderCipher::SenderId id{};
  for (std::size_t i = 0; i < id.size(); i += 4) {
    const auto word = static_cast<std::uint32_t>(system_random());
    std::memcpy(id.data() + i, &word, sizeof word);
  }
  SenderCipher cipher(library_, secret, id);
  own_.emplace(std::move(cipher));
  own_id_ = id;
  sent_ = 0;
}

void Seal::look_at_file(Time now) {
  if (now < looked_at_ + look_interval) return;
  looked_at_ = now;
  const std::int64_t changed = change_time(file_);
  if (changed == file_changed_) return;
  const LibcryptoUse use;
  if (!use.is_allowed()) return;
  if (auto secrets = read_key_file(file_)) static_cast<void>(set_keys(*secrets));
  file_changed_ = changed;
}

const Seal::Key* Seal::find_key(const std::vector<Key>& keys, std::uint16_t id) {
  const auto found = std::ranges::find(keys, id, &Key::id);
  return found == keys.end() ? nullptr : &*found;
}

bool Seal::seal(const wire::IpUdp& ip, std::span<std::byte> room) {
  const LibcryptoUse use;
  if (!use.is_allowed()) return false;
  // A child has the same key and counter, and no nonce may come twice (NIST SP 800-38D, 8).
  if (fork_mark_.is_in_child()) own_.reset();
  if (!own_ || sent_ == datagrams_per_key) {
    try {
      begin_sending(keys_.front().secret);
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  const auto header = room.first(seal_header_bytes);
  const auto text = room.subspan(seal_header_bytes, room.size() - seal_bytes);
  Clear clear{{}, ip.source, ip.destination};
  Header& fields = clear.header;
  fields.key_id = keys_.front().id;
  wire::Bth bth;
  if (text.size() >= sizeof bth) {
    std::memcpy(&bth, text.data(), sizeof bth);
    fields.destination = bth.destination_qp();
  }
  fields.sender = own_id_;
  fields.counter = ++sent_;
  fields.time = static_cast<std::uint32_t>(clock_());
  std::memcpy(header.data(), &fields, sizeof fields);
  return own_->encrypt(std::as_bytes(std::span(&clear, 1)), text, room.last<seal_tag_bytes>());
}

// A datagram for which there is no memory is lost, as the network loses some.
std::optional<std::span<const std::byte>> Seal::open(const wire::IpUdp& ip,
                                                     std::span<const std::byte> datagram) {
  const LibcryptoUse use;
  if (!use.is_allowed()) return {};
  try {
    return open_or_throw(ip, datagram);
  } catch (const std::bad_alloc&) {
    return {};
  }
}

std::optional<std::span<const std::byte>> Seal::open_or_throw(const wire::IpUdp& ip,
                                                              std::span<const std::byte> datagram) {
  if (datagram.size() < seal_bytes) return {};
  Clear clear{{}, ip.source, ip.destination};
  const Header& fields = clear.header;
  std::memcpy(&clear.header, datagram.data(), sizeof clear.header);
  if (fields.opcode != seal_opcode || fields.version != seal_version) return {};
  const auto header = std::as_bytes(std::span(&clear, 1));
  const auto text = datagram.subspan(seal_header_bytes, datagram.size() - seal_bytes);
  const auto tag = datagram.last<seal_tag_bytes>();
  if (opened_.size() < text.size()) opened_.resize(text.size());
  const std::span<std::byte> plain(opened_.data(), text.size());
  const std::int64_t sealed_at{fields.time};
  const auto known = senders_.find(fields.sender);
  if (known != senders_.end()) {
    Sender& sender = known->second;
    if (sender.key_id != fields.key_id || !has_cipher(fields.sender, sender)) return {};
    if (!sender.cipher->decrypt(header, text, plain, tag)) return {};
    if (is_too_early(sealed_at, sender.not_before)) return {};
    if (!sender.window.admit(fields.counter)) return {};
    sender.sealed_at = std::max(sender.sealed_at, sealed_at);
    by_silence_.splice(by_silence_.begin(), by_silence_, sender.place);
    return plain;
  }
  // Nothing is remembered of a sender before one of its datagrams has proved genuine.
  const Key* key = find_key(keys_, fields.key_id);
  const std::int64_t age = clock_() - sealed_at;
  if (key == nullptr || age > age_seconds_max || age < -age_seconds_max) return {};
  if (is_too_early(sealed_at, not_before_)) return {};
  Sender sender{.key_id = fields.key_id,
                .cipher = SenderCipher(library_, key->secret, fields.sender),
                .window = {},
                .sealed_at = sealed_at,
                .not_before = std::max(not_before_, clock_() - age_seconds_max),
                .place = {}};
  if (!sender.cipher->decrypt(header, text, plain, tag)) return {};
  sender.window.admit(fields.counter);
  remember(fields.sender, std::move(sender));
  return plain;
}

// A clock that was wrong when the floor was set, and is right now, must not shut all out. What was
// taken by the wrong one is too old, or too new, by the right one.
bool Seal::is_too_early(std::int64_t sealed_at, std::int64_t& floor) const {
  if (floor > clock_() + age_seconds_max) floor = clock_();
  return sealed_at < floor;
}

// A sender has lost its cipher if its key was removed since. The key may be back.
bool Seal::has_cipher(const SenderCipher::SenderId& id, Sender& sender) const {
  const Key* const key = sender.cipher ? nullptr : find_key(keys_, sender.key_id);
  if (key != nullptr) sender.cipher.emplace(library_, key->secret, id);
  return sender.cipher.has_value();
}

void Seal::remember(const SenderCipher::SenderId& id, Sender sender) {
  if (senders_.size() == senders_max) {
    const auto forgotten = senders_.find(by_silence_.back());
    not_before_ = std::max(not_before_, forgotten->second.sealed_at + 1);
    senders_.erase(forgotten);
    by_silence_.pop_back();
  }
  by_silence_.push_front(id);
  const OnThrow undo([this] { by_silence_.pop_front(); });
  sender.place = by_silence_.begin();
  senders_.emplace(id, std::move(sender));
}

}  // namespace tulle::live
