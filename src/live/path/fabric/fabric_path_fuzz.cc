// Owns the other end of a program's rings: a fabric's process that has gone mad, or anybody who got
// hold of the memory. All of it may have any bytes at any time.
//
// Whatever comes may change only the memory of receive requests that are posted, and what the key
// of a region allows. Sending and receiving must come to an end in each call.

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/script_fuzz.h"
#include "live/bell.h"
#include "live/links.h"
#include "live/path/fabric/fabric_path.h"
#include "live/path/memory/hostile_peer_fuzz.h"
#include "rdma/port/framing/infiniband.h"

namespace tulle::live {
namespace {

using base::Script;
using verbs::Access;
using wire::Operation;

constexpr Lid own_lid{5};
constexpr Lid peer_lid{9};
constexpr std::size_t receive_at = GuardedRegion::receive_at;
constexpr std::size_t receive_bytes = GuardedRegion::receive_bytes;

device::Configuration configuration() {
  device::Configuration made;
  made.framing = &port::infiniband;
  made.port = &FabricPath::port_settings();
  return made;
}

// The memory of both rings. It is mapped once more, to be written to anywhere.
struct Rings {
  Rings() {
    memory = std::move(*FabricRings::create_memory());
    struct stat its {};
    TULLE_CHECK(fstat(memory.get(), &its) == 0);
    bytes = static_cast<std::size_t>(its.st_size);
    at = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0));
    TULLE_CHECK(at != MAP_FAILED);
    program_bell = std::move(*create_bell());
    fabric_bell = std::move(*create_bell());
  }
  Rings(const Rings&) = delete;
  Rings& operator=(const Rings&) = delete;
  ~Rings() { munmap(at, bytes); }

  FabricRings end(FabricRings::End which) {
    UniqueFd& button =
        which == FabricRings::End::program ? fabric_bell.button : program_bell.button;
    auto rings = FabricRings::map(UniqueFd(dup(memory.get())), std::move(button), which);
    TULLE_CHECK(rings);
    return std::move(*rings);
  }

  UniqueFd memory;
  std::byte* at = nullptr;
  std::size_t bytes = 0;
  Bell program_bell;
  Bell fabric_bell;
};

class Run {
 public:
  explicit Run(Script& script)
      : script_(script),
        may_write_(script.one_in(2)),
        has_global_(script.one_in(2)),
        adapter_(configuration()),
        connection_(adapter_, GuardedRegion::region(),
                    may_write_ ? verbs::AccessFlags(Access::remote_write) : verbs::AccessFlags(),
                    PortAddress(peer_lid, has_global_ ? hostile_gid : Gid{})),
        fabric_(rings_.end(FabricRings::End::fabric)),
        path_(rings_.end(FabricRings::End::program), adapter_) {
    links_.add(path_);
    adapter_.set_lid(own_lid);
    if (script.one_in(2)) connection_.start_sending(adapter_);
  }

  void go() {
    while (!script_.is_over()) {
      step();
      GuardedRegion::check(may_write_);
    }
  }

 private:
  void step() {
    switch (script_.below(10)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return write_packet();
      case 4:
        return post_receive();
      case 5:
        return send();
      case 6:
        return scribble();
      case 7:
        path_.set_polled(script_.one_in(2));
        return;
      default:
        if (script_.one_in(2)) path_.note_ring();
        for (int i = 0; i < 4 && path_.receive(adapter_, now_) > 0; ++i) continue;
        now_ = now_ + Time::microseconds(script_.half());
        if (adapter_.next_deadline() <= now_) adapter_.handle_deadline(now_);
        links_.transmit(adapter_, now_);
    }
  }

  // A packet of a message, mostly the next one that the queue pair expects.
  void write_packet() {
    std::byte* const room = fabric_.reserve(PacketRing::content_bytes_max / 2);
    if (room == nullptr) return;
    constexpr std::array<Operation, 9> operations = {
        Operation::send_first, Operation::send_middle, Operation::send_last,
        Operation::send_only,  Operation::write_first, Operation::write_middle,
        Operation::write_last, Operation::write_only,  Operation::acknowledge};
    wire::LocalPath path;
    path.local.source = script_.one_in(16) ? Lid(script_.half()) : peer_lid;
    path.local.destination = own_lid;
    path.has_global = script_.one_in(16) ? !has_global_ : has_global_;
    path.global.source = path.global.destination = hostile_gid;
    const std::uint32_t payload = script_.half() % 4'097;
    wire::Packet packet;
    packet.opcode = wire::opcode(wire::TransportClass::rc, operations[script_.below(9)]);
    packet.destination_qp =
        script_.one_in(32) ? QpNumber{script_.word() & 0xFF'FFFF} : connection_.qp->number;
    if (script_.one_in(8)) psn_ = script_.byte();
    packet.psn = Psn(psn_++);
    packet.pad_count = static_cast<std::uint8_t>(-payload & 3);
    packet.ack_request = true;
    packet.virtual_address = 0x1000 + (script_.one_in(4) ? script_.number() : script_.half());
    packet.dma_length = script_.one_in(4) ? script_.word() : script_.half();
    packet.rkey = script_.one_in(16) ? RemoteKey{script_.word()} : connection_.region->rkey();
    const std::size_t transport = wire::header_bytes(packet.opcode) + payload + packet.pad_count;
    std::size_t used =
        port::encode_link_headers(path, transport, {room, PacketRing::content_bytes_max});
    used += wire::encode(packet, {room + used, wire::header_bytes_max});
    std::memset(room + used, 0x5A, payload + packet.pad_count);
    used += payload + packet.pad_count;
    const auto noise = script_.one_in(8) ? script_.bytes(4) : std::vector<std::byte>();
    std::ranges::copy(noise, room + script_.below(128));
    fabric_.publish(script_.one_in(32) ? script_.half() % 8'192 : used);
    fabric_.ring_if_asleep();
  }

  void post_receive() {
    const std::uint32_t first = script_.half() % (receive_bytes / 2);
    const verbs::Sge sge{0x1000 + receive_at, first, connection_.region->lkey()};
    verbs::ReceiveRequest request;
    request.sges = {&sge, 1};
    static_cast<void>(adapter_.post_receive(*connection_.qp, request));
  }

  void send() {
    const verbs::Sge sge{0x1000, script_.one_in(2) ? 65'536u : script_.byte(),
                         connection_.region->lkey()};
    verbs::SendRequest request;
    request.opcode = verbs::SendOpcode::send;
    request.sges = {&sge, 1};
    static_cast<void>(adapter_.post_send(*connection_.qp, request));
    links_.transmit(adapter_, now_);
    if (script_.one_in(2)) return;
    // Records that were scribbled may follow each other without end.
    for (int i = 0; i < 256 && fabric_.in(script_.below(FabricRings::lanes)).take(); ++i) continue;
    fabric_.tell();
  }

  void scribble() {
    const bool is_front = script_.one_in(2);
    const std::size_t at = is_front ? script_.below(256) : script_.word() % (rings_.bytes - 16);
    const auto values = script_.bytes(1 + script_.below(12));
    std::ranges::copy(values, rings_.at + at);
  }

  Script& script_;
  const bool may_write_;
  const bool has_global_;
  GuardedRegion region_;
  Rings rings_;
  device::Adapter adapter_;
  HostileConnection connection_;
  FabricRings fabric_;
  FabricPath path_;
  DriverCounters counters_;
  Links links_{counters_};
  std::uint32_t psn_ = 0;
  Time now_;
};

}  // namespace
}  // namespace tulle::live

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tulle::base::Script script(data, size);
  tulle::live::Run(script).go();
  return 0;
}
