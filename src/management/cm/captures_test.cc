// Replays the messages between two Linux kernels (tests/data/captures/roce_cm_*) with two managers.
// Every message must be equal byte for byte, except for the numbers that each side draws.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <vector>

#include "management/cm/manager.h"
#include "places.h"
#include "rdma/wire/bth.h"
#include "rdma/wire/deth.h"
#include "rdma/wire/ip_udp.h"

namespace tulle::management::cm {
namespace {

using Kind = Event::Kind;
using wire::cm::Attribute;
using MadBytes = std::array<std::byte, wire::mad_bytes>;

struct Captured {
  Route route;  // the sender's view
  MadBytes bytes{};
  Attribute attribute{};
};

std::vector<Captured> captured_mads(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(stream)), {});
  constexpr std::size_t file_header = 24, record_header = 16, ethernet_header = 14;
  std::vector<Captured> mads;
  for (std::size_t at = file_header; at + record_header <= file.size();) {
    std::uint32_t bytes;  // little-endian, as in all these files
    std::memcpy(&bytes, file.data() + at + 8, sizeof(bytes));
    const auto frame = std::as_bytes(std::span(file)).subspan(at + record_header, bytes);
    at += record_header + bytes;
    wire::IpUdp ip;
    std::span<const std::byte> rest = frame.subspan(ethernet_header);
    const wire::DecodedIpUdp outer = wire::decode(rest, ip);
    if (!outer.ok || ip.destination_port != wire::roce_v2_udp_port) continue;
    rest = rest.subspan(outer.header_bytes, outer.udp_payload_bytes);
    const auto bth = wire::take<wire::Bth>(rest);
    if (bth.destination_qp() != wire::general_services_qp.value) continue;
    EXPECT_EQ(wire::take<wire::Deth>(rest).qkey, wire::general_services_qkey.value);
    EXPECT_EQ(rest.size(), wire::mad_bytes + wire::icrc_bytes);
    Captured mad;
    mad.route = {ip.source, ip.destination, 0};
    std::memcpy(mad.bytes.data(), rest.data(), mad.bytes.size());
    const auto header = wire::take<wire::MadHeader>(rest);
    mad.attribute = static_cast<Attribute>(std::uint16_t{header.attribute_id});
    mads.push_back(mad);
  }
  return mads;
}

template <typename Message>
wire::cm::Mad<Message> mad_of(const MadBytes& bytes) {
  wire::cm::Mad<Message> mad;
  std::memcpy(&mad, bytes.data(), sizeof(mad));
  return mad;
}

std::string hex(const MadBytes& bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(b));
    text += digits;
  }
  return text;
}

class Replay {
 public:
  explicit Replay(const std::vector<Captured>& mads) : a_({}), b_({}) {
    for (const Captured& mad : mads) say(mad);
  }
  std::size_t said() const { return said_; }

 private:
  static std::optional<MadBytes> take(Manager& from) {
    if (from.next_outgoing() == nullptr) return std::nullopt;
    const MadBytes bytes = from.next_outgoing()->bytes;
    from.pop_outgoing();
    return bytes;
  }
  void deliver(Manager& to, const std::optional<MadBytes>& bytes) {
    ASSERT_TRUE(bytes.has_value());
    const bool is_b = &to == &b_;
    to.handle(now_, is_b ? Route{server_, client_, 0} : Route{client_, server_, 0}, *bytes);
  }
  Event event_of(Manager& manager, Kind kind) {
    const auto event = manager.pull_event();
    EXPECT_TRUE(event.has_value() && event->kind == kind);
    return event ? *event : Event{};
  }
  void repeat(Manager& manager) {
    now_ = manager.next_deadline();
    manager.advance(now_);
  }

  void say(const Captured& mad) {
    switch (mad.attribute) {
      case Attribute::request:
        return say_request(mad);
      case Attribute::reply:
        return say_reply(mad);
      case Attribute::reject:
        b_.stop_listening(service_);
        deliver(b_, request_);
        compare<wire::cm::Reject>(b_, mad);
        return;
      case Attribute::ready_to_use:
        deliver(a_, reply_);
        event_of(a_, Kind::reply);
        ASSERT_TRUE(a_.establish(now_, asked_, {}));
        ready_ = compare<wire::cm::ReadyToUse>(a_, mad);
        return;
      case Attribute::disconnect_request:
        deliver(b_, ready_);
        event_of(b_, Kind::established);
        ASSERT_TRUE(a_.disconnect(now_, asked_, {}));
        wish_ = compare<wire::cm::DisconnectRequest>(a_, mad);
        return;
      case Attribute::disconnect_reply:
        deliver(b_, wish_);
        event_of(b_, Kind::disconnect_request);
        ASSERT_TRUE(b_.disconnect(now_, answered_, {}));
        deliver(a_, compare<wire::cm::DisconnectReply>(b_, mad));
        event_of(a_, Kind::disconnected);
        return;
      case Attribute::service_id_request:
        return say_question(mad);
      case Attribute::service_id_reply:
        return say_answer(mad);
      default:
        ADD_FAILURE() << "a message that is not replayed";
    }
  }

  void say_request(const Captured& mad) {
    if (request_) {
      repeat(a_);
      request_ = compare<wire::cm::Request>(a_, mad);
      return;
    }
    client_ = mad.route.local;
    server_ = mad.route.remote;
    const auto message = mad_of<wire::cm::Request>(mad.bytes).message;
    service_ = message.service_id;
    b_.listen(now_, service_);
    Manager reader{{}};
    reader.listen(now_, service_);
    reader.handle(now_, {server_, client_, 0}, mad.bytes);
    Request request = event_of(reader, Kind::request).request;
    request.route = mad.route;
    asked_ = a_.connect(now_, request);
    request_ = compare<wire::cm::Request>(a_, mad);
  }

  void say_reply(const Captured& mad) {
    if (reply_) {
      repeat(b_);
      reply_ = compare<wire::cm::Reply>(b_, mad);
      return;
    }
    deliver(b_, request_);
    answered_ = event_of(b_, Kind::request).id;
    using Message = wire::cm::Reply;
    const Message message = mad_of<Message>(mad.bytes).message;
    Reply reply;
    reply.qp = QpNumber{message.local_qp};
    reply.starting_psn = Psn{message.starting_psn};
    reply.responder_resources = message.responder_resources;
    reply.initiator_depth = message.initiator_depth;
    reply.target_ack_delay = Message::TargetAckDelay::of(message.ack_delay);
    reply.srq = Message::Srq::of(message.rnr_retry_count) != 0;
    reply.rnr_retry_count = Message::RnrRetryCount::of(message.rnr_retry_count);
    reply.private_data = PrivateData(message.private_data);
    ASSERT_TRUE(b_.accept(now_, answered_, reply));
    reply_ = compare<Message>(b_, mad);
  }

  void say_question(const Captured& mad) {
    const auto message = mad_of<wire::cm::ServiceIdRequest>(mad.bytes).message;
    client_ = mad.route.local;
    server_ = mad.route.remote;
    service_ = message.service_id;
    b_.listen(now_, service_);
    ServiceQuestion question;
    question.route = mad.route;
    question.service_id = service_;
    question.pkey = Pkey{message.pkey};
    question.private_data = PrivateData(message.private_data);
    a_.ask_service(now_, question);
    request_ = compare<wire::cm::ServiceIdRequest>(a_, mad);
  }

  void say_answer(const Captured& mad) {
    deliver(b_, request_);
    const auto message = mad_of<wire::cm::ServiceIdReply>(mad.bytes).message;
    ServiceAnswer answer;
    answer.qp = QpNumber{message.qp};
    answer.qkey = Qkey{message.qkey};
    answer.private_data = PrivateData(message.private_data);
    ASSERT_TRUE(b_.answer_service(now_, event_of(b_, Kind::service_question).id, answer));
    deliver(a_, compare<wire::cm::ServiceIdReply>(b_, mad));
    event_of(a_, Kind::service_answer);
  }

  // Our message must equal Linux's after Linux's numbers are filled in.
  template <typename Message>
  std::optional<MadBytes> compare(Manager& from, const Captured& expected) {
    const auto said = take(from);
    EXPECT_TRUE(said.has_value());
    if (!said) return said;
    auto ours = mad_of<Message>(*said);
    const auto theirs = mad_of<Message>(expected.bytes);
    ours.header.transaction_id = theirs.header.transaction_id;
    if constexpr (requires { ours.message.local_id; }) {
      EXPECT_EQ(ours.message.local_id == 0, theirs.message.local_id == 0);
      ours.message.local_id = theirs.message.local_id;
    }
    if constexpr (requires { ours.message.remote_id; }) {
      ours.message.remote_id = theirs.message.remote_id;
    }
    if constexpr (requires { ours.message.request_id; }) {
      ours.message.request_id = theirs.message.request_id;
    }
    if constexpr (requires { ours.message.local_ca_guid; }) {
      ours.message.local_ca_guid = theirs.message.local_ca_guid;
    }
    MadBytes patched;
    std::memcpy(patched.data(), &ours, sizeof(ours));
    EXPECT_EQ(hex(patched), hex(expected.bytes));
    ++said_;
    return said;
  }

  Manager a_, b_;
  Time now_ = Time::seconds(1);
  Gid client_, server_;
  std::uint64_t service_ = 0;
  ConnectionId asked_, answered_;
  std::optional<MadBytes> request_, reply_, ready_, wish_;
  std::size_t said_ = 0;
};

TEST(CapturesTest, ManagersSayWhatLinuxSays) {
  std::size_t files = 0, messages = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TULLE_TEST_DATA "/captures")) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("roce_cm_") && name != "roce_ipv6_rc.pcap") continue;
    SCOPED_TRACE(name);
    const auto mads = captured_mads(entry.path());
    const Replay replay(mads);
    EXPECT_EQ(replay.said(), mads.size());
    ++files;
    messages += mads.size();
  }
  EXPECT_EQ(files, 7u);
  EXPECT_GE(messages, 28u);
}

// The expected values agree with tshark's.
TEST(CapturesTest, ARequestSaysWhoAsksForWhat) {
  const auto mads = captured_mads(TULLE_TEST_DATA "/captures/roce_cm_rping.pcap");
  ASSERT_EQ(mads.size(), 5u);
  using Message = wire::cm::Request;
  const auto mad = mad_of<Message>(mads[0].bytes);
  const Message& m = mad.message;
  EXPECT_EQ(mad.header.transaction_id, 0x2'57CA'CBFEu);
  EXPECT_EQ(m.local_id, 0xFECB'CA57u);
  EXPECT_EQ(m.service_id, wire::cm::ip_service_id(0x0106, 7174));
  EXPECT_EQ(m.local_ca_guid, 0x5054'00FF'FE1D'665Bu);
  EXPECT_EQ(m.local_qp, 0x20u);
  EXPECT_EQ(m.responder_resources, 1);
  EXPECT_EQ(m.initiator_depth, 1);
  EXPECT_EQ(Message::RemoteResponseTimeout::of(m.service_type), 20);
  EXPECT_EQ(Message::ServiceType::of(m.service_type), Message::service_rc);
  EXPECT_EQ(m.starting_psn, 0x6D'E56Cu);
  EXPECT_EQ(Message::LocalResponseTimeout::of(m.retry_count), 20);
  EXPECT_EQ(Message::RetryCount::of(m.retry_count), 7);
  EXPECT_EQ(m.pkey, 0xFFFF);
  EXPECT_EQ(Message::PathMtu::of(m.mtu), 3);
  EXPECT_EQ(Message::RnrRetryCount::of(m.mtu), 7);
  EXPECT_EQ(Message::MaxRetries::of(m.max_retries), 15);
  EXPECT_EQ(m.primary.local, Gid::from_ipv4(0x0A4D'0003));
  EXPECT_EQ(m.primary.remote, Gid::from_ipv4(0x0A4D'0002));
  EXPECT_EQ(m.primary.hop_limit, 64);
  EXPECT_EQ(wire::cm::Path::AckTimeout::of(m.primary.ack_timeout), 19);
  wire::cm::IpHello hello;
  std::memcpy(&hello, m.private_data.data(), sizeof(hello));
  EXPECT_EQ(wire::cm::IpHello::IpVersion::of(hello.ip_version), 4);
  EXPECT_EQ(hello.source_port, 0xBF56);
  const auto reply = mad_of<wire::cm::Reply>(mads[1].bytes).message;
  EXPECT_EQ(reply.local_id, 0x16BB'521Bu);
  EXPECT_EQ(reply.remote_id, 0xFECB'CA57u);
  EXPECT_EQ(reply.local_qp, 0x1Fu);
  EXPECT_EQ(wire::cm::Reply::TargetAckDelay::of(reply.ack_delay), 15);
  EXPECT_EQ(wire::cm::Reply::RnrRetryCount::of(reply.rnr_retry_count), 7);
}

}  // namespace
}  // namespace tulle::management::cm
