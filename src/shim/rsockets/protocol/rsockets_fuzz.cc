// Plays a peer that sends anything: handshake data, immediates, the lists that it may write,
// datagrams. The input is a script. This side must stay inside its memory, and its program must
// read no more bytes than the peer said it wrote.

#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "shim/rsockets/protocol/datagram.h"
#include "shim/rsockets/protocol/peer_table.h"
#include "shim/rsockets/protocol/stream.h"

namespace {

using namespace tulle;
using namespace tulle::rsockets;

class Script final : public base::Script {
 public:
  using base::Script::Script;
  std::uint32_t big_endian() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | byte();
    return value;
  }
  void fill(std::span<std::byte> bytes) {
    for (std::byte& each : bytes) each = static_cast<std::byte>(byte());
  }
};

class Stream {
 public:
  explicit Stream(Script& script) : script_(script) {
    sizes_.receive_buffer_bytes = 2 * (1u + script.byte());
    sizes_.send_buffer_bytes = 4096;
    sizes_.send_queue = 5u + script.byte() % 16;
    sizes_.receive_queue = 1u + script.byte() % 16;
    sizes_.maps = script.byte() % 4;
    send_.resize(StreamSender::buffer_bytes(sizes_));
    receive_.resize(sizes_.receive_buffer_bytes);
    targets_.resize(StreamProtocol::targets_bytes(sizes_));
    protocol_.start({send_, {receive_, 1}, {targets_, 2}}, sizes_);
  }

  void go() {
    ConnectionData data = protocol_.own_data();
    std::span<std::byte> bytes = std::as_writable_bytes(std::span(&data, 1));
    if (script_.byte() % 4 == 0) script_.fill(bytes);
    const std::size_t length = script_.byte() % 8 == 0 ? script_.byte() % sizeof data : sizeof data;
    if (protocol_.open(bytes.first(length)) != 0) return;
    while (!script_.is_over()) step();
    while (!posted_.empty()) complete();
    TULLE_CHECK(protocol_.all_sent());
    while (protocol_.has_data()) read(sizes_.receive_buffer_bytes);
    TULLE_CHECK(read_bytes_ <= said_bytes_);
  }

 private:
  void step() {
    switch (script_.byte() % 10) {
      case 0:
        return handle(script_.big_endian(), script_.byte());
      case 1:
        return handle_data(script_.byte());
      case 2:
        return handle(to_message(MessageType::credits, script_.big_endian()),
                      script_.byte() % 2 * sizeof(TargetEntry));
      case 3: {
        const std::span<std::byte> lists = targets_;
        const std::size_t at = script_.byte() % lists.size();
        return script_.fill(lists.subspan(at, std::min<std::size_t>(16, lists.size() - at)));
      }
      case 4:
        return read(script_.byte());
      case 5:
        return write(script_.big_endian() % 5000);
      case 6:
        if (const auto write = protocol_.next_credits()) post(*write);
        return;
      case 7:
        return complete();
      case 8:
        handle(to_message(MessageType::map, script_.byte() % 8), sizeof(MapEntry));
        return use_maps();
      default:
        if (script_.byte() % 8 != 0) return;
        if (const auto control = protocol_.shut(script_.byte() % 3)) {
          if (protocol_.can_control()) post(protocol_.write_control(*control));
        }
    }
  }

  void handle(std::uint32_t message, std::size_t bytes) {
    if (type_of(message) == MessageType::data) said_bytes_ += value_of(message);
    protocol_.handle_message(message, bytes);
  }
  void handle_data(std::uint32_t bytes) { handle(to_message(MessageType::data, bytes), bytes); }

  void read(std::size_t max) {
    std::vector<std::byte> text(max);
    const iovec into = {text.data(), text.size()};
    const std::size_t peeked = protocol_.read({&into, 1}, 0, true);
    const std::size_t bytes = protocol_.read({&into, 1}, 0, false);
    TULLE_CHECK(bytes == peeked && bytes <= max);
    read_bytes_ += bytes;
  }

  void write(std::size_t bytes) {
    std::vector<std::byte> text(bytes);
    const iovec from = {text.data(), text.size()};
    if (bytes > 0 && can_send()) post(protocol_.write_data({&from, 1}, 0, bytes));
  }

  void use_maps() {
    StreamMaps& maps = protocol_.maps();
    const std::uint64_t offset = script_.byte();
    if (maps.has_room()) maps.add(offset, {offset, script_.byte(), 64}, true);
    if (maps.has_news() && can_send()) {
      if (const auto write = protocol_.write_map()) post(*write);
    }
    maps.remove(script_.byte());
    const std::vector<std::byte> text(script_.byte());
    if (!text.empty() && can_send()) {
      if (const auto write = protocol_.write_mapped(text, offset)) post(*write);
    }
  }

  bool can_send() const { return protocol_.is_writable() && protocol_.can_send(); }

  void post(const StreamWrite& write) {
    // Reading the bytes shows whether they are where they may be.
    std::vector<std::byte> copy(write.bytes.begin(), write.bytes.end());
    posted_.push_back(write.work_id);
  }

  void complete() {
    if (posted_.empty()) return;
    protocol_.handle_sent(posted_.front(), script_.byte() != 1);
    posted_.pop_front();
  }

  Script& script_;
  SocketSizes sizes_;
  std::vector<std::byte> send_;
  std::vector<std::byte> receive_;
  std::vector<std::byte> targets_;
  StreamProtocol protocol_;
  std::deque<std::uint64_t> posted_;
  std::uint64_t said_bytes_ = 0;
  std::uint64_t read_bytes_ = 0;
};

// Whatever is written about a sender is read again.
void check_headers(Script& script) {
  sockaddr_storage sender{};
  sender.ss_family = script.byte() % 2 == 0 ? AF_INET : AF_INET6;
  script.fill(std::as_writable_bytes(std::span(&sender, 1)).subspan(sizeof(sa_family_t), 26));
  const auto& name = reinterpret_cast<const sockaddr&>(sender);
  const HeaderBytes own = datagram_header(name);
  const auto read = read_datagram(own.span());
  TULLE_CHECK(read && read->sender.ss_family == sender.ss_family && read->data.empty());
  const HeaderBytes udp = udp_header(name, script.big_endian(), script.byte() % 2 == 0);
  TULLE_CHECK(read_udp(udp.span(), sender.ss_family));
  const sa_family_t other = sender.ss_family == AF_INET ? AF_INET6 : AF_INET;
  TULLE_CHECK(!read_udp(udp.span(), other));
}

void receive_datagrams(Script& script) {
  PeerTable<int> peers(8);
  while (!script.is_over()) {
    if (script.byte() % 4 == 0) check_headers(script);
    std::vector<std::byte> bytes(script.byte() % 64);
    script.fill(bytes);
    const sa_family_t family = script.byte() % 2 == 0 ? AF_INET : AF_INET6;
    const auto over_udp = read_udp(bytes, family);
    if (over_udp) TULLE_CHECK(over_udp->data.size() < bytes.size());
    const auto datagram = read_datagram(bytes);
    if (!datagram) continue;
    TULLE_CHECK(datagram->data.size() < bytes.size());
    const auto& sender = reinterpret_cast<const sockaddr&>(datagram->sender);
    const PeerKey key = PeerKey::of(sender);
    if (peers.find(key) == nullptr) peers.add(key, std::make_shared<int>());
    TULLE_CHECK(peers.size() <= 8);
    // Such a sender writes what was read here, but for its flow.
    const HeaderBytes header = datagram_header(sender);
    const auto again = read_datagram(header.span());
    TULLE_CHECK(again && std::memcmp(&again->sender, &datagram->sender, sizeof sender) == 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Script script(data, size);
  if (script.byte() % 4 == 0) {
    receive_datagrams(script);
  } else {
    Stream(script).go();
  }
  return 0;
}
