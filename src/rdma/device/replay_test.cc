#include "rdma/device/replay_test.h"

#include <cstring>

#include "base/big_endian.h"
#include "rdma/verbs/address_handle.h"

namespace tulle::device::testing {

using verbs::Access;
using verbs::AccessFlags;
using verbs::CompletionStatus;
using verbs::QpAttribute;  // NOLINT(misc-unused-using-decls): clang-tidy 14 misses `using enum`
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::QpType;
using verbs::SendFlag;
using verbs::SendOpcode;
using verbs::VerbsStatus;
using wire::Kind;
using wire::Operation;

namespace {

void must(VerbsStatus status) { TULLE_CHECK(status == VerbsStatus::ok); }

// Initial contents of the memory that the recorded programs exposed.
std::byte goldops_byte(std::size_t offset) {
  return static_cast<std::byte>(offset * 7 + (offset >> 8));
}
constexpr std::size_t goldops_region_bytes = 1 << 20;
constexpr std::size_t receive_bytes = 8'192, receive_count = 64;
constexpr std::size_t scratch_bytes_max = 4 << 20;
constexpr std::uint64_t scratch_iova = 0x10'0000;
// rdma_cm had chosen 4.096 us * 2^19 = 2.1 s, after which the recorded client retransmitted.
constexpr std::uint8_t ack_timeout_code = 19;
// The recorded RNR NAKs say 1.28 ms, since the server had requested it.
constexpr std::uint8_t rnr_timer_code = 14;

// True for the packet that identifies a message which takes a receive request.
bool takes_receive(const RecordedPacket& packet) {
  const wire::OpcodeInfo& info = packet.info();
  return info.kind == Kind::send ? info.starts_message() : info.immediate;
}

bool is_receive(verbs::CompletionOpcode opcode) {
  return opcode == verbs::CompletionOpcode::receive ||
         opcode == verbs::CompletionOpcode::receive_write_with_immediate;
}

SendOpcode send_opcode_of(const wire::Packet& first, const wire::Packet& last) {
  switch (wire::info(first.opcode).kind) {
    case Kind::write:
      return wire::info(last.opcode).immediate ? SendOpcode::write_with_immediate
                                               : SendOpcode::write;
    case Kind::read_request:
      return SendOpcode::read;
    case Kind::atomic:
      return wire::operation_of(first.opcode) == Operation::compare_swap ? SendOpcode::compare_swap
                                                                         : SendOpcode::fetch_add;
    default:
      if (wire::info(last.opcode).invalidate) return SendOpcode::send_with_invalidate;
      return wire::info(last.opcode).immediate ? SendOpcode::send_with_immediate : SendOpcode::send;
  }
}

Configuration configuration(const Recording& recording, Time notification_interval) {
  Configuration out;
  out.seed = 7;
  if (recording.own_qp.has_value()) out.first_qp = *recording.own_qp;
  out.qp_count = 1;
  out.mtu_bytes = 1024;
  out.congestion.notification_interval = notification_interval;
  return out;
}

}  // namespace

Replay::Replay(const Scenario& scenario, Receives receives, Time notification_interval)
    : scenario(scenario),
      adapter(configuration(read_recording(scenario.file + ".pcap", scenario.side, scenario.lost),
                            notification_interval)),
      receives_(receives),
      recording_(read_recording(scenario.file + ".pcap", scenario.side, scenario.lost)) {
  TULLE_CHECK(!recording_.packets.empty());
  now_ = recording_.packets.front().captured.time;
  scratch_.resize(scratch_bytes_max);
  create();
  create_regions();
  connect();
}

void Replay::create() {
  VerbsStatus status{};
  adapter.set_gids({&recording_.own, 1});
  pd_ = adapter.objects().create_pd(status);
  cq_ = adapter.objects().create_cq(1'024, nullptr, status);
  scratch_region_ = adapter.objects().register_memory(*pd_, scratch_.data(), scratch_.size(),
                                                      scratch_iova, Access::local_write, status);
  transport::QueuePairInit init;
  init.type = scenario.type;
  init.pd = pd_;
  init.send_cq = init.receive_cq = cq_;
  init.send_work_requests = 256;
  init.receive_work_requests = receive_count;
  init.send_sges = init.receive_sges = 1;
  if (receives_ == Receives::shared) {
    srq_ = adapter.objects().create_srq(*pd_, receive_count, 1, nullptr, status);
    init.srq = srq_;
  }
  qp = adapter.create_qp(init, status);
  must(status);
}

void Replay::connect() {
  using enum QpAttribute;
  if (scenario.type == QpType::ud) return connect_datagram();
  const bool rc = scenario.type == QpType::rc;
  transport::QueuePairAttributes to;
  to.state = QpState::init;
  to.access = AccessFlags(Access::remote_write) | Access::remote_read | Access::remote_atomic;
  must(adapter.modify(*qp, to, QpAttributeMask(state) | pkey_index | port | access_flags));
  to.state = QpState::rtr;
  to.path_mtu = scenario.path_mtu;
  // The number of a peer to which nothing was ever sent is unknown.
  to.destination_qp = recording_.peer_qp.value_or(QpNumber{0x77});
  to.address.destination = recording_.peer;
  to.rq_psn = recording_.first_psn(false);
  to.max_dest_rd_atomic = 16;
  to.min_rnr_timer = rnr_timer_code;
  auto mask = QpAttributeMask(state) | address_vector | path_mtu | destination_qp | rq_psn;
  if (rc) mask |= QpAttributeMask(max_dest_rd_atomic) | min_rnr_timer;
  must(adapter.modify(*qp, to, mask));
  to.state = QpState::rts;
  to.sq_psn = recording_.first_psn(true);
  to.timeout = ack_timeout_code;
  to.retry_count = scenario.retry_count;
  to.rnr_retry = scenario.rnr_retry;
  to.max_rd_atomic = 16;
  mask = QpAttributeMask(state) | sq_psn;
  if (rc) mask |= QpAttributeMask(timeout) | retry_count | rnr_retry | max_rd_atomic;
  must(adapter.modify(*qp, to, mask));
}

void Replay::connect_datagram() {
  using enum QpAttribute;
  transport::QueuePairAttributes to;
  to.state = QpState::init;
  for (const RecordedPacket& each : recording_.packets) {
    if (!each.said) to.qkey = each.packet.qkey;
  }
  must(adapter.modify(*qp, to, QpAttributeMask(state) | pkey_index | port | qkey));
  to.state = QpState::rtr;
  must(adapter.modify(*qp, to, state));
  to.state = QpState::rts;
  to.sq_psn = recording_.first_psn(true);
  must(adapter.modify(*qp, to, QpAttributeMask(state) | sq_psn));
}

// Creates a region for each key that the peer uses, starting at the lowest address that it names.
void Replay::create_regions() {
  std::map<RemoteKey, std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const RecordedPacket& each : recording_.packets) {
    const wire::OpcodeInfo& info = each.info();
    if (each.said || each.damaged || !(info.reth || info.atomic_eth)) continue;
    if (scenario.binds_windows || each.packet.rkey == scenario.unknown_key) continue;
    const std::uint64_t first = each.packet.virtual_address;
    const std::uint64_t end = first + (info.reth ? each.packet.dma_length : 8);
    auto [found, is_new] = ranges.try_emplace(each.packet.rkey, first, end);
    found->second.first = std::min(found->second.first, first);
    found->second.second = std::max(found->second.second, end);
  }
  for (const auto& [key, range] : ranges) add_region(key, range.first, range.second);
}

Replay::Region& Replay::add_region(RemoteKey recorded, std::uint64_t first, std::uint64_t end) {
  Region& out = regions_.emplace_back();
  out.address = first - scenario.first_offset;
  out.memory.resize(scenario.application_fills ? end - first : goldops_region_bytes);
  for (std::size_t i = 0; i < out.memory.size() && !scenario.application_fills; ++i) {
    out.memory[i] = goldops_byte(i);
  }
  out.expected = out.memory;
  VerbsStatus status{};
  const auto access = AccessFlags(Access::local_write) | Access::remote_write |
                      Access::remote_read | Access::remote_atomic | Access::bind_window;
  out.region = adapter.objects().register_memory(*pd_, out.memory.data(), out.memory.size(),
                                                 out.address, access, status);
  must(status);
  our_keys_[recorded] = out.region->rkey();
  return out;
}

std::span<std::byte> Replay::scratch(std::size_t bytes) {
  TULLE_CHECK(scratch_used_ + bytes <= scratch_.size());
  const auto out = std::span(scratch_).subspan(scratch_used_, bytes);
  scratch_used_ += bytes;
  return out;
}

verbs::Sge Replay::sge_of(std::span<std::byte> piece) const {
  const auto offset = static_cast<std::uint64_t>(piece.data() - scratch_.data());
  return {scratch_iova + offset, static_cast<std::uint32_t>(piece.size()), scratch_region_->lkey()};
}

void Replay::post_receives() {
  receives_posted_ = true;
  for (std::size_t i = 0; i < receive_count; ++i) {
    const auto buffer = receive_buffers_.emplace_back(scratch(receive_bytes));
    const verbs::Sge sge = sge_of(buffer);
    const verbs::ReceiveRequest request{i, {&sge, 1}};
    must(srq_ != nullptr ? adapter.objects().post_receive(*srq_, request)
                         : adapter.post_receive(*qp, request));
  }
}

// --- the conversation ---

void Replay::run() {
  for (std::size_t i = 0; i < recording_.packets.size(); ++i) {
    const RecordedPacket& packet = recording_.packets[i];
    SCOPED_TRACE(::testing::Message()
                 << scenario << ", frame " << packet.frame() << ", "
                 << (packet.said ? "said " : "told ") << wire::name(packet.packet.opcode) << " PSN "
                 << packet.packet.psn.value());
    if (!receives_posted_ && packet.frame() >= scenario.receives_from_frame) post_receives();
    advance(packet.captured.time);
    packet.said ? expect(packet, i) : tell(packet, i);
    if (::testing::Test::HasFailure()) return;
  }
  check_end();
}

void Replay::advance(Time to) {
  while (adapter.next_deadline() <= to) {
    now_ = std::max(now_, adapter.next_deadline());
    adapter.handle_deadline(now_);
  }
  now_ = std::max(now_, to);
}

void Replay::tell(const RecordedPacket& packet, std::size_t index) {
  const Kind kind = packet.info().kind;
  if (scenario.application_fills) fill(packet);
  const std::vector<std::byte> datagram = with_our_keys(packet);
  const port::Verdict verdict = adapter.handle_datagram(now_, packet.captured.ip, true, datagram);
  EXPECT_EQ(verdict, packet.damaged ? port::Verdict::bad_icrc : port::Verdict::ok);
  if (packet.damaged) return;
  pull_answers();
  // The rest updates the expected contents of memory, for requests that are new.
  if (!is_request(kind)) return;
  const bool is_new = !next_told_.has_value() || packet.packet.psn == *next_told_;
  if (!is_new || !receives_posted_ || recording_.is_refused(index)) return;
  const bool is_read = kind == Kind::read_request;
  const std::uint32_t mtu = verbs::bytes(scenario.path_mtu);
  const std::uint32_t psns = is_read ? std::max((packet.packet.dma_length + mtu - 1) / mtu, 1u) : 1;
  next_told_ = packet.packet.psn + psns;
  if (takes_receive(packet)) received_.push_back(index);
  apply(packet);
}

// Puts the data in place that the kernel's application had put where this request asks for it.
void Replay::fill(const RecordedPacket& packet) {
  const wire::Packet& asked = packet.packet;
  std::vector<std::byte> data;
  if (packet.info().kind == Kind::read_request) {
    data = recording_.read_data(true, asked.psn, asked.dma_length);
  } else if (packet.info().kind == Kind::atomic) {
    const std::uint64_t original = recording_.original(asked.psn);
    data.resize(sizeof original);
    std::memcpy(data.data(), &original, sizeof original);
  }
  for (Region& region : regions_) {
    if (data.empty() || our_keys_[asked.rkey] != region.region->rkey()) continue;
    const std::uint64_t offset = asked.virtual_address - region.address;
    std::copy(data.begin(), data.end(), region.memory.begin() + offset);
    std::copy(data.begin(), data.end(), region.expected.begin() + offset);
  }
}

std::vector<std::byte> Replay::with_our_keys(const RecordedPacket& recorded) {
  const auto datagram = recorded.captured.datagram();
  wire::Packet packet = recorded.packet;
  const auto key = our_keys_.find(packet.rkey), window = our_keys_.find(packet.invalidate_rkey);
  if (key != our_keys_.end()) packet.rkey = key->second;
  if (window != our_keys_.end()) packet.invalidate_rkey = window->second;
  if (recorded.damaged || packet == recorded.packet) return {datagram.begin(), datagram.end()};
  port::FrameBytes frame;
  port::encode(recorded.captured.ip, packet, std::array{recorded.payload}, frame);
  std::vector<std::byte> out(frame.head.begin(), frame.head.begin() + frame.head_bytes);
  out.insert(out.end(), recorded.payload.begin(), recorded.payload.end());
  out.insert(out.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
  return out;
}

// Applies an accepted WRITE or atomic to the expected memory, by an independent model.
void Replay::apply(const RecordedPacket& packet) {
  const wire::OpcodeInfo& info = packet.info();
  if (info.reth && info.kind == Kind::write) write_at_ = packet.packet.virtual_address;
  for (Region& region : regions_) {
    const bool is_atomic = info.kind == Kind::atomic;
    const std::uint64_t at = is_atomic ? packet.packet.virtual_address : write_at_;
    if (at < region.address || at - region.address + 8 > region.expected.size()) continue;
    const std::uint64_t offset = at - region.address;
    if (info.kind == Kind::write) {
      std::copy(packet.payload.begin(), packet.payload.end(), region.expected.begin() + offset);
    } else if (is_atomic) {
      std::uint64_t word;
      std::memcpy(&word, region.expected.data() + offset, sizeof word);
      if (wire::operation_of(packet.packet.opcode) == Operation::fetch_add) {
        word += packet.packet.swap_or_add;
      } else if (word == packet.packet.compare) {
        word = packet.packet.swap_or_add;
      }
      std::memcpy(region.expected.data() + offset, &word, sizeof word);
    }
  }
  if (info.kind == Kind::write) write_at_ += packet.payload.size();
}

void Replay::expect(const RecordedPacket& packet, std::size_t index) {
  if (!is_request(packet.info().kind)) {
    ASSERT_FALSE(answers_.empty()) << "the adapter has no answer";
    compare(packet, std::move(answers_.front()));
    answers_.pop_front();
    return;
  }
  const bool is_new = !next_post_.has_value() || !packet.packet.psn.before(*next_post_);
  if (packet.info().starts_message() && is_new) post(index);
  Said said;
  if (!pull(said)) {
    // The adapter waits longer than the kernel before it retransmits. IBTA allows four times the
    // minimum.
    const Time longest = transport::ack_timeout(ack_timeout_code) * 4;
    ASSERT_LE(adapter.next_deadline(), now_ + longest) << "the adapter has nothing to say";
    advance(adapter.next_deadline());
    ASSERT_TRUE(pull(said)) << "the adapter has nothing to say";
  }
  compare(packet, std::move(said));
}

// Posts the request that the kernel's application must have posted.
void Replay::post(std::size_t index) {
  const RecordedPacket& packet = recording_.packets[index];
  const wire::Packet& last = recording_.last_packet(index);
  verbs::SendRequest request;
  request.opcode = send_opcode_of(packet.packet, last);
  request.flags = verbs::SendFlags(SendFlag::signaled);
  if (last.solicited_event) request.flags |= SendFlag::solicited;
  request.remote_address = packet.packet.virtual_address;
  request.rkey = packet.packet.rkey;
  request.immediate = last.immediate;
  request.invalidate_rkey = last.invalidate_rkey;
  const bool swaps = request.opcode == SendOpcode::compare_swap;
  request.compare_add = swaps ? packet.packet.compare : packet.packet.swap_or_add;
  request.swap = packet.packet.swap_or_add;
  std::uint32_t psns = 1;
  std::span<std::byte> data;
  if (request.opcode == SendOpcode::read) {
    const std::uint32_t length = packet.packet.dma_length, mtu = verbs::bytes(scenario.path_mtu);
    psns = std::max((length + mtu - 1) / mtu, 1u);
    data = scratch(length);
    reads_.push_back({static_cast<std::size_t>(data.data() - scratch_.data()),
                      recording_.read_data(false, packet.packet.psn, length)});
  } else if (packet.info().kind == Kind::atomic) {
    data = scratch(8);
  } else {
    const std::vector<std::byte> message = recording_.message(index);
    if (scenario.binds_windows && message.size() == 12) bind_window(message);
    const std::uint32_t mtu = verbs::bytes(scenario.path_mtu);
    psns = std::max((static_cast<std::uint32_t>(message.size()) + mtu - 1) / mtu, 1u);
    data = scratch(message.size());
    std::copy(message.begin(), message.end(), data.begin());
  }
  const verbs::Sge sge = sge_of(data);
  request.sges = {&sge, data.empty() ? 0u : 1u};
  if (scenario.type == QpType::ud) {
    VerbsStatus status{};
    verbs::AddressVector to;
    to.destination = packet.captured.ip.destination;
    to.hop_limit = packet.captured.ip.hop_limit;
    request.address_handle = adapter.create_ah(*pd_, to, status);
    request.remote_qp = packet.packet.destination_qp;
    request.remote_qkey = packet.packet.qkey;
  }
  must(adapter.post_send(*qp, request));
  ++posted_;
  next_post_ = packet.packet.psn + psns;
}

// IBTA 10.6.7.2.6: the low byte of a type 2 window's key belongs to the application, which counts
// it up.
void Replay::bind_window(std::span<const std::byte> message) {
  be32 key;
  be64 address;
  std::memcpy(&key, message.data(), sizeof key);
  std::memcpy(&address, message.data() + sizeof key, sizeof address);
  if (regions_.empty()) {
    add_region(RemoteKey{0}, address, address + goldops_region_bytes);
    our_keys_.clear();
  }
  VerbsStatus status{};
  verbs::MemoryWindow* window =
      adapter.objects().create_window(*pd_, verbs::WindowType::type2, status);
  must(status);
  verbs::SendRequest bind;
  bind.opcode = SendOpcode::bind_window;
  bind.flags = SendFlag::signaled;
  bind.window = window;
  bind.window_rkey = RemoteKey{(window->key & ~0xFFu) | ((window->key + 1) & 0xFF)};
  bind.window_region = regions_.front().region;
  bind.window_address = address;
  bind.window_length = 8'192;
  bind.window_access = AccessFlags(Access::remote_write) | Access::remote_read;
  must(adapter.post_send(*qp, bind));
  ++posted_;
  our_keys_[RemoteKey{key}] = bind.window_rkey;
  recorded_keys_[bind.window_rkey] = RemoteKey{key};
}

bool Replay::pull(Said& out) {
  if (!adapter.pull_datagram(now_, out.datagram)) return false;
  for (std::uint8_t i = 0; i < out.datagram.piece_count; ++i) {
    const auto& piece = out.datagram.pieces[i];
    out.payload.insert(out.payload.end(), piece.begin(), piece.end());
  }
  return true;
}

// Pulls answers at once, so that they do not coalesce (IBTA 9.7.5.1.2 leaves that to the
// responder).
void Replay::pull_answers() {
  while (qp->agenda().answers || qp->notification_due) {
    Said said;
    ASSERT_TRUE(pull(said));
    if (said.datagram.packet.opcode == wire::congestion_notification) {
      EXPECT_EQ(said.datagram.packet.destination_qp, recording_.peer_qp);
      EXPECT_TRUE(said.datagram.packet.becn);
      ++notifications;
    } else {
      answers_.push_back(std::move(said));
    }
  }
}

void Replay::compare(const RecordedPacket& recorded, Said said) {
  const wire::IpUdp& ip = recorded.captured.ip;
  Datagram& datagram = said.datagram;
  EXPECT_EQ(datagram.ip().source, ip.source);
  EXPECT_EQ(datagram.ip().destination, ip.destination);
  EXPECT_EQ(datagram.ip().destination_port, ip.destination_port);
  EXPECT_EQ(datagram.ip().dont_fragment, ip.dont_fragment);
  datagram.ip().source_port = ip.source_port;
  datagram.ip().identification = ip.identification;
  datagram.packet.migration_state = recorded.packet.migration_state;
  if (wire::operation_of(recorded.packet.opcode) == Operation::fetch_add) {
    datagram.packet.compare = recorded.packet.compare;
  }
  if (receives_ == Receives::own && datagram.packet.syndrome.kind == wire::AckKind::ack &&
      recorded.packet.syndrome.kind == wire::AckKind::ack) {
    datagram.packet.syndrome.value = recorded.packet.syndrome.value;
  }
  const wire::Packet &ours = datagram.packet, &theirs = recorded.packet;
  EXPECT_EQ(wire::name(ours.opcode), wire::name(theirs.opcode));
  EXPECT_EQ(ours.psn.value(), theirs.psn.value());
  EXPECT_EQ(ours.ack_request, theirs.ack_request);
  EXPECT_EQ(ours.solicited_event, theirs.solicited_event);
  if (recorded.info().aeth) {
    EXPECT_EQ(ours.syndrome.encoded(), theirs.syndrome.encoded());
    EXPECT_EQ(ours.msn, theirs.msn);
  }
  EXPECT_EQ(ours.original, theirs.original);

  port::FrameBytes frame;
  port::encode(datagram.ip(), datagram.packet, std::array{std::span<const std::byte>(said.payload)},
               frame);
  std::vector<std::byte> bytes(frame.head.begin(), frame.head.begin() + frame.head_bytes);
  bytes.insert(bytes.end(), said.payload.begin(), said.payload.end());
  bytes.insert(bytes.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
  const auto whole = recorded.captured.datagram();
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), whole.begin(), whole.end()))
      << "the bytes differ";
  ++compared;
}

// --- the state at the end ---

void Replay::check_end() {
  SCOPED_TRACE(::testing::Message() << scenario << ", at the end");
  EXPECT_TRUE(answers_.empty()) << "the adapter says more than the kernel";
  if (scenario.last_completion == CompletionStatus::retry_exceeded_error) {
    advance(adapter.next_deadline());
  }
  Said more;
  EXPECT_FALSE(pull(more)) << "the adapter says more than the kernel: "
                           << wire::name(more.datagram.packet.opcode);
  EXPECT_EQ(qp->state(), scenario.ends_in_error ? QpState::error : QpState::rts);
  for (const Region& region : regions_) EXPECT_EQ(region.memory, region.expected);
  for (const ReadResult& read : reads_) {
    EXPECT_TRUE(std::equal(read.expected.begin(), read.expected.end(),
                           scratch_.begin() + static_cast<std::ptrdiff_t>(read.offset)));
  }
  check_completions();
}

void Replay::check_completions() {
  std::uint32_t sent = 0;
  CompletionStatus last = CompletionStatus::success;
  for (verbs::Completion completion; cq_->poll({&completion, 1}) == 1;) {
    if (is_receive(completion.opcode)) {
      if (completion.status != CompletionStatus::flushed) check_received(completion);
      continue;
    }
    ++sent;
    EXPECT_EQ(last, CompletionStatus::success) << "more than one request failed";
    last = completion.status;
  }
  EXPECT_EQ(sent, posted_);
  EXPECT_EQ(last, scenario.last_completion);
  EXPECT_TRUE(received_.empty()) << received_.size() << " messages have not been received";
}

void Replay::check_received(const verbs::Completion& completion) {
  ASSERT_FALSE(received_.empty());
  const std::size_t index = received_.front();
  received_.erase(received_.begin());
  SCOPED_TRACE(::testing::Message() << "received, frame " << recording_.packets[index].frame());
  const wire::Packet& last = recording_.last_packet(index);
  const wire::OpcodeInfo& info = wire::info(last.opcode);
  if (info.kind == Kind::write) {
    EXPECT_EQ(completion.status, CompletionStatus::success);
    EXPECT_EQ(completion.immediate, last.immediate);
    return;
  }
  const std::vector<std::byte> message = recording_.message(index);
  const std::size_t grh = scenario.type == QpType::ud ? wire::grh_bytes : 0;
  EXPECT_EQ(completion.status, CompletionStatus::success);
  EXPECT_EQ(completion.byte_length, message.size() + grh);
  const auto buffer = receive_buffers_[completion.wr_id].subspan(grh);
  EXPECT_TRUE(std::equal(message.begin(), message.end(), buffer.begin()));
  EXPECT_EQ(completion.has_immediate, info.immediate);
  if (info.immediate) {
    EXPECT_EQ(completion.immediate, last.immediate);
  }
  EXPECT_EQ(completion.has_invalidate, info.invalidate);
  if (info.invalidate) {
    EXPECT_EQ(recorded_keys_[completion.invalidated_rkey], last.invalidate_rkey);
  }
  if (scenario.type == QpType::ud) {
    EXPECT_EQ(completion.source_qp, last.source_qp);
  }
}

// --- the recordings ---

namespace {

// tests/data/README.md describes each recording.
std::vector<Scenario> scenarios() {
  using enum Side;
  std::vector<Scenario> out;
  const auto both = [&out](Scenario scenario) {
    scenario.side = client;
    out.push_back(scenario);
    scenario.side = server;
    out.push_back(scenario);
  };
  const auto both_refused = [&out](Scenario scenario) {
    scenario.side = server;
    out.push_back(scenario);
    scenario.side = client;
    scenario.last_completion = CompletionStatus::remote_access_error;
    out.push_back(scenario);
  };
  for (const char* file : {"roce_rc_send", "roce_rc_write", "roce_rc_write_burst", "roce_rc_read",
                           "roce_rc_read_pipelined", "roce_rc_atomic", "roce_rc_mixed",
                           "roce_ipv6_rc", "roce_ecn_ce"}) {
    both({.file = file});
  }
  both({.file = "roce_rc_send_imm_inv", .binds_windows = true});
  both({.file = "roce_rc_pingpong_mtu256", .path_mtu = verbs::Mtu::b256});
  both({.file = "roce_cm_rping", .application_fills = true});
  both({.file = "roce_ib_atomic_bw", .application_fills = true});
  for (const char* file : {"roce_uc_pingpong", "roce_uc_write"}) {
    both({.file = file, .type = QpType::uc});
  }
  for (const char* file : {"roce_ud_pingpong", "roce_ib_send_bw_ud", "roce_cm_udaddy_sidr"}) {
    both({.file = file, .type = QpType::ud});
  }
  out.push_back({.file = "roce_mcast_mckey", .type = QpType::ud});

  // In these recordings, the packet was captured before it was lost.
  out.push_back({.file = "roce_loss_send_timeout"});
  out.push_back({.file = "roce_loss_send_timeout", .side = server, .lost = {4}});
  out.push_back({.file = "roce_loss_write_middle_nak_seq"});
  out.push_back({.file = "roce_loss_write_middle_nak_seq", .side = server, .lost = {6}});
  out.push_back({.file = "roce_loss_read_request"});
  out.push_back({.file = "roce_loss_read_request", .side = server, .lost = {4}});
  out.push_back({.file = "roce_loss_ack_dup_replay", .lost = {5}});
  out.push_back({.file = "roce_loss_ack_dup_replay", .side = server});
  out.push_back({.file = "roce_loss_atomic_ack_dup", .lost = {5}});
  out.push_back({.file = "roce_loss_atomic_ack_dup", .side = server});
  out.push_back({.file = "roce_dup_write_middle", .lost = {6}});
  out.push_back({.file = "roce_dup_write_middle", .side = server});
  out.push_back({.file = "roce_bad_icrc", .side = server});
  out.push_back({.file = "roce_retry_exhausted",
                 .retry_count = 2,
                 .last_completion = CompletionStatus::retry_exceeded_error,
                 .ends_in_error = true});

  // In these recordings, requests are refused.
  Scenario refused{.file = "roce_nak_remote_access_write", .ends_in_error = true};
  refused.unknown_key = RemoteKey{0x0055'b8cd};
  both_refused(refused);
  refused.file = "roce_nak_remote_access_read";
  refused.unknown_key = RemoteKey{0x0055'bec2};
  both_refused(refused);
  refused.file = "roce_nak_out_of_bounds";
  refused.unknown_key.reset();
  refused.first_offset = goldops_region_bytes - 8;
  both_refused(refused);
  both({.file = "roce_rnr_nak_then_ok", .receives_from_frame = 80});
  out.push_back({.file = "roce_rnr_exhausted",
                 .rnr_retry = 2,
                 .last_completion = CompletionStatus::rnr_retry_exceeded_error,
                 .ends_in_error = true});
  out.push_back({.file = "roce_rnr_exhausted", .side = server, .receives_from_frame = SIZE_MAX});
  return out;
}

class RecordedConversations : public ::testing::TestWithParam<Scenario> {};

TEST_P(RecordedConversations, are_had_again_word_for_word) {
  for (const Receives receives : {Receives::shared, Receives::own}) {
    Replay replay(GetParam(), receives);
    replay.run();
  }
}

INSTANTIATE_TEST_SUITE_P(All, RecordedConversations, ::testing::ValuesIn(scenarios()),
                         [](const auto& info) {
                           return info.param.file +
                                  (info.param.side == Side::client ? "_client" : "_server");
                         });

// The kernel sends no notifications. A notification point does (IBTA A17.9.3), at most one in its
// interval. Of the six marked packets, the second, fourth and fifth come within a millisecond of
// one that was answered.
TEST(RecordedConversation, with_marks_is_answered_with_notifications_where_they_are_on) {
  Scenario scenario{.file = "roce_ecn_ce", .side = Side::server};
  Replay replay(scenario, Receives::shared, Time::milliseconds(1));
  replay.run();
  EXPECT_EQ(replay.notifications, 3u);
}

}  // namespace
}  // namespace tulle::device::testing
