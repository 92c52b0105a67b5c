// Plays hostile programs and a hostile host before the host agent's connection manager. The input
// is a script of commands, of events that programs give back or take, and of management datagrams
// from 127.0.0.2. Alongside them runs a program that does nothing. None of its endpoints may
// change, the agent's memory must stay bounded, and the other host must not get many more datagrams
// than it sent.

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "live/agent/ip_network.h"
#include "live/connections/connection_service.h"
#include "live/message/socket.h"
#include "live/path/packets/udp_socket.h"
#include "live/private_network_test.h"
#include "rdma/port/framing/roce_v2.h"
#include "rdma/wire/cm.h"

namespace tulle::live {
namespace {

using base::Script;

constexpr std::uint32_t own_address = 0x7F00'0001, other_address = 0x7F00'0002;
constexpr std::uint16_t quiet_port = 7'000, first_port = 7'001;
// A channel holds at most so many events for a program: 4,096 wait, and some are in its socket.
constexpr std::size_t events_max = 6'144;
constexpr int commands_max = 12'000;

SocketAddress ipv4(std::uint32_t address, std::uint16_t port) {
  SocketAddress out;
  out.family = AF_INET;
  out.port = port;
  for (std::size_t i = 0; i < 4; ++i) {
    out.address[i] = static_cast<std::byte>(address >> (24 - 8 * i));
  }
  return out;
}

// A program, as the service sees one.
struct Program {
  Program(ConnectionService& service, pid_t process) : pid(process) { open(service); }
  // Opens another channel. The events that were taken from the last one remain.
  void open(ConnectionService& service) {
    auto opened =
        service.open_channel({pid, 0, false}, {.name = "tulle0", .interfaces = "lo"}, number);
    TULLE_CHECK(opened);
    events = std::move(*opened);
    taken = 0;
  }
  // Takes the next event from the socket.
  std::optional<ConnectionEvent> take() {
    auto message = receive_message(events.get());
    if (!message) return std::nullopt;
    EventMessage event;
    TULLE_CHECK(decode(message->bytes, event));
    ++taken;
    return event.event;
  }

  pid_t pid = 0;
  ConnectionService::ChannelNumber number = 0;
  UniqueFd events;
  std::uint32_t taken = 0;
  std::vector<EndpointId> endpoints;
  std::vector<ConnectionEvent> held;  // events that it took, to be given back
};

// The other host: a socket of the same port at another address, so that answers reach it.
class OtherHost {
 public:
  explicit OtherHost(std::uint16_t port) : port_(port) {
    socket_.reset(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int yes = 1;
    setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes));
    sockaddr_storage name;
    const socklen_t bytes = ipv4(other_address, port).copy_to(name);
    TULLE_CHECK(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&name), bytes) == 0);
  }

  // Sends a management datagram to QP1, or anything to any queue pair.
  void send(std::span<const std::byte> payload, QpNumber to, Qkey qkey) {
    wire::IpUdp ip;
    ip.source = Gid::from_ipv4(other_address);
    ip.destination = Gid::from_ipv4(own_address);
    ip.source_port = ip.destination_port = port_;
    wire::Packet packet;
    packet.opcode = wire::opcode(wire::TransportClass::ud, wire::Operation::send_only);
    packet.destination_qp = to;
    packet.source_qp = wire::general_services_qp;
    packet.qkey = qkey;
    packet.pad_count = static_cast<std::uint8_t>(-payload.size() & 3);
    port::FrameBytes frame;
    port::encode(ip, packet, std::array{payload}, frame);
    std::vector<std::byte> datagram(frame.head.begin(), frame.head.begin() + frame.head_bytes);
    datagram.insert(datagram.end(), payload.begin(), payload.end());
    datagram.insert(datagram.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
    send_raw(datagram);
  }
  void send_raw(std::span<const std::byte> datagram) {
    sockaddr_storage name;
    const socklen_t bytes = ipv4(own_address, port_).copy_to(name);
    ++sent_;
    static_cast<void>(sendto(socket_.get(), datagram.data(), datagram.size(), MSG_DONTWAIT,
                             reinterpret_cast<const sockaddr*>(&name), bytes));
  }
  // Takes answers and keeps the last few.
  void receive() {
    std::array<std::byte, 2048> bytes;
    for (;;) {
      const ssize_t got = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got < 0) return;
      ++received_;
      constexpr std::size_t before = 12 + 8;  // BTH and DETH
      if (static_cast<std::size_t>(got) < before + wire::mad_bytes) continue;
      auto& mad = answers_.emplace_back();
      std::memcpy(mad.data(), bytes.data() + before, mad.size());
      if (answers_.size() > 4) answers_.pop_front();
    }
  }
  using Mad = std::array<std::byte, wire::mad_bytes>;
  const std::deque<Mad>& answers() const { return answers_; }
  std::uint64_t sent() const { return sent_; }
  std::uint64_t received() const { return received_; }

 private:
  std::uint16_t port_;
  UniqueFd socket_;
  std::deque<Mad> answers_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

KnownDevices& devices() {
  static KnownDevices devices([](const auto&, std::size_t) { return HeldBy::nobody; });
  return devices;
}

class Run {
 public:
  explicit Run(Script& script)
      : script_(script),
        socket_(std::move(*bind_udp(0, PortUse::shared))),
        network_(socket_.get(), port_of(socket_.get()), UniqueFd(), devices()),
        service_(network_, 1),
        other_(port_of(socket_.get())) {
    quiet_.emplace(service_, 900);
    listener_ = create(*quiet_, PortSpace::tcp);
    TULLE_CHECK(run(*quiet_, command::Bind{listener_, ipv4(own_address, quiet_port)}) == 0);
    TULLE_CHECK(run(*quiet_, command::Listen{listener_, 8}) == 0);
    idle_ = create(*quiet_, PortSpace::udp);
    TULLE_CHECK(run(*quiet_, command::Bind{idle_, ipv4(own_address, quiet_port)}) == 0);
    for (const pid_t pid : {100, 100, 100, 200}) programs_.emplace_back(service_, pid);
  }

  void go() {
    while (!script_.is_over() && commands_ < commands_max) {
      step();
      other_.receive();
      check_quiet();
    }
    for (Program& program : programs_) check_bounds(program);
    for (Program& program : programs_) service_.close_channel(program.number);
    service_.progress();
    other_.receive();
    check_quiet();
    TULLE_CHECK(service_.listener_count() == 1);
    // Each message may be answered, and a request repeated fifteen times (IBTA 12.7.27).
    TULLE_CHECK(other_.received() <= 16 * (other_.sent() + static_cast<unsigned>(commands_)) + 16);
  }

 private:
  ConnectionReply execute(Program& program, ConnectionCommand command) {
    ++commands_;
    return service_.execute(program.number, {program.taken, std::move(command)});
  }
  int run(Program& program, ConnectionCommand command) {
    const ConnectionReply reply = execute(program, std::move(command));
    const auto* failed = std::get_if<reply::Failed>(&reply);
    return failed != nullptr ? failed->error : 0;
  }
  EndpointId create(Program& program, PortSpace space) {
    const auto reply = execute(program, command::Create{space, ConnectionQpType::rc});
    const auto* created = std::get_if<reply::Created>(&reply);
    TULLE_CHECK(created != nullptr);
    program.endpoints.push_back(created->endpoint);
    return created->endpoint;
  }

  void step() {
    Program& program = programs_[script_.below(4)];
    switch (script_.below(12)) {
      case 0:
        if (program.endpoints.size() < 64) {
          constexpr std::array spaces = {PortSpace::tcp, PortSpace::udp, PortSpace::ipoib,
                                         PortSpace::ib};
          create(program, spaces[script_.below(4)]);
        }
        return;
      case 1:
        for (unsigned i = script_.below(8); i > 0; --i) {
          if (auto event = program.take()) note(program, std::move(*event));
        }
        return;
      case 2:
        return give_back(program);
      case 3:
        return receive_mad();
      case 4: {
        const auto bytes = script_.bytes(script_.below(200));
        return other_.send(bytes, QpNumber{script_.below(3)}, wire::general_services_qkey),
               service_.progress();
      }
      case 5:
        return execute_raw(program);
      case 6:
        if (!script_.one_in(8)) return;
        check_bounds(program);
        service_.close_channel(program.number);
        program.open(service_);
        return;
      case 7:
        service_.progress();
        for (const auto& [socket, channel] : service_.take_blocked()) service_.flush(channel);
        return;
      default: {
        ConnectionCommand command = any_command();
        const unsigned times = script_.one_in(64) ? 64u << script_.below(8) : 1u;
        for (unsigned i = 0; i < times && commands_ < commands_max; ++i) run(program, command);
      }
    }
  }

  void note(Program& program, ConnectionEvent event) {
    if (const auto* request = std::get_if<event::ConnectRequest>(&event)) {
      program.endpoints.push_back(request->endpoint);
    }
    if (program.held.size() < 16) program.held.push_back(std::move(event));
  }

  // Returns an endpoint of some program, mostly a hostile one.
  EndpointId any_endpoint() {
    const std::uint32_t choice = script_.below(64);
    if (choice == 0) return listener_;
    if (choice == 1) return idle_;
    if (choice == 2) return EndpointId{script_.word()};
    const Program& program = programs_[choice % programs_.size()];
    if (program.endpoints.empty()) return {};
    return program.endpoints[script_.below(64) % program.endpoints.size()];
  }

  SocketAddress any_address() {
    const auto port = static_cast<std::uint16_t>(first_port - 1 + script_.below(4));
    SocketAddress out = ipv4(own_address, script_.one_in(8) ? std::uint16_t{0} : port);
    switch (script_.below(16)) {
      case 0:
        return {};
      case 1:
        return ipv4(0, port);
      case 2:
        return ipv4(other_address, port);
      case 3:
        return ipv4(0xEF00'0001 + script_.below(4), port);  // a multicast group
      case 4:
        return ipv4(0xCB00'7101, port);  // no route leads there
      case 5:
      case 6:
        out.family = AF_INET6;
        out.address = {};
        out.address[15] = static_cast<std::byte>(script_.below(2));
        return out;
      case 7:
        out.family = script_.one_in(2) ? infiniband_family : script_.half();
        return out;
      case 8: {
        out.family = AF_INET6;
        const auto bytes = script_.bytes(16);
        std::copy(bytes.begin(), bytes.end(), out.address.begin());
        out.scope_id = script_.below(3);
        return out;
      }
      default:
        return out;
    }
  }

  ConnectionParameters any_parameters() {
    ConnectionParameters p;
    p.private_data = script_.bytes(script_.one_in(4) ? script_.byte() : 4);
    p.responder_resources = script_.byte();
    p.initiator_depth = script_.byte();
    p.retry_count = p.rnr_retry_count = script_.byte();
    p.qp_number = script_.word();
    return p;
  }

  ConnectionCommand any_command() {
    const EndpointId id = any_endpoint();
    const auto type = static_cast<ConnectionQpType>(script_.one_in(8) ? script_.byte() : 2);
    switch (script_.below(20)) {
      case 0:
        return command::Bind{id, any_address()};
      case 1:
        return command::Listen{id, script_.below(4)};
      case 2:
        return command::ResolveAddress{id, any_address(), any_address()};
      case 3:
        return command::ResolveAddress{id, {}, any_address()};
      case 4:
        return command::ResolveRoute{{id}};
      case 5:
        return command::Query{{id}};
      case 6:
        return command::Connect{id, type, any_parameters()};
      case 7:
        return command::Accept{id, type, any_parameters()};
      case 8:
        return command::Establish{{id}};
      case 9:
        return command::Reject{id, script_.byte(), script_.bytes(script_.byte())};
      case 10:
        return command::NotifyEstablished{{id}};
      case 11:
        return command::Disconnect{{id}};
      case 12:
        return command::Destroy{id, script_.byte()};
      case 13:
        return command::SetOption{id, script_.below(3), script_.below(5),
                                  script_.bytes(script_.below(6))};
      case 14:
        return command::GetQpAttributes{id};
      case 15:
        return command::JoinMulticast{id, any_address()};
      case 16:
        return command::LeaveMulticast{id, any_address()};
      case 17:
        return command::Hold{{id}};
      case 18:
        return command::Migrate{
            id, script_.one_in(4) ? script_.word() : programs_[script_.below(4)].number, {}};
      default:
        return command::Report{id, static_cast<ConnectionEventType>(script_.below(20)),
                               static_cast<std::int32_t>(script_.word()), script_.number()};
    }
  }

  // Gives back events that it took, and events that it invents.
  void give_back(Program& program) {
    std::vector<ConnectionEvent> events;
    for (unsigned i = script_.below(8); i > 0; --i) {
      switch (script_.below(4)) {
        case 0:
          events.push_back(
              event::ConnectRequest{any_endpoint(), any_endpoint(), false, {}, {}, {}});
          break;
        case 1:
          events.push_back(event::Established{any_endpoint()});
          break;
        default:
          if (!program.held.empty()) {
            events.push_back(program.held.back());
            program.held.pop_back();
          }
      }
    }
    const bool more = script_.one_in(4);
    if (script_.one_in(4)) {
      const EndpointId id = any_endpoint();
      run(program, command::Migrate{id, programs_[script_.below(4)].number, std::move(events)});
    } else {
      run(program, command::GiveBack{more, std::move(events)});
    }
  }

  // Executes a message as it may come from the program's socket.
  void execute_raw(Program& program) {
    const MessageHeader header{message_magic, protocol_version,
                               static_cast<std::uint16_t>(CommandMessage::kind)};
    std::vector<std::byte> bytes(sizeof(header));
    std::memcpy(bytes.data(), &header, sizeof(header));
    const auto body = script_.bytes(script_.byte());
    bytes.insert(bytes.end(), body.begin(), body.end());
    CommandMessage message;
    if (!decode(bytes, message)) return;
    ++commands_;
    service_.execute(program.number, std::move(message));
  }

  // Sends a message of the connection manager with IDs that are often valid.
  void receive_mad() {
    std::array<std::byte, wire::mad_bytes> mad{};
    const auto& answers = other_.answers();
    const auto* answer = answers.empty() ? nullptr : &answers[script_.below(4) % answers.size()];
    wire::MadHeader before;
    if (answer != nullptr) std::memcpy(&before, answer->data(), sizeof(before));
    const auto attribute = static_cast<wire::cm::Attribute>(0x0010 + script_.below(12));
    const std::uint64_t transaction = script_.byte();
    const wire::MadHeader header = wire::cm::header_of(
        attribute, transaction % 2 == 0 ? std::uint64_t{before.transaction_id} : transaction);
    std::memcpy(mad.data(), &header, sizeof(header));
    mad[27] = static_cast<std::byte>(script_.below(4));
    // The local communication ID of an answer is the remote one of what follows.
    if (answer != nullptr) std::memcpy(mad.data() + 28, answer->data() + 24, 4);
    const bool asks = attribute == wire::cm::Attribute::request;
    const bool asks_service = attribute == wire::cm::Attribute::service_id_request;
    if (asks || asks_service) {
      const auto space = static_cast<std::uint16_t>(asks ? PortSpace::tcp : PortSpace::udp);
      const be64 service = wire::cm::ip_service_id(
          space, static_cast<std::uint16_t>(first_port - 1 + script_.below(4)));
      std::memcpy(mad.data() + 32, &service, sizeof(service));
      if (asks) mad[24 + 50] = std::byte{0x30};
      wire::cm::IpHello hello;
      wire::cm::IpHello::IpVersion::set(hello.ip_version, 4);
      const auto from = ipv4(other_address, 0), to = ipv4(own_address, 0);
      std::copy_n(from.address.begin(), 4, hello.source.begin() + 12);
      std::copy_n(to.address.begin(), 4, hello.destination.begin() + 12);
      const std::size_t at = asks ? offsetof(wire::cm::Request, private_data)
                                  : offsetof(wire::cm::ServiceIdRequest, private_data);
      std::memcpy(mad.data() + sizeof(header) + at, &hello, sizeof(hello));
    }
    for (unsigned i = script_.below(4); i > 0; --i) {
      const std::size_t at = script_.byte();
      mad[at] = static_cast<std::byte>(script_.byte());
    }
    other_.send(mad, wire::general_services_qp, wire::general_services_qkey);
    service_.progress();
  }

  // The quiet program's endpoints are as they were, and it gets only events of its listener.
  void check_quiet() {
    for (const EndpointId id : {listener_, idle_}) {
      const auto reply = service_.execute(quiet_->number, {quiet_->taken, command::Query{{id}}});
      const auto* status = std::get_if<EndpointStatus>(&reply);
      TULLE_CHECK(status != nullptr);
      TULLE_CHECK(status->source == ipv4(own_address, quiet_port) && status->has_device);
      TULLE_CHECK(status->destination == SocketAddress{});
    }
    while (const auto event = quiet_->take()) {
      if (const auto* request = std::get_if<event::ConnectRequest>(&*event)) {
        TULLE_CHECK(request->listener == listener_);
        quiet_->endpoints.push_back(request->endpoint);
      } else {
        const auto& own = quiet_->endpoints;
        TULLE_CHECK(std::find(own.begin() + 2, own.end(), endpoint_of(*event)) != own.end());
      }
    }
  }

  // A program that reads nothing costs the agent a bounded number of events and groups.
  void check_bounds(Program& program) {
    run(program, command::GiveBack{false, {}});
    std::size_t events = 0;
    for (; program.take(); ++events) service_.flush(program.number);
    TULLE_CHECK(events <= events_max);
    for (const EndpointId id : program.endpoints) {
      std::size_t groups = 0;
      for (std::uint32_t i = 0; i < 4; ++i) {
        while (run(program, command::LeaveMulticast{id, ipv4(0xEF00'0001 + i, 0)}) == 0) ++groups;
      }
      TULLE_CHECK(groups <= 1'024);
    }
  }

  Script& script_;
  UniqueFd socket_;
  IpNetwork network_;
  ConnectionService service_;
  OtherHost other_;
  std::optional<Program> quiet_;
  std::vector<Program> programs_;
  EndpointId listener_, idle_;
  int commands_ = 0;
};

}  // namespace
}  // namespace tulle::live

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tulle::live::enter_private_network();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tulle::base::Script script(data, size);
  tulle::live::Run(script).go();
  return 0;
}
