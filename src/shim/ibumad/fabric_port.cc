// The port of a host of a software fabric. The fabric's process does what a kernel does with the
// datagrams (live/fabric/server.h).

#include <endian.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>

#include "shim/ibumad/ports.h"

namespace tulle::shim::umad {
namespace {

live::Datagram to_datagram(const Envelope& envelope) {
  const ib_user_mad_t& header = envelope.header();
  live::Datagram out;
  out.agent = header.agent_id;
  out.timeout_milliseconds = header.timeout_ms;
  out.retries = header.retries;
  out.qp = be32toh(header.addr.qpn);
  out.qkey = be32toh(header.addr.qkey);
  out.lid = be16toh(header.addr.lid);
  out.service_level = header.addr.sl;
  out.path_bits = header.addr.path_bits;
  out.pkey_index = header.addr.pkey_index;
  out.bytes = envelope.mad;
  return out;
}

void from_datagram(const live::Datagram& datagram, Envelope& envelope) {
  ib_user_mad_t& header = envelope.header();
  header = {};
  header.agent_id = datagram.agent;
  header.status = datagram.status;
  header.length = static_cast<std::uint32_t>(sizeof header + datagram.bytes.size());
  header.addr.qpn = htobe32(datagram.qp);
  header.addr.qkey = htobe32(datagram.qkey);
  header.addr.lid = htobe16(datagram.lid);
  header.addr.sl = datagram.service_level;
  header.addr.path_bits = datagram.path_bits;
  header.addr.pkey_index = datagram.pkey_index;
  envelope.mad = datagram.bytes;
}

constexpr int gone_pause_microseconds = 100'000;

class FabricPort final : public OpenPort {
 public:
  explicit FabricPort(live::FabricPortClient client) : client_(std::move(client)) {}

  int add(const Registration& registration, int& agent) override {
    const std::lock_guard lock(mutex_);
    auto added =
        client_.add({registration.management_class, registration.class_version, registration.oui,
                     registration.methods, registration.has_transactions});
    if (!added) return error_of(added.error());
    agents_.insert(static_cast<int>(added.value()));
    agent = static_cast<int>(added.value());
    return 0;
  }
  int remove(int agent) override {
    const std::lock_guard lock(mutex_);
    if (agents_.erase(agent) == 0) return EINVAL;
    const auto removed = client_.remove(static_cast<std::uint32_t>(agent));
    return removed ? 0 : error_of(removed.error());
  }
  bool has(int agent) const override {
    const std::lock_guard lock(mutex_);
    return agents_.contains(agent);
  }
  int send(int descriptor, const Envelope& envelope) override {
    const auto sent = live::send_datagram_patiently(descriptor, to_datagram(envelope));
    return sent ? 0 : error_of(sent.error());
  }
  int receive(int descriptor, std::size_t room, Envelope& envelope) override {
    const std::lock_guard lock(receive_mutex_);
    auto bytes = live::next_datagram_bytes(descriptor);
    if (!bytes) {
      // OpenSM receives in a loop whatever the error, and would take a processor once the fabric
      // has ended.
      if (bytes.error().error_number == ECONNRESET) usleep(gone_pause_microseconds);
      return error_of(bytes.error());
    }
    if (*bytes > room) {
      envelope.mad.resize(*bytes);
      return ENOSPC;
    }
    auto datagram = live::receive_datagram(descriptor);
    if (!datagram) return error_of(datagram.error());
    from_datagram(*datagram, envelope);
    return 0;
  }
  std::size_t longest() const override { return live::datagram_bytes_max; }

 private:
  static int error_of(const Error& error) {
    const int number = error.error_number == 0 ? EIO : error.error_number;
    if (number != EAGAIN && number != EPERM) say_once(error);
    return number;
  }

  mutable std::mutex mutex_;  // one question to the fabric at a time
  std::mutex receive_mutex_;  // what was looked at is what is taken
  live::FabricPortClient client_;
  std::set<int> agents_;
};

}  // namespace

Result<OpenedPort> open_fabric_port() {
  auto client = live::FabricPortClient::open(live::fabric_place());
  if (!client) return client.error();
  const int descriptor = client->release_descriptor();
  return OpenedPort{std::make_shared<FabricPort>(std::move(*client)), descriptor};
}

}  // namespace tulle::shim::umad
