#include "study/workload/player.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "rdma/optional/transports.h"

namespace tulle::workload {

using verbs::VerbsStatus;

namespace {

// A shared connection has at most so many flows under way.
constexpr std::uint32_t shared_depth = 64;
// A shared connection has so many receives ready: twice as many as messages can be under way, so
// that its credits, whose numbers are coarse (IBTA 9.7.7.2), never hold up a message.
constexpr std::uint32_t receives_ready = 2 * shared_depth;
// Sets the work request ids of receives apart.
constexpr std::uint64_t receive_bit = 1ull << 32;
// Sets apart the reads that are not the last of their flow.
constexpr std::uint64_t part_bit = 1ull << 33;
// Sets the alarms that close a flow apart from those that begin one.
constexpr std::uint32_t close_bit = 1u << 31;
// Sets apart those that give the place of a flow in a connection's queues to the next one. (Bit 30
// belongs to TaskPlayer.)
constexpr std::uint32_t place_bit = 1u << 29;
static_assert(flows_max < place_bit);
// Together with close_bit, it says that the flow has failed.
constexpr std::uint32_t failed_bit = place_bit;
// A request's note has the number of the sender's queue pair in its high 24 bits, and the bits of
// its path in the low ones.
constexpr std::uint32_t note_path_bits = 8;

// TCP tells connections apart by ports of 16 bits, which are the low bits of queue pair numbers. Of
// the two numbers of a flow, the sender's has the low bits of the flow's index there, and the
// receiver's has the high bits.
std::uint32_t stream_receiver_hint(std::uint32_t index) {
  constexpr std::uint32_t index_bits = 22, high_bits = 8;
  static_assert(stream_flows_max == 1u << index_bits);
  constexpr std::uint32_t mask = (1u << index_bits) - 1;
  const std::uint32_t turned = (index >> (index_bits - high_bits) | index << high_bits) & mask;
  return 2 * turned + 2;
}

}  // namespace

std::uint32_t flow_label_of(const Flow& flow, std::uint32_t index, std::uint64_t seed) {
  constexpr std::uint64_t flow_labels = (1u << 20) - 1;  // 20 bits (IPv6); 0 means none
  const auto way = flow.connection >= 0 ? static_cast<std::uint32_t>(flow.connection) : index;
  Random path(seed ^ 0x9B00'0000'0000'0000 ^ way);
  return static_cast<std::uint32_t>(1 + path.below(flow_labels));
}

Player::Player(const Flows& flows, std::uint32_t hosts, const PlayerSettings& settings, Stage stage)
    : flows_(flows),
      settings_(settings),
      transport_(*transport::all_transports().find(settings.transport)),
      stage_(std::move(stage)),
      endpoints_(flows, hosts, settings_, transport_, stage_),
      memory_(flows, settings_, endpoints_),
      waiting_(transport_.is_datagram ? hosts : 0),
      messages_(transport_.is_datagram ? flows.size() : 0),
      connections_(flows.size()),
      first_waiting_(flows.size(), nobody),
      next_waiting_(flows.size(), nobody),
      results_(flows.size()) {
  for (std::size_t i = flows.size(); i-- > 0;) {
    const Flow& flow = flows[i];
    if (flow.connection >= 0) {
      const auto number = static_cast<std::size_t>(flow.connection);
      shared_.resize(std::max(shared_.size(), number + 1));
    }
    if (flow.after < 0) continue;
    const auto before = static_cast<std::size_t>(flow.after);
    next_waiting_[i] = std::exchange(first_waiting_[before], static_cast<std::int32_t>(i));
  }
}

void Player::begin() {
  for (std::uint32_t i = 0; i < flows_.size(); ++i) {
    if (flows_[i].after < 0) {
      stage_.alarm(flows_[i].start + settings_.post_delay, flows_[i].source, i);
    }
  }
}

void Player::handle_alarm(Time now, std::uint32_t token) {
  const std::uint32_t flow = token & ~(close_bit | place_bit);
  TULLE_CHECK(flow < flows_.size());
  if ((token & close_bit) == 0) {
    return (token & place_bit) != 0 ? hear_of_read(flow) : post(now, flow);
  }
  Connection& connection = connections_[flow];
  connection.closing = true;
  // The receiver's adapter has all data by now, but a socket may hold data that were not read yet.
  const bool failed = (token & failed_bit) != 0;
  if (!is_stream() || connection.read || failed) close_receiver(flow);
}

bool Player::accepts_alarm(std::uint32_t host, std::uint32_t token) const {
  const std::uint32_t flow = token & ~(close_bit | place_bit);
  if (flow >= flows_.size()) return false;
  if ((token & close_bit) != 0) {
    return host == flows_[flow].destination && !shares(flow) && !transport_.is_datagram;
  }
  if (host != flows_[flow].source) return false;
  return (token & place_bit) == 0 || (is_stream() && shares(flow));
}

bool Player::accepts_request(std::uint32_t host, std::uint32_t flow, std::uint32_t note) const {
  const std::uint32_t path_bits = note & ((1u << note_path_bits) - 1);
  return flow < flows_.size() && host == flows_[flow].destination && path_bits < settings_.paths;
}

void Player::close_receiver(std::uint32_t flow) {
  transport::QueuePair*& receiver = connections_[flow].receiver;
  if (receiver != nullptr) {
    const VerbsStatus status = stage_.adapter(flows_[flow].destination).destroy(receiver);
    TULLE_CHECK(status == VerbsStatus::ok);
    receiver = nullptr;
  }
  if (settings_.carries_bytes) memory_.take_received(flow);
}

// The application called some time before its adapter learns of the request.
void Player::post(Time now, std::uint32_t flow) {
  results_[flow].start = Time{now.ps - settings_.post_delay_of(flows_[flow].source).ps};
  if (transport_.is_datagram) {
    post_by_srd(flow);
  } else if (!shares(flow)) {
    send(flow);
  } else if (shared(flow).under_way == shared_depth) {
    shared(flow).waiting.push(flow);
  } else {
    ++shared(flow).under_way;
    send(flow);
  }
  stage_.attend(flows_[flow].source);
}

void Player::send(std::uint32_t flow) {
  if (settings_.carries_bytes) memory_.give(flow);
  if (ends_of(flow).sender == nullptr) {
    connect(flow);
  } else if (!has_failed(flow) && !has_receives_ready(flow) && (is_stream() || is_told(flow))) {
    ask_receiver(flow);
  }
  if (is_stream()) return write_stream(flow);
  send_requests(flow, *ends_of(flow).sender, nullptr, {});
}

std::uint32_t Player::messages_of(std::uint32_t index) const {
  const std::uint64_t bytes = flows_[index].bytes;
  return static_cast<std::uint32_t>((bytes + message_bytes_max - 1) / message_bytes_max);
}

// Returns the most messages that a flow's connection has under way. A flow of a shared one is one
// message.
std::uint32_t Player::depth_of(std::uint32_t index) const {
  return shares(index) ? shared_depth : messages_of(index);
}

std::uint32_t Player::flows_of_connection(std::uint32_t index) const {
  return shares(index) ? shared_depth : 1;
}

std::uint32_t Player::receiver_hint(std::uint32_t index) const {
  return transport_.found_by == transport::FoundBy::tcp_ports ? stream_receiver_hint(index)
                                                              : 2 * index + 2;
}

verbs::AddressVector Player::address_of(std::uint32_t index, std::uint8_t path_bits) const {
  verbs::AddressVector address;
  address.traffic_class = settings_.traffic_class;
  address.flow_label = flow_label_of(flows_[index], index, settings_.seed);
  address.service_level =
      static_cast<std::uint8_t>(settings_.service_level + index % settings_.service_levels);
  address.path_bits = path_bits;
  return address;
}

// Makes the sender's end of a connection, and has the receiver make the other one.
void Player::connect(std::uint32_t index) {
  const Flow& flow = flows_[index];
  Connection& connection = ends_of(index);
  // The queue pair numbers and the path follow from the flow, so that neither depends on the order
  // in which the hosts' flows begin.
  const std::uint32_t sender_hint = 2 * index + 1;
  const std::uint32_t sends =
      depth_of(index) + (tells_apart(index) ? flows_of_connection(index) : 0);
  connection.sender = endpoints_.create(flow.source, sender_hint, sends, 0);
  connection.sender_number = connection.sender->number;
  // Both directions of a connection use the same LID index at each end, as in MPI libraries.
  connection.path_bits = endpoints_.next_path_of(flow.source);
  ask_receiver(index);
  // A receiver that is asked later will have the number that its hint gives.
  const QpNumber receiver =
      connection.receiver != nullptr
          ? connection.receiver->number
          : stage_.adapter(flow.source).configuration().qp_number_of_hint(receiver_hint(index));
  endpoints_.connect(flow.source, *connection.sender, receiver, flow.destination,
                     address_of(index, connection.path_bits));
}

// Makes the receiver's end of a connection.
void Player::accept(std::uint32_t index, std::uint32_t note) {
  const Flow& flow = flows_[index];
  Connection& connection = ends_of(index);
  const QpNumber sender{note >> note_path_bits};
  const auto path_bits = static_cast<std::uint8_t>(note & ((1u << note_path_bits) - 1));
  const std::uint32_t reads = is_stream()                 ? depth_of(index)
                              : has_receives_ready(index) ? receives_ready
                              : is_told(index)            ? flows_of_connection(index)
                                                          : 0;
  connection.receiver = endpoints_.create(flow.destination, receiver_hint(index), 0, reads);
  endpoints_.connect(flow.destination, *connection.receiver, sender, flow.source,
                     address_of(index, path_bits));
  if (!has_receives_ready(index)) return;
  for (std::uint32_t i = 0; i < receives_ready; ++i) post_receive(index);
}

void Player::ask_receiver(std::uint32_t index) {
  const Connection& connection = ends_of(index);
  const std::uint32_t note =
      connection.sender_number.value << note_path_bits | connection.path_bits;
  if (stage_.request) return stage_.request(flows_[index].destination, index, note);
  meet_request(index, note);
}

// Makes the receiver's end of the flow's connection if it is not there yet, and asks it for what
// the flow needs.
void Player::meet_request(std::uint32_t index, std::uint32_t note) {
  TULLE_CHECK(index < flows_.size());
  if (transport_.is_datagram) return accept_by_srd(index);
  if (ends_of(index).receiver == nullptr) accept(index, note);
  if (is_stream()) return read_stream(index);
  if (is_told(index) && !has_receives_ready(index)) post_receive(index);
}

void Player::post_receive(std::uint32_t index) {
  verbs::ReceiveRequest receive;
  receive.wr_id = receive_bit | index;
  const VerbsStatus status =
      stage_.adapter(flows_[index].destination).post_receive(*ends_of(index).receiver, receive);
  TULLE_CHECK(status == VerbsStatus::ok);
}

void Player::send_requests(std::uint32_t index, transport::QueuePair& sender,
                           verbs::AddressHandle* handle, QpNumber remote) {
  const Flow& flow = flows_[index];
  const bool ghost = !settings_.carries_bytes;
  const LocalKey lkey = memory_.source_of(index).lkey();
  const RemoteKey rkey = memory_.destination_key_of(index);
  for (std::uint64_t offset = 0; offset < flow.bytes; offset += message_bytes_max) {
    const std::uint64_t bytes = std::min(flow.bytes - offset, message_bytes_max);
    // The last of several messages speaks for all if they arrive in order. SRD's do not.
    const bool last = offset + bytes == flow.bytes || handle != nullptr;
    const std::uint64_t address = ghost ? 0 : offset;
    const verbs::Sge sge{address, static_cast<std::uint32_t>(bytes), lkey};
    verbs::SendRequest request;
    request.wr_id = index;
    const bool tells = last && is_told(index) && !tells_apart(index);
    request.opcode = tells ? verbs::SendOpcode::write_with_immediate : verbs::SendOpcode::write;
    if (last && !tells_apart(index)) request.flags |= verbs::SendFlag::signaled;
    request.sges = {&sge, 1};
    request.remote_address = address;
    request.rkey = rkey;
    request.address_handle = handle;
    request.remote_qp = remote;
    request.remote_qkey = Endpoints::srd_qkey;
    request.immediate = index;
    const VerbsStatus status = stage_.adapter(flow.source).post_send(sender, request);
    TULLE_CHECK(status == VerbsStatus::ok);
  }
  if (!tells_apart(index)) return;
  verbs::SendRequest tell;
  tell.wr_id = index;
  tell.flags = verbs::SendFlag::signaled;
  const VerbsStatus status = stage_.adapter(flow.source).post_send(sender, tell);
  TULLE_CHECK(status == VerbsStatus::ok);
}

// Posts the writes of a socket, each for a part of the flow.
void Player::write_stream(std::uint32_t index) {
  const Flow& flow = flows_[index];
  const verbs::MemoryRegion& source = memory_.source_of(index);
  for (std::uint64_t offset = 0; offset < flow.bytes; offset += message_bytes_max) {
    const auto bytes = static_cast<std::uint32_t>(std::min(flow.bytes - offset, message_bytes_max));
    const verbs::Sge from{settings_.carries_bytes ? offset : 0, bytes, source.lkey()};
    verbs::SendRequest request;
    request.wr_id = index;
    request.opcode = verbs::SendOpcode::send;
    if (offset + bytes == flow.bytes) request.flags |= verbs::SendFlag::signaled;
    request.sges = {&from, 1};
    const VerbsStatus status =
        stage_.adapter(flow.source).post_send(*ends_of(index).sender, request);
    TULLE_CHECK(status == VerbsStatus::ok);
  }
}

// Posts the reads of the same parts.
void Player::read_stream(std::uint32_t index) {
  const Flow& flow = flows_[index];
  const verbs::MemoryRegion& destination = memory_.destination_of(index);
  for (std::uint64_t offset = 0; offset < flow.bytes; offset += message_bytes_max) {
    const auto bytes = static_cast<std::uint32_t>(std::min(flow.bytes - offset, message_bytes_max));
    const bool last = offset + bytes == flow.bytes;
    const verbs::Sge to{settings_.carries_bytes ? offset : 0, bytes, destination.lkey()};
    verbs::ReceiveRequest receive;
    receive.wr_id = receive_bit | (last ? 0 : part_bit) | index;
    receive.sges = {&to, 1};
    const VerbsStatus status =
        stage_.adapter(flow.destination).post_receive(*ends_of(index).receiver, receive);
    TULLE_CHECK(status == VerbsStatus::ok);
  }
}

void Player::handle_completions(Time now, std::uint32_t number) {
  std::array<verbs::Completion, 16> completions;
  for (;;) {
    const std::uint32_t count = endpoints_.completions_of(number).poll(completions);
    for (std::uint32_t i = 0; i < count; ++i) {
      const verbs::Completion& completion = completions[i];
      if (transport_.is_datagram) {
        complete_by_srd(now, number, completion);
        continue;
      }
      auto flow = static_cast<std::uint32_t>(completion.wr_id);
      if ((completion.wr_id & receive_bit) == 0) {
        finish(now, flow, completion.status);
      } else if ((completion.wr_id & part_bit) == 0 &&
                 completion.status == verbs::CompletionStatus::success) {
        if (has_receives_ready(flow)) {
          check_named(completion.immediate, number, flow);
          flow = completion.immediate;
          post_receive(flow);
        }
        arrived(now, flow);
      }
    }
    if (count < completions.size()) return;
  }
}

// The immediate value of a packet names a flow, which must be to this host, and of the same
// connection as another one.
void Player::check_named(std::uint32_t named, std::uint32_t host, std::uint32_t connected) const {
  if (named < flows_.size() && flows_[named].destination == host &&
      flows_[named].connection == flows_[connected].connection) {
    return;
  }
  throw std::runtime_error("a packet names a flow to which it does not belong");
}

// The sender of a flow by a socket is notified that it has been read.
void Player::hear_of_read(std::uint32_t flow) {
  connections_[flow].sender_knows_of_read = true;
  if (!results_[flow].end.is_never()) leave_shared(flow);
}

// Gives the place of a flow in its connection's queues to the next one. A flow of a socket holds it
// until its sender knows that it has been read, too.
void Player::leave_shared(std::uint32_t flow) {
  SharedConnection& connection = shared(flow);
  --connection.under_way;
  if (connection.waiting.empty()) return;
  const std::uint32_t next = connection.waiting.front();
  connection.waiting.pop();
  ++connection.under_way;
  send(next);
  stage_.attend(flows_[next].source);
}

void Player::arrived(Time now, std::uint32_t flow) {
  const Time seen = now + settings_.completion_delay_of(flows_[flow].destination);
  if (is_told(flow)) results_[flow].arrived = seen;
  if (settings_.carries_bytes) memory_.check(flow);
  connections_[flow].read = true;
  if (connections_[flow].closing) close_receiver(flow);
  if (is_stream() && shares(flow)) {
    stage_.alarm(now + stage_.lookahead, flows_[flow].source, flow | place_bit);
  }
  if (schedule_ != nullptr) schedule_->arrived(seen, flow);
  for (std::int32_t next = first_waiting_[flow]; next != nobody;) {
    const auto waiting = static_cast<std::uint32_t>(next);
    next = next_waiting_[waiting];
    const Time at = std::max(flows_[waiting].start, seen) + settings_.post_delay;
    if (at > now) {
      stage_.alarm(at, flows_[waiting].source, waiting);
    } else {
      post(now, waiting);
    }
  }
}

// The times of a flow are known at one of its hosts each, and never at the others.
void Player::merge(std::uint32_t flow, const FlowResult& other) {
  FlowResult& result = results_[flow];
  result.start = std::min(result.start, other.start);
  result.end = std::min(result.end, other.end);
  result.arrived = std::min(result.arrived, other.arrived);
  if (other.status != verbs::CompletionStatus::success) result.status = other.status;
}

void Player::add(const FlowCounts& other) {
  finished_.fetch_add(other.finished, std::memory_order_relaxed);
  failed_.fetch_add(other.failed, std::memory_order_relaxed);
  bytes_done_.fetch_add(other.bytes_done, std::memory_order_relaxed);
}

void Player::finish(Time now, std::uint32_t index, verbs::CompletionStatus status) {
  FlowResult& result = results_[index];
  const bool connected = !transport_.is_datagram && !shares(index);
  // A failed flow may have further completions.
  if (connected && connections_[index].sender == nullptr) return;
  if (shares(index) && result.status != verbs::CompletionStatus::success) return;
  result.status = status;
  if (status == verbs::CompletionStatus::success) {
    result.end = now + settings_.completion_delay_of(flows_[index].source);
    finished_.fetch_add(1, std::memory_order_relaxed);
    bytes_done_.fetch_add(flows_[index].bytes, std::memory_order_relaxed);
    // A receiver that is told of arrivals has checked its memory already. Elsewhere, all data
    // arrived before the last acknowledgement left.
    if (settings_.carries_bytes && !is_told(index) && !is_stream()) memory_.check(index);
  } else {
    failed_.fetch_add(1, std::memory_order_relaxed);
  }
  if (shares(index) && !transport_.is_datagram) {
    const bool failed = status != verbs::CompletionStatus::success;
    shared(index).has_failed = shared(index).has_failed || failed;
    if (!is_stream() || failed || connections_[index].sender_knows_of_read) leave_shared(index);
  }
  if (schedule_ != nullptr && status == verbs::CompletionStatus::success) {
    schedule_->sent(result.end, index);
  }
  // An ordinary queue pair waits idle for more work, but these are not used again. Each host
  // destroys its own queue pair.
  const Flow& flow = flows_[index];
  if (connected) {
    const VerbsStatus destroyed = stage_.adapter(flow.source).destroy(connections_[index].sender);
    TULLE_CHECK(destroyed == VerbsStatus::ok);
    connections_[index].sender = nullptr;
  }
  if (settings_.carries_bytes) memory_.take_sent(index);
  if (connected || settings_.carries_bytes) {
    const bool failed = status != verbs::CompletionStatus::success;
    stage_.alarm(now + stage_.lookahead, flow.destination,
                 index | close_bit | (failed ? failed_bit : 0));
  }
}

}  // namespace tulle::workload
