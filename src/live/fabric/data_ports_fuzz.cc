// Programs on a fabric's hosts write any bytes into their rings, flags and places, at any time, and
// come and go, and a manager writes any tables of arbitration. The fabric's process must touch no
// memory but theirs, every turn must come to an end, and once the hostile programs are gone, two
// others must receive each other's packets as before.

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "fabric/settle_test.h"
#include "fabric/subnet_managers.h"
#include "live/bell.h"
#include "live/fabric/data_ports.h"
#include "management/answer.h"
#include "management/mad_test.h"
#include "rdma/port/framing/infiniband.h"
#include "rdma/wire/packet.h"

namespace tulle::live {
namespace {

using base::Script;

constexpr std::uint32_t programs_max = 4;
constexpr std::uint32_t hosts = 4;
constexpr std::uint32_t links = 5;

// Hosts 0 and 1 at switch 4, hosts 2 and 3 at switch 5.
fabric::Topology topology() {
  auto read = fabric::from_csv(
      "a,b,gbps,delay_ns\n0,4,100,1\n1,4,100,1\n2,5,100,1\n3,5,100,1\n4,5,100,1\n", "fuzz");
  return std::move(*read);
}

struct Program {
  std::uint32_t client = 0;
  std::uint32_t host = 0;
  std::uint32_t first_qp = 0;
  Bell bell;
  std::unique_ptr<FabricRings> rings;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;

  ~Program() {
    if (memory != nullptr) munmap(memory, bytes);
  }
};

class Run {
 public:
  explicit Run(Script& script) : script_(script) {
    fabric::settle(now_, subnet_, managers_);
    ports_.emplace(now_, subnet_);
  }

  void go() {
    while (!script_.is_over()) step();
    for (auto& program : programs_) close(program);
    for (std::uint32_t link = 0; link < links; ++link) subnet_.set_cut(now_, link, false);
    fabric::settle(now_, subnet_, managers_);
    // As if no manager had written a table: a lane may be in none.
    for (std::uint32_t node = 0; node < subnet_.topology().nodes(); ++node) {
      for (std::uint32_t port = 1; port <= subnet_.topology().ports[node]; ++port) {
        for (const std::uint32_t block : {1u, 3u}) arbitrate(node, block << 16 | port, {});
      }
    }
    // Whatever they left waits no longer than this, and the manager has set up all links again.
    for (int i = 0; i < 400; ++i) {
      now_ = now_ + Time::milliseconds(10);
      fabric::settle(now_, subnet_, managers_);
      ports_->follow(now_);
      turn();
    }
    auto a = open(0), b = open(3);
    write(*a, *b, 64);
    turn();
    TULLE_CHECK(b->rings->in().take());
  }

 private:
  void step() {
    auto& program = programs_[script_.below(programs_max)];
    if (program == nullptr) {
      program = open(script_.below(hosts));
      return;
    }
    switch (script_.below(12)) {
      case 0:
        return close(program);
      case 1:
      case 2:
      case 3:
        return write_any(*program);
      case 4:
        return scribble(*program);
      case 5:
        while (program->rings->in().take()) continue;
        program->rings->tell();
        return;
      case 6:
        subnet_.set_cut(now_, script_.below(links), script_.one_in(2));
        ports_->follow(now_);
        return;
      case 7:
        now_ = now_ + Time::microseconds(script_.half());
        return;
      case 8: {
        const std::uint32_t node = script_.below(subnet_.topology().nodes());
        const std::uint32_t block = 1 + script_.below(4);
        const std::uint32_t port = 1 + script_.below(subnet_.topology().ports[node]);
        return arbitrate(node, block << 16 | port, script_.bytes(script_.below(65)));
      }
      case 9:
        if (script_.one_in(16)) ports_->traffic().keep_rates();
        return;
      default:
        ports_->answer(program->client);
        return turn();
    }
  }

  // Sends a table of a port from host 0, by a LID that may lead nowhere now.
  void arbitrate(std::uint32_t node, std::uint32_t modifier, const std::vector<std::byte>& table) {
    const auto& agent = subnet_.node(node);
    management::Packet packet;
    packet.source = Lid(subnet_.node(0).port_info(1).lid);
    packet.destination = Lid(agent.port_info(agent.addressed_port(1)).lid);
    packet.mad = management::request_of(wire::subnet_class, management::method_set,
                                        wire::attribute_vl_arbitration, modifier);
    std::ranges::copy(table, packet.mad.begin() + wire::subnet_data_offset);
    subnet_.send(now_, 0, 1, packet);
    subnet_.run(now_);
    ports_->follow(now_);
  }

  std::unique_ptr<Program> open(std::uint32_t host) {
    auto program = std::make_unique<Program>();
    auto bell = create_bell();
    auto opened = ports_->open(now_, host, next_client_, std::move(bell->button));
    TULLE_CHECK(opened);
    program->client = next_client_++;
    program->host = host;
    program->first_qp = opened->first_qp;
    program->bell.bell = std::move(bell->bell);
    struct stat its {};
    TULLE_CHECK(fstat(opened->memory.get(), &its) == 0);
    program->bytes = static_cast<std::size_t>(its.st_size);
    program->memory = static_cast<std::byte*>(
        mmap(nullptr, program->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened->memory.get(), 0));
    TULLE_CHECK(program->memory != MAP_FAILED);
    auto rings = FabricRings::map(std::move(opened->memory), std::move(opened->button),
                                  FabricRings::End::program);
    TULLE_CHECK(rings);
    program->rings = std::make_unique<FabricRings>(std::move(*rings));
    return program;
  }

  void close(std::unique_ptr<Program>& program) {
    if (program == nullptr) return;
    ports_->close(now_, program->client);
    program = nullptr;
  }

  void turn() {
    for (auto& program : programs_) {
      if (program != nullptr) ports_->answer(program->client);
    }
    // A program whose ring is full of records for ever costs this much, and then others have their
    // turn.
    for (int i = 0; i < 4 && ports_->progress(now_); ++i) continue;
  }

  void write(Program& from, const Program& to, std::size_t payload) {
    const std::size_t bytes = 8 + 12 + payload;
    std::byte* room = from.rings->reserve(bytes);
    if (room == nullptr) return;
    encode(from, subnet_.node(to.host).port_info(1).lid, QpNumber(to.first_qp + 1), bytes, room);
    from.rings->publish(bytes);
    from.rings->ring_if_asleep();
    ports_->answer(from.client);
  }

  void encode(const Program& from, std::uint16_t to, QpNumber qp, std::size_t bytes,
              std::byte* room) {
    wire::LocalPath path;
    path.local.source = Lid(subnet_.node(from.host).port_info(1).lid);
    path.local.destination = Lid(to);
    path.local.service_level = script_.below(16) & 0xF;
    wire::Packet packet;
    packet.opcode = wire::opcode(wire::TransportClass::uc, wire::Operation::send_only);
    packet.destination_qp = qp;
    const std::size_t link = port::encode_link_headers(path, bytes - 8, {room, bytes});
    wire::encode(packet, std::span(room, bytes).subspan(link));
  }

  void write_any(Program& from) {
    const std::size_t payload = 4 * (script_.half() % 1'025);
    const std::size_t bytes = 8 + 12 + payload;
    const std::uint32_t lane = script_.below(FabricRings::lanes);
    std::byte* room = from.rings->reserve(bytes, lane);
    if (room == nullptr) return;
    const auto to =
        static_cast<std::uint16_t>(script_.one_in(8) ? script_.half() : 1 + script_.below(8));
    const QpNumber qp(script_.one_in(8) ? script_.word() & 0xFF'FFFF
                                        : (1 + script_.below(3)) << 17);
    encode(from, to, qp, bytes, room);
    const auto noise = script_.one_in(8) ? script_.bytes(4) : std::vector<std::byte>();
    std::ranges::copy(noise, room + script_.below(16));
    from.rings->publish(script_.one_in(32) ? script_.half() % 16'384 : bytes, lane);
    from.rings->ring_if_asleep();
  }

  void scribble(Program& program) {
    const bool is_front = script_.one_in(2);
    const std::size_t at = is_front ? script_.below(256) : script_.word() % (program.bytes - 16);
    const auto values = script_.bytes(1 + script_.below(12));
    std::ranges::copy(values, program.memory + at);
  }

  Script& script_;
  Time now_ = Time::seconds(1);
  fabric::Subnet subnet_{now_, topology()};
  fabric::SubnetManagers managers_{now_, subnet_, {}};
  std::optional<DataPorts> ports_;
  std::array<std::unique_ptr<Program>, programs_max> programs_;
  std::uint32_t next_client_ = 1;
};

}  // namespace
}  // namespace tulle::live

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tulle::base::Script script(data, size);
  tulle::live::Run(script).go();
  return 0;
}
