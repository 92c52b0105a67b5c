#include "live/fabric/data_ports.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "live/bell.h"
#include "live/message/socket.h"
#include "live/process_state.h"
#include "live/slots.h"

namespace tulle::live {

using fabric::SubnetTraffic;

static_assert(SubnetTraffic::packet_bytes_max <= PacketRing::content_bytes_max);
static_assert(SubnetTraffic::slots_max < slots);

DataPorts::DataPorts(Time now, fabric::Subnet& subnet)
    : traffic_(now, subnet, slot_of), turns_(subnet.topology().hosts) {
  traffic_.tell_slow_from_stopped([this](SubnetTraffic::Program program) {
    const Port* port = find(program);
    return port != nullptr && !is_stopped(port->process);
  });
}

// --- programs ---

DataPorts::Port* DataPorts::find(std::uint32_t client) {
  const auto found = std::find_if(ports_.begin(), ports_.end(),
                                  [&](const auto& port) { return port->client == client; });
  return found == ports_.end() ? nullptr : found->get();
}

DataPorts::Port* DataPorts::find(SubnetTraffic::Program program) {
  const auto found = std::find_if(ports_.begin(), ports_.end(),
                                  [&](const auto& port) { return port->program == program; });
  return found == ports_.end() ? nullptr : found->get();
}

bool DataPorts::is_free(SubnetTraffic::Program program) {
  return find(program) == nullptr && std::none_of(own_.begin(), own_.end(), [&](const auto& own) {
           return own.program == program;
         });
}

Result<DataPorts::Own> DataPorts::open_own(Time now, std::uint32_t host, Take take) {
  std::uint32_t slot = SubnetTraffic::slots_max;
  while (slot > 0 && !is_free({host, slot})) --slot;
  if (slot == 0) return Error{"the port of this host has no place left", EMFILE};
  const SubnetTraffic::Program program{host, slot};
  own_.push_back({program, std::move(take)});
  traffic_.attach(now, program);
  return Own{program, first_qp_of(slot, 0)};
}

Result<void> DataPorts::has_place_for(std::uint32_t host, int process) const {
  const auto own = std::ranges::count_if(ports_, [&](const auto& port) {
    return port->program.host == host && port->process == process;
  });
  const bool is_known = process > 0;
  const std::size_t most = is_known ? slots_of_process_max : slots_of_unknown_max;
  if (static_cast<std::size_t>(own) < most) return {};
  if (!is_known) {
    return Error{fmt::format("programs of other PID namespaces have the port of this host open {} "
                             "times, which is the most for them",
                             own),
                 EMFILE};
  }
  return Error{fmt::format("process {} has the port of this host open {} times, which is the most "
                           "for one process",
                           process, own),
               EMFILE};
}

Result<DataPorts::Opened> DataPorts::open(Time now, std::uint32_t host, std::uint32_t client,
                                          UniqueFd&& button, int process) {
  if (auto has_place = has_place_for(host, process); !has_place) return has_place.error();
  std::uint32_t slot = 1;
  while (slot <= SubnetTraffic::slots_max && !is_free({host, slot})) ++slot;
  if (slot > SubnetTraffic::slots_max) {
    return Error{fmt::format("{} programs have the port of this host open, which is the most",
                             programs(host)),
                 EMFILE};
  }
  if (!is_button(button.get())) {
    return Error{"the program gave the fabric no socket to wake it by", EINVAL};
  }
  auto bell = create_bell();
  if (!bell) return bell.error();
  Opened opened;
  opened.button = std::move(bell->button);
  auto memory = FabricRings::create_memory();
  if (!memory) return memory.error();
  opened.memory = std::move(*memory);
  UniqueFd own(dup(opened.memory.get()));
  const int number = button.get();
  auto rings = FabricRings::map(std::move(own), std::move(button), FabricRings::End::fabric);
  if (!rings) return rings.error();

  turns_[host].resize(slots);
  const std::uint32_t turn = turns_[host][slot]++ % turns_per_slot;
  opened.slot = slot;
  opened.first_qp = first_qp_of(slot, turn);
  opened.qp_count = qps_per_process;
  const SubnetTraffic::Program program{host, slot};
  auto made = std::make_unique<Port>(
      Port{program, client, process, std::move(*rings), number, std::move(bell->bell)});
  made->rings.fall_asleep();
  ports_.reserve(ports_.size() + 1);
  traffic_.attach(now, program);
  ports_.push_back(std::move(made));
  share_rounds();
  return opened;
}

// Sends what the client left in its rings: the last acknowledgement may be among it. A ring has no
// more records than are read here, though another holder of the memory may continue to write.
std::vector<UniqueFd> DataPorts::close(Time now, std::uint32_t client) {
  Port* port = find(client);
  if (port == nullptr) return {};
  constexpr int records_max = static_cast<int>(PacketRing::ring_bytes / PacketRing::line_bytes);
  port->packets_in_round = packets_in_a_round;
  for (int i = 0; i < records_max / packets_in_a_round && read(now, *port) > 0; ++i) {
    traffic_.run(now);
  }
  traffic_.detach(now, port->program);
  // The rings close one descriptor of the button. The last one is the caller's.
  std::vector<UniqueFd> left(2);
  left[0].reset(fcntl(port->button, F_DUPFD_CLOEXEC, 0));
  left[1] = std::move(port->bell);
  std::erase_if(ports_, [&](const auto& other) { return other.get() == port; });
  share_rounds();
  return left;
}

int DataPorts::bell(std::uint32_t client) const {
  return const_cast<DataPorts*>(this)->find(client)->bell.get();
}

// Takes one ring: its bell stays readable if there are more.
void DataPorts::answer(std::uint32_t client) {
  Port* port = find(client);
  std::byte ring;
  if (port == nullptr || recv(port->bell.get(), &ring, sizeof ring, MSG_DONTWAIT) < 0) return;
  port->is_awake = true;
}

std::uint32_t DataPorts::programs(std::uint32_t host) const {
  return static_cast<std::uint32_t>(std::count_if(
      ports_.begin(), ports_.end(), [&](const auto& port) { return port->program.host == host; }));
}

// --- packets ---

// Processes that the system does not tell apart count as one that may have more.
void DataPorts::share_rounds() {
  std::map<int, int> parts;
  for (const auto& port : ports_) ++parts[std::max(port->process, 0)];
  for (const auto& port : ports_) {
    const int full = port->process > 0 ? full_parts_of_process : full_parts_of_unknown;
    const int share = full * packets_in_a_round / parts[std::max(port->process, 0)];
    port->packets_in_round = std::clamp(share, 1, packets_in_a_round);
  }
}

bool DataPorts::progress(Time now) {
  using Clock = std::chrono::steady_clock;
  const auto due = Clock::now() + turn_time;
  for (int round = 0; round < rounds_in_a_turn; ++round) {
    const bool has_read = read_all(now);
    const bool has_run = traffic_.run(now);
    const bool has_delivered = deliver_all(now);
    if (!has_run) return true;
    if (has_delivered || has_read || traffic_.is_behind()) {
      if (Clock::now() >= due) return true;
      continue;
    }
    if (send_to_sleep()) return false;
  }
  return true;
}

bool DataPorts::read_all(Time now) {
  int taken = 0;
  for (std::size_t i = 0; i < ports_.size() && taken < packets_of_all_in_a_round; ++i) {
    if (first_of_round_ >= ports_.size()) first_of_round_ = 0;
    Port& port = *ports_[first_of_round_++];
    if (port.is_awake || port.held_back_lanes != 0) taken += read(now, port);
  }
  return taken > 0;
}

// Takes some of the packets that a program has sent. Returns how many.
int DataPorts::read(Time now, Port& port) {
  port.held_back_lanes = 0;
  int taken = 0;
  for (std::uint32_t left = port.rings.lanes_in_use(); left != 0; left &= left - 1) {
    taken += read_lane(now, port, static_cast<std::uint32_t>(std::countr_zero(left)));
  }
  if (taken == 0) return 0;
  port.rings.tell();
  port.is_awake = true;  // it may have been asleep, waiting for room
  return taken;
}

// Returns how many packets it took.
int DataPorts::read_lane(Time now, Port& port, std::uint32_t lane) {
  RingReader& ring = port.rings.in(lane);
  int taken = 0;
  while (taken < port.packets_in_round) {
    const auto record = ring.take();
    if (!record) break;
    if (traffic_.offer(now, port.program, record->content) == SubnetTraffic::Offer::no_room) {
      ring.put_back(*record);
      port.held_back_lanes |= 1u << lane;
      break;
    }
    ++taken;
  }
  return taken;
}

bool DataPorts::deliver_all(Time now) {
  bool has_moved = false;
  while (const auto program = traffic_.take_ready()) {
    if (Port* port = find(*program)) {
      has_moved |= deliver(now, *port);
    } else {
      has_moved |= deliver_own(now, *program);
    }
  }
  for (const auto& port : ports_) {
    if (port->is_full) has_moved |= deliver(now, *port);
    port->rings.ring_if_asleep();
  }
  return has_moved;
}

// Returns room for a packet in a program's ring, or null. The program rings when it has made some.
std::byte* DataPorts::room_in(Port& port) {
  std::byte* room = port.rings.reserve(SubnetTraffic::packet_bytes_max);
  if (room != nullptr) return room;
  // The program may have made room before it could see that this end waits.
  port.rings.wait_for_room();
  return port.rings.reserve(SubnetTraffic::packet_bytes_max);
}

// Writes the packets that have come for a program into its ring. Returns true if there were any.
bool DataPorts::deliver(Time now, Port& port) {
  std::size_t unrung_bytes = 0;
  bool has_moved = false;
  port.is_full = false;
  if (traffic_.is_given_up(port.program)) {
    if (room_in(port) == nullptr) {
      port.is_full = true;
      return false;
    }
    traffic_.resume(now, port.program);
  }
  while (traffic_.has_packet(port.program)) {
    std::byte* room = room_in(port);
    if (room == nullptr) {
      port.is_full = true;
      break;
    }
    const std::span<const std::byte> packet = traffic_.take(now, port.program);
    std::memcpy(room, packet.data(), packet.size());
    port.rings.publish(packet.size());
    has_moved = true;
    unrung_bytes += packet.size();
    if (unrung_bytes < early_ring_bytes) continue;
    port.rings.ring_if_asleep();
    unrung_bytes = 0;
  }
  return has_moved;
}

// Returns true if there were packets.
bool DataPorts::deliver_own(Time now, SubnetTraffic::Program program) {
  const auto found = std::find_if(own_.begin(), own_.end(),
                                  [&](const auto& own) { return own.program == program; });
  if (found == own_.end()) return false;
  bool has_moved = false;
  for (; traffic_.has_packet(program); has_moved = true) {
    found->take(now, traffic_.take(now, program));
  }
  return has_moved;
}

// Asks all programs that were looked at to ring from now on. Returns false if one of them has sent
// something meanwhile.
bool DataPorts::send_to_sleep() {
  bool may_sleep = true;
  for (const auto& port : ports_) {
    if (!port->is_awake) continue;
    port->rings.fall_asleep();
    // The next packet of a full lane waits for room, and not for a ring.
    bool has_more = false;
    const std::uint32_t lanes = port->rings.lanes_in_use() & ~port->held_back_lanes;
    for (std::uint32_t left = lanes; left != 0 && !has_more; left &= left - 1) {
      has_more = port->rings.in(static_cast<std::uint32_t>(std::countr_zero(left))).has_more();
    }
    port->is_awake = has_more;
    if (!has_more) continue;
    port->rings.stay_awake();
    may_sleep = false;
  }
  return may_sleep;
}

}  // namespace tulle::live
