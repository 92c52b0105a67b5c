// A host sends any packets, the network brings any, administration answers anything or nothing, and
// time passes. The interface keeps within its bounds, sends only packets that are whole, and comes
// to rest.

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "management/ipoib/group_reports.h"
#include "management/ipoib/interface.h"
#include "rdma/port/framing/infiniband.h"

namespace tulle::ipoib {
namespace {

constexpr QpNumber own_qp{0x100};
constexpr std::uint32_t qkey = 0xB1B;
// A packet that was written before the group had another MTU may be longer than that.
constexpr std::size_t packet_bytes_max = 4'096;

struct Run {
  base::Script& script;
  Time now = Time::seconds(1);
  Interface interface { default_pkey, own_qp };
  std::vector<Question> asked{};

  Gid gid() {
    Gid made;
    made.bytes[0] = script.one_in(4) ? 0xFF : 0xFE;
    made.bytes[1] = 0x80;
    made.bytes[15] = static_cast<std::uint8_t>(script.below(4));
    return made;
  }
  Gid ip() {
    if (script.one_in(2)) return gid();
    return Gid::from_ipv4(script.one_in(8) ? 0xFFFF'FFFF : 0x0A01'0000 + script.below(4));
  }

  void check_packet(std::span<const std::byte> packet) {
    if (packet.empty()) return;
    wire::LocalPath path;
    const auto link = port::decode_link_headers(packet, packet.size() + wire::icrc_bytes, path);
    TULLE_CHECK(link.verdict == port::Verdict::ok);
    wire::Packet header;
    std::span<const std::byte> payload;
    TULLE_CHECK(port::decode_transport(packet.subspan(link.bytes), header, payload) ==
                port::Verdict::ok);
    TULLE_CHECK(header.source_qp == own_qp && payload.size() <= packet_bytes_max);
  }

  void set_port() {
    PortView view;
    view.gid = gid();
    view.lid = Lid(static_cast<std::uint16_t>(script.below(4)));
    view.manager = Lid(static_cast<std::uint16_t>(script.below(2)));
    view.is_active = !script.one_in(4);
    view.is_in_partition = !script.one_in(4);
    interface.set_port(now, view);
  }

  void arrive() {
    std::vector<std::byte> out(4'400);
    wire::LocalPath path;
    path.local.source = Lid(9);
    path.local.destination = Lid(1);
    path.has_global = script.one_in(2);
    path.global.destination = script.one_in(2) ? wire::broadcast_group(default_pkey) : gid();
    wire::Packet header;
    header.opcode = wire::opcode(wire::TransportClass::ud, wire::Operation::send_only);
    header.destination_qp = path.has_global ? QpNumber(0xFF'FFFF) : own_qp;
    header.qkey = Qkey(script.one_in(16) ? 1 : qkey);
    constexpr std::array<std::uint16_t, 4> types = {0x0800, 0x0806, 0x86DD, 0x1234};
    wire::IpoibHeader ipoib;
    ipoib.type = types[script.below(types.size())];
    const Gid target = ip();
    WrittenMessage message{0, {}};
    wire::IpoibAddress address;
    address.qp = script.below(4);
    address.gid = gid().bytes;
    switch (script.below(3)) {
      case 0:
        message = write_question(target.is_ipv4_mapped() ? Gid::from_ipv4(5) : gid(), address,
                                 target, {});
        break;
      case 1:
        message = write_answer(target, address, target, address);
        break;
      default:
        message = {ipoib.type, script.bytes(200)};
        break;
    }
    ipoib.type = message.type;
    if (!message.bytes.empty() && script.one_in(4)) {
      message.bytes[script.byte() % message.bytes.size()] = std::byte{script.byte()};
    }
    header.pad_count = static_cast<std::uint8_t>((4 - message.bytes.size() % 4) % 4);
    const std::size_t transport = 20 + 4 + message.bytes.size() + header.pad_count;
    const std::size_t link = port::encode_link_headers(path, transport, out);
    const std::size_t headers = wire::encode(header, std::span(out).subspan(link));
    std::memcpy(out.data() + link + headers, &ipoib, sizeof(ipoib));
    std::ranges::copy(message.bytes, out.data() + link + headers + sizeof(ipoib));
    out.resize(link + transport);
    static_cast<void>(interface.receive(now, out));
  }

  void answer() {
    if (asked.empty()) return;
    const Question question = asked.front();
    asked.erase(asked.begin());
    const bool is_refused = script.one_in(4);
    if (question.kind == Question::Kind::path) {
      wire::PathRecord record = std::get<wire::PathRecord>(question.record);
      record.destination_lid = script.half();
      record.raw_flow_and_hops = script.one_in(4) ? script.word() : 0;
      return interface.take_path(now, question.number, is_refused ? nullptr : &record);
    }
    if (question.kind == Question::Kind::leave) return;
    wire::MemberRecord record = std::get<wire::MemberRecord>(question.record);
    record.qkey = qkey;
    record.lid = 0xC000;
    record.mtu = script.one_in(8) ? script.byte() : std::uint8_t{0x84};
    interface.take_group(now, question.number, is_refused ? nullptr : &record);
  }

  void send() {
    std::vector<std::byte> packet = script.bytes(64);
    if (!script.one_in(4)) {
      packet.resize(40 + script.below(64));
      const Gid to = ip();
      packet[0] = to.is_ipv4_mapped() ? std::byte{0x45} : std::byte{0x60};
      if (to.is_ipv4_mapped()) {
        std::memcpy(packet.data() + 16, to.bytes.data() + 12, 4);
        packet[9] = script.one_in(2) ? std::byte{2} : std::byte{17};
      } else {
        std::memcpy(packet.data() + 24, to.bytes.data(), 16);
        packet[6] = script.one_in(2) ? std::byte{58} : std::byte{0};
      }
    }
    if (script.one_in(64)) packet.resize(5'000);
    check_packet(interface.send(now, packet));
  }

  void step() {
    switch (script.below(8)) {
      case 0:
        set_port();
        break;
      case 1:
        interface.set_addresses(
            now, {{Gid::from_ipv4(0x0A01'0000 + script.below(4)), 96 + script.below(33)},
                  {gid(), script.below(129)}});
        break;
      case 2:
        now += Time::milliseconds(script.half());
        break;
      case 3:
        arrive();
        break;
      case 4:
      case 5:
        answer();
        break;
      default:
        send();
        break;
    }
    work();
  }

  void work() {
    interface.progress(now);
    while (auto question = interface.pull_question()) asked.push_back(*question);
    for (auto packet = interface.pull_packet(); !packet.empty(); packet = interface.pull_packet()) {
      check_packet(packet);
    }
    TULLE_CHECK(interface.neighbours().size() <= Neighbours::neighbours_max);
  }
};

}  // namespace
}  // namespace tulle::ipoib

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tulle;
  base::Script script(data, size);
  ipoib::Run run{script};
  while (!script.is_over()) run.step();
  // Nobody answers any more: what is due becomes rare.
  int wakes = 0;
  for (const Time end = run.now + Time::seconds(600); run.now < end; ++wakes) {
    const Time next = run.interface.next_deadline();
    if (next.is_never()) break;
    run.now = std::max(next, run.now + Time::milliseconds(1));
    run.work();
    run.asked.clear();
  }
  TULLE_CHECK(wakes < 20'000);
  return 0;
}
