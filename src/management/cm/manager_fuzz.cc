// Feeds the manager messages from an untrusted peer and commands in any order. There must be no
// crash and no endless state. The input is a script of commands and of MADs, for which the script
// gives the bytes that matter.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "management/cm/manager.h"

namespace {

using namespace tulle;
using namespace tulle::management::cm;

using base::Script;

constexpr std::uint64_t service = 0x1'0106'0001;
// The peer that programs connect to, another address of it, and a stranger.
const std::array<Route, 3> routes = {Route{Gid::from_ipv4(1), Gid::from_ipv4(2), 0},
                                     Route{Gid::from_ipv4(1), Gid::from_ipv4(3), 0},
                                     Route{Gid::from_ipv4(4), Gid::from_ipv4(5), 0}};

class Run {
 public:
  explicit Run(Script& script) : script_(script) {
    Manager::Settings settings;
    settings.ca_guid = 1;
    settings.connections_max = 16;
    settings.requested_max = 12;
    manager_ = std::make_unique<Manager>(settings);
    manager_->listen(now_, service);
  }

  void go() {
    while (!script_.is_over()) {
      step();
      while (const auto event = manager_->pull_event()) remember(event->id);
      while (const Outgoing* out = manager_->next_outgoing()) {
        wire::MadHeader header;
        std::memcpy(&header, out->bytes.data(), sizeof(header));
        last_transaction_ = header.transaction_id;
        manager_->pop_outgoing();
      }
      TULLE_CHECK(manager_->connection_count() <= 16);
    }
    // A program that ends leaves no connection behind after a while.
    for (const ConnectionId id : ids_) manager_->release(now_, id);
    for (int i = 0; i < 10'000 && !manager_->next_deadline().is_never(); ++i) {
      now_ = manager_->next_deadline();
      manager_->advance(now_);
      while (manager_->pull_event()) {
      }
      while (manager_->next_outgoing() != nullptr) manager_->pop_outgoing();
    }
    TULLE_CHECK(manager_->connection_count() == 0);
    TULLE_CHECK(manager_->index_size() == 0);
  }

 private:
  void remember(ConnectionId id) { ids_.push_back(id); }
  ConnectionId any() { return ids_.empty() ? ConnectionId{} : ids_[script_.byte() % ids_.size()]; }

  void step() {
    switch (script_.byte() % 14) {
      case 0: {
        Request request;
        request.route = routes[0];
        request.service_id = service;
        request.qp = QpNumber{script_.byte() % 4u};
        request.path_mtu = 3;
        return remember(manager_->connect(now_, request));
      }
      case 1: {
        Reply reply;
        reply.qp = QpNumber{script_.byte() % 4u};
        manager_->accept(now_, any(), reply);
        return;
      }
      case 2:
        manager_->establish(now_, any(), {});
        return;
      case 3:
        manager_->reject(now_, any(), wire::cm::Reason::consumer, {});
        return;
      case 4:
        manager_->disconnect(now_, any(), {});
        return;
      case 5:
        return manager_->release(now_, any());
      case 6:
        manager_->notify_established(now_, any());
        return;
      case 7: {
        ServiceQuestion question;
        question.route = routes[0];
        return remember(manager_->ask_service(now_, question));
      }
      case 8:
        manager_->answer_service(now_, any(), {});
        return;
      case 9:
        now_ += Time::milliseconds(1) * (std::int64_t{1} << (script_.byte() % 20));
        return manager_->advance(now_);
      case 10:
        return listen_or_not();
      case 11:
        manager_->pass_over(any());
        return;
      default:
        return receive();
    }
  }

  void listen_or_not() {
    if (std::exchange(is_listening_, !is_listening_)) {
      manager_->stop_listening(service);
      if (script_.byte() % 4 != 0) manager_->expect_listener(now_, service);
    } else {
      manager_->listen(now_, service);
    }
  }

  // Makes a message with any attribute, IDs that are often valid, and a few arbitrary bytes
  // anywhere.
  void receive() {
    std::array<std::byte, wire::mad_bytes> mad{};
    const auto attribute = static_cast<wire::cm::Attribute>(0x0010 + script_.byte() % 12);
    // The transaction ID is often that of a message which was sent.
    const std::uint8_t transaction = script_.byte();
    const wire::MadHeader header = wire::cm::header_of(
        attribute, transaction % 2 == 0 ? last_transaction_ : std::uint64_t{transaction});
    std::memcpy(mad.data(), &header, sizeof(header));
    put(mad, 24, be32{script_.byte() % 3u});
    put(mad, 28, be32{any().value});
    if (attribute == wire::cm::Attribute::request) {
      put(mad, 32, be64{service});
      mad[24 + 50] = std::byte{0x30};
    }
    if (attribute == wire::cm::Attribute::service_id_request) put(mad, 32, be64{service});
    if (attribute == wire::cm::Attribute::service_id_reply) put(mad, 24, be32{any().value});
    for (unsigned i = script_.byte() % 4; i > 0; --i) {
      const std::size_t at = script_.byte();
      mad[at] = static_cast<std::byte>(script_.byte());
    }
    const Route& route = routes[script_.byte() % routes.size()];
    manager_->handle(now_, route, std::span(mad).first(script_.byte() == 0 ? 200 : mad.size()));
  }
  template <typename T>
  static void put(std::array<std::byte, wire::mad_bytes>& mad, std::size_t at, T value) {
    std::memcpy(mad.data() + at, &value, sizeof(value));
  }

  Script& script_;
  std::unique_ptr<Manager> manager_;
  Time now_ = Time::seconds(1);
  std::vector<ConnectionId> ids_;
  std::uint64_t last_transaction_ = 0;
  bool is_listening_ = true;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Script script(data, size);
  Run(script).go();
  return 0;
}
