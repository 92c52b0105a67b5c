// Programs register, ask and go, and the network brings any datagrams, segments among them. Nothing
// is delivered to a program that is not there, memory stays within its bounds, and in the end
// nothing waits for ever.

#include <algorithm>
#include <cstring>
#include <set>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "management/datagram_service.h"
#include "rdma/wire/rmpp.h"

namespace tulle::management {
namespace {

constexpr std::array<std::uint8_t, 3> classes = {wire::subnet_administration_class, 0x32,
                                                 wire::subnet_class};
constexpr std::array<std::uint8_t, 5> methods = {method_get, method_get_response, 0x12, 0x92,
                                                 method_trap_repress};

Packet any_packet(base::Script& script) {
  Packet packet;
  packet.source = Lid(static_cast<std::uint16_t>(script.below(3)));
  packet.destination = Lid(static_cast<std::uint16_t>(script.below(3)));
  wire::MadHeader header;
  header.management_class = classes[script.below(classes.size())];
  header.class_version = 1;
  header.method = methods[script.below(methods.size())];
  header.transaction_id = std::uint64_t{script.below(4)} << 32 | script.below(4);
  std::memcpy(packet.mad.data(), &header, sizeof header);
  wire::RmppHeader rmpp;
  rmpp.version = script.one_in(8) ? 0 : 1;
  rmpp.type = static_cast<std::uint8_t>(script.below(6));
  rmpp.response_time_and_flags = static_cast<std::uint8_t>(script.below(8));
  rmpp.segment = script.one_in(8) ? script.word() : script.below(5);
  rmpp.length_or_window = script.one_in(8) ? script.word() : script.half() % 300;
  std::memcpy(packet.mad.data() + wire::rmpp_header_offset, &rmpp, sizeof rmpp);
  return packet;
}

struct Run {
  base::Script& script;
  Time now = Time::seconds(1);
  DatagramService service{};
  std::set<ClientId> clients{};

  void check(const DatagramService::Delivery& delivery) const {
    TULLE_CHECK(clients.contains(delivery.client));
    TULLE_CHECK(delivery.agent < DatagramService::agents_of_client_max);
  }

  void send(ClientId client) {
    DatagramService::Question question;
    question.agent = script.below(3);
    question.packet = any_packet(script);
    question.timeout = Time::milliseconds(script.below(3) * 100);
    question.retries = script.below(3);
    service.enter(client, client / 2);
    question.whole.assign(question.packet.mad.begin(), question.packet.mad.end());
    question.whole.resize(script.half() % 3'000);
    static_cast<void>(service.send(now, client, std::move(question)));
  }

  void add(ClientId client) {
    Registration registration;
    registration.management_class = classes[script.below(classes.size())];
    registration.class_version = 1;
    registration.has_transactions = !script.one_in(4);
    if (script.one_in(2)) registration.methods.set(methods[script.below(methods.size())] & 0x7F);
    if (service.add(client, registration).refusal == DatagramService::Refusal::none) {
      clients.insert(client);
    }
  }

  void drain() {
    // A service that sends without end is a mistake.
    int sent = 0;
    while (service.take_packet()) TULLE_CHECK(++sent < 10'000);
  }

  void step() {
    const ClientId client = script.below(4);
    switch (script.below(8)) {
      case 0:
        add(client);
        break;
      case 1:
        static_cast<void>(service.remove(client, script.below(4)));
        break;
      case 2:
        if (script.one_in(4)) {
          service.remove_client(client);
          clients.erase(client);
        }
        break;
      case 3:
        now += Time::milliseconds(script.half() % 5'000);
        while (const auto expired = service.expire(now)) check(*expired);
        break;
      case 4:
      case 5:
        send(client);
        break;
      default:
        if (const auto delivery = service.receive(now, any_packet(script))) check(*delivery);
        break;
    }
    drain();
  }

  void end() {
    for (int i = 0; !service.next_timeout().is_never(); ++i) {
      TULLE_CHECK(i < 10'000);
      now = std::max(now, service.next_timeout());
      while (const auto expired = service.expire(now)) check(*expired);
      drain();
    }
  }
};

}  // namespace
}  // namespace tulle::management

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tulle::base::Script script(data, size);
  tulle::management::Run run{script};
  while (!script.is_over()) run.step();
  run.end();
  return 0;
}
