#include "rdma/optional/iwarp/protocol.h"

#include <gtest/gtest.h>

#include <array>

#include "rdma/optional/iwarp/protocol_test.h"

namespace tulle::transport::iwarp {
namespace {

using testing::bytes_of;
using testing::iova;
using verbs::CompletionStatus;
using verbs::QpState;
using verbs::SendFlag;
using verbs::SendOpcode;
using Done = std::vector<std::pair<std::uint64_t, CompletionStatus>>;

constexpr std::uint64_t receive_offset = 8'192;

Done done(testing::Host& host) {
  Done out;
  for (const auto& completion : host.completions()) {
    out.emplace_back(completion.wr_id, completion.status);
  }
  return out;
}

// --- sending ---

TEST(IwarpSender, SendsAreNumberedMessagesOfSegments) {
  End end;
  end.connect();
  end.post(SendOpcode::send, 600);
  end.post(SendOpcode::send, 0, verbs::SendFlags(SendFlag::signaled) | SendFlag::solicited);
  const auto sent = end.sent();
  ASSERT_EQ(sent.size(), 4u);
  const std::uint32_t room = mpa::ulpdu_bytes_max(segment_bytes) - ddp::untagged_header_bytes;
  std::uint32_t offset = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sent[i].opcode, rdmap::Opcode::send);
    EXPECT_EQ(sent[i].header.queue, 0u);
    EXPECT_EQ(sent[i].header.sequence, 1u);
    EXPECT_EQ(sent[i].header.message_offset, offset);
    EXPECT_EQ(sent[i].header.last, i == 2);
    EXPECT_EQ(sent[i].data.size(), i == 2 ? 600 - 2 * room : room);
    EXPECT_TRUE(std::equal(sent[i].data.begin(), sent[i].data.end(), end.memory.begin() + offset));
    offset += static_cast<std::uint32_t>(sent[i].data.size());
  }
  EXPECT_EQ(sent[3].opcode, rdmap::Opcode::send_with_solicited_event);
  EXPECT_EQ(sent[3].header.sequence, 2u);
  EXPECT_TRUE(sent[3].header.last && sent[3].data.empty());
}

TEST(IwarpSender, WritesNameWhereEachSegmentGoes) {
  End end;
  end.connect();
  verbs::SendRequest write;
  write.opcode = SendOpcode::write;
  write.rkey = RemoteKey(0x1234'5678);
  write.remote_address = 0xFFFF'0000'0000;
  end.post(write, 500);
  const auto sent = end.sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].header.stag, write.rkey);
  EXPECT_EQ(sent[0].header.tagged_offset, write.remote_address);
  EXPECT_EQ(sent[1].header.tagged_offset, write.remote_address + sent[0].data.size());
  EXPECT_TRUE(!sent[0].header.last && sent[1].header.last);
}

TEST(IwarpSender, RequestsAreDoneWhenTheirBytesAreAcknowledged) {
  End end;
  end.connect();
  end.post(SendOpcode::send, 600);
  end.post(SendOpcode::write, 10);
  end.sent();
  end.protocol().acknowledged(*end.qp, 599);
  EXPECT_EQ(done(end), Done{});
  EXPECT_FALSE(end.protocol().drained());
  const std::uint64_t last = mpa::fpdu_bytes(ddp::tagged_header_bytes + 10);
  end.protocol().acknowledged(*end.qp, end.sent_bytes - 1);
  EXPECT_EQ(done(end), (Done{{0, CompletionStatus::success}}));
  EXPECT_GT(end.sent_bytes, last);
  end.acknowledge_all();
  EXPECT_EQ(done(end), (Done{{1, CompletionStatus::success}}));
  EXPECT_TRUE(end.protocol().drained());
}

TEST(IwarpSender, ARecordIsTheSameWhenItIsSentAgain) {
  End end;
  end.connect();
  end.post(SendOpcode::send, 600);
  Record first, second;
  ASSERT_TRUE(end.protocol().next_record(*end.qp, first));
  ASSERT_TRUE(end.protocol().next_record(*end.qp, second));
  const Bytes as_sent = end.filled(second.number);
  end.protocol().acknowledged(*end.qp, first.bytes);
  EXPECT_EQ(end.filled(second.number), as_sent);
}

TEST(IwarpSender, AtomicsAndImmediateDataAreNotOffered) {
  End end;
  end.connect();
  for (const auto opcode : {SendOpcode::compare_swap, SendOpcode::fetch_add,
                            SendOpcode::send_with_immediate, SendOpcode::write_with_immediate}) {
    verbs::SendRequest request;
    request.opcode = opcode;
    EXPECT_EQ(end.try_post(request, 8), verbs::VerbsStatus::not_supported);
  }
}

TEST(IwarpSender, NoMoreReadsThanThePeerTakes) {
  End end({.depth = 2});
  end.connect();
  for (int i = 0; i < 3; ++i) end.post(SendOpcode::read, 8);
  end.post(SendOpcode::send, 8);
  auto sent = end.sent();
  ASSERT_EQ(sent.size(), 2u) << "the third waits, and what is behind it";
  EXPECT_EQ(sent[1].header.sequence, 2u);
  EXPECT_EQ(sent[1].header.queue, rdmap::read_request_queue);
  const auto read = rdmap::decode_read_request(
      std::span<const std::byte>(sent[0].data).first<rdmap::read_request_bytes>());
  EXPECT_EQ(read.bytes, 8u);
  EXPECT_EQ(read.sink_offset, iova);
  EXPECT_EQ(read.source_stag, end.region.rkey());
  end.acknowledge_all();
  EXPECT_EQ(done(end), Done{}) << "an acknowledgement is no answer";
  ddp::Header answer = header_of(rdmap::Opcode::read_response);
  answer.stag = read.sink_stag;
  answer.tagged_offset = read.sink_offset;
  end.take(answer, bytes_of(8, 9));
  EXPECT_EQ(done(end), (Done{{0, CompletionStatus::success}}));
  EXPECT_EQ(end.memory[1], bytes_of(8, 9)[1]);
  sent = end.sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[1].opcode, rdmap::Opcode::send);
  end.acknowledge_all();
  EXPECT_EQ(done(end), Done{}) << "the SEND is told behind the READs";
  end.take(answer, bytes_of(8));
  end.take(answer, bytes_of(8));
  EXPECT_EQ(done(end), (Done{{1, CompletionStatus::success},
                             {2, CompletionStatus::success},
                             {3, CompletionStatus::success}}));
}

TEST(IwarpSender, AFenceWaitsForReads) {
  End end;
  end.connect();
  end.post(SendOpcode::read, 8);
  end.post(SendOpcode::send, 8, verbs::SendFlags(SendFlag::signaled) | SendFlag::fence);
  EXPECT_EQ(end.sent().size(), 1u);
  ddp::Header answer = header_of(rdmap::Opcode::read_response);
  answer.stag = end.region.rkey();
  answer.tagged_offset = iova;
  end.take(answer, bytes_of(8));
  EXPECT_EQ(end.sent().size(), 1u);
}

TEST(IwarpSender, WithoutDepthAReadFails) {
  End end({.depth = 0});
  end.connect();
  end.post(SendOpcode::send, 8);
  end.post(SendOpcode::read, 8);
  end.post(SendOpcode::send, 8);
  EXPECT_EQ(end.sent().size(), 1u);
  EXPECT_EQ(done(end), Done{}) << "what went before it is not lost";
  end.acknowledge_all();
  const auto told = end.told();
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->code, rdmap::error::local_catastrophic);
  EXPECT_EQ(done(end), (Done{{0, CompletionStatus::success},
                             {1, CompletionStatus::local_qp_operation_error},
                             {2, CompletionStatus::flushed}}));
}

TEST(IwarpSender, MemoryThatIsNotItsOwnEndsIt) {
  End end;
  end.connect();
  const verbs::Sge bad{iova, 8, LocalKey{end.region.key ^ 1}};
  verbs::SendRequest request;
  request.wr_id = 7;
  request.sges = {&bad, 1};
  end.must(end.qp->post_send(request));
  ASSERT_TRUE(end.told().has_value());
  EXPECT_EQ(done(end), (Done{{7, CompletionStatus::local_protection_error}}));
  EXPECT_EQ(end.qp->state(), QpState::error);
}

TEST(IwarpSender, DrainingFinishesWhatHasBegun) {
  End end;
  end.connect();
  end.post(SendOpcode::send, 600);
  end.post(SendOpcode::send, 8);
  ASSERT_TRUE(end.next().has_value());
  QueuePairAttributes to;
  to.sqd_async_notify = true;
  end.must(end.step(to, QpState::sqd, verbs::QpAttribute::sqd_async_notify));
  EXPECT_EQ(end.sent().size(), 2u);
  EXPECT_TRUE(end.raised().empty());
  end.acknowledge_all();
  EXPECT_EQ(end.raised(), (std::vector{verbs::EventType::send_queue_drained}));
  end.must(end.step({}, QpState::rts));
  EXPECT_EQ(end.sent().size(), 1u);
}

// The turns of queue pairs rely on it: one that says that it has more and sends nothing is asked
// again without end.
TEST(IwarpSender, ItHasMoreJustWhereItWouldSend) {
  End end;
  end.connect();
  const auto has_more = [&] { return end.protocol().has_more(*end.qp); };
  EXPECT_FALSE(has_more());
  end.post(SendOpcode::send, 600);
  end.post(SendOpcode::send, 8);
  EXPECT_TRUE(has_more());
  ASSERT_TRUE(end.next().has_value());
  end.must(end.step({}, QpState::sqd));
  EXPECT_TRUE(has_more()) << "the rest of the message";
  EXPECT_EQ(end.sent().size(), 2u);
  EXPECT_FALSE(has_more()) << "the queue drains, and the next message has not begun";
  EXPECT_FALSE(end.next().has_value());
  end.must(end.step({}, QpState::rts));
  EXPECT_TRUE(has_more());
  EXPECT_EQ(end.sent().size(), 1u);
  EXPECT_FALSE(has_more());
}

TEST(IwarpSender, MemoryWithoutBytesIsSentAsGhosts) {
  End end;
  end.connect();
  end.region.memory = nullptr;
  end.post(SendOpcode::send, 100);
  Record record;
  ASSERT_TRUE(end.protocol().next_record(*end.qp, record));
  FilledRecord filled;
  EXPECT_TRUE(end.protocol().fill(*end.qp, record.number, filled));
  EXPECT_EQ(filled.ghost_bytes, 100u + mpa::crc_bytes);  // the CRC of ghosts is a ghost
}

TEST(IwarpSender, WhatCannotBeFilledAgainIsSaid) {
  End end;
  end.connect();
  end.post(SendOpcode::send, 8);
  Record record;
  ASSERT_TRUE(end.protocol().next_record(*end.qp, record));
  end.must(end.step({}, QpState::error));
  FilledRecord filled;
  EXPECT_FALSE(end.protocol().fill(*end.qp, record.number, filled));
  end.protocol().acknowledged(*end.qp, record.bytes);
  EXPECT_EQ(done(end), (Done{{0, CompletionStatus::flushed}}));
}

// --- receiving ---

TEST(IwarpReceiver, ASendFillsTheNextReceive) {
  End end;
  end.connect();
  end.post_receive(100);
  end.post_receive(100);
  ddp::Header header = header_of(rdmap::Opcode::send);
  header.last = false;
  end.take(header, bytes_of(60));
  EXPECT_TRUE(end.completions().empty());
  header.message_offset = 60;
  header.last = true;
  end.take(header, bytes_of(40, 5));
  header = header_of(rdmap::Opcode::send_with_solicited_event);
  header.sequence = 2;
  end.take(header);
  const auto completions = end.completions();
  ASSERT_EQ(completions.size(), 2u);
  EXPECT_EQ(completions[0].byte_length, 100u);
  EXPECT_EQ(completions[0].opcode, verbs::CompletionOpcode::receive);
  EXPECT_FALSE(completions[0].solicited);
  EXPECT_TRUE(completions[1].solicited);
  EXPECT_EQ(completions[1].byte_length, 0u);
  EXPECT_EQ(end.memory[receive_offset], bytes_of(1)[0]);
  EXPECT_EQ(end.memory[receive_offset + 60], bytes_of(1, 5)[0]);
}

TEST(IwarpReceiver, ASendTakesAWindowAway) {
  for (const auto opcode : {rdmap::Opcode::send_with_invalidate,
                            rdmap::Opcode::send_with_solicited_event_and_invalidate}) {
    End end;
    end.connect();
    end.post_receive(8);
    verbs::MemoryWindow window;
    window.pd = &end.pd;
    window.type = verbs::WindowType::type2;
    end.environment.keys.add(window);
    verbs::SendRequest bind;
    bind.opcode = SendOpcode::bind_window;
    bind.window = &window;
    bind.window_region = &end.region;
    bind.window_address = iova;
    bind.window_length = 64;
    bind.window_access = verbs::Access::remote_write;
    bind.window_rkey = RemoteKey{window.key + 1};
    end.post(bind, 0);
    EXPECT_FALSE(end.next().has_value());
    ddp::Header header = header_of(opcode);
    header.ulp_word = bind.window_rkey.value;
    end.take(header);
    const auto completions = end.completions();
    ASSERT_EQ(completions.size(), 2u);
    EXPECT_TRUE(completions[1].has_invalidate);
    EXPECT_EQ(completions[1].invalidated_rkey, bind.window_rkey);
    EXPECT_EQ(window.region, nullptr);
    end.post_receive(8);
    header.sequence = 2;
    end.take(header);
    const auto told = end.told();
    ASSERT_TRUE(told.has_value());
    EXPECT_EQ(told->code, rdmap::error::cannot_invalidate);
  }
}

TEST(IwarpReceiver, AReadIsAnsweredInSegments) {
  End end;
  end.connect();
  ddp::Header header = header_of(rdmap::Opcode::read_request);
  const rdmap::ReadRequest read{RemoteKey(0x77), 0x1000, 500, end.region.rkey(), iova + 40};
  Bytes data(rdmap::read_request_bytes);
  rdmap::encode(read, std::span(data).first<rdmap::read_request_bytes>());
  end.take(header, data);
  const auto sent = end.sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].opcode, rdmap::Opcode::read_response);
  EXPECT_EQ(sent[0].header.stag, read.sink_stag);
  EXPECT_EQ(sent[0].header.tagged_offset, read.sink_offset);
  EXPECT_EQ(sent[1].header.tagged_offset, read.sink_offset + sent[0].data.size());
  EXPECT_TRUE(
      std::equal(sent[1].data.begin(), sent[1].data.end(),
                 end.memory.begin() + 40 + static_cast<std::ptrdiff_t>(sent[0].data.size())));
  end.acknowledge_all();
  EXPECT_TRUE(end.completions().empty());
}

// An error of a segment, and the code by which the peer is told.
struct Wrong {
  const char* what;
  ddp::Header header;
  std::uint32_t bytes;
  rdmap::TerminateCode code;
};

TEST(IwarpReceiver, ErrorsAreToldByTheirNames) {
  const auto with = [](rdmap::Opcode opcode, auto change) {
    ddp::Header header = header_of(opcode);
    change(header);
    return header;
  };
  const auto key = End().region.rkey();  // the same for every End, since the seed is the same
  const auto write = [&](auto change) {
    return with(rdmap::Opcode::write, [&](ddp::Header& header) {
      header.stag = key;
      header.tagged_offset = iova;
      change(header);
    });
  };
  using rdmap::Opcode;
  const std::vector<Wrong> table = {
      {"DDP's version", write([](auto& h) { h.version = 2; }), 8, rdmap::error::tagged_ddp_version},
      {"DDP's version", with(Opcode::send, [](auto& h) { h.version = 0; }), 8,
       rdmap::error::untagged_ddp_version},
      {"RDMAP's version", write([](auto& h) { h.ulp_control = 0x80; }), 8,
       rdmap::error::rdmap_version},
      {"no opcode", write([](auto& h) { h.ulp_control = 0x48; }), 8,
       rdmap::error::unexpected_opcode},
      {"a tagged SEND", write([](auto& h) { h.ulp_control = 0x43; }), 8,
       rdmap::error::unexpected_opcode},
      {"a SEND in the READs' queue", with(Opcode::send, [](auto& h) { h.queue = 1; }), 8,
       rdmap::error::unexpected_opcode},
      {"no queue", with(Opcode::send, [](auto& h) { h.queue = 3; }), 8,
       rdmap::error::untagged_queue},
      {"an MSN of the past", with(Opcode::send, [](auto& h) { h.sequence = 0; }), 8,
       rdmap::error::untagged_sequence},
      {"an MSN of the future", with(Opcode::send, [](auto& h) { h.sequence = 2; }), 8,
       rdmap::error::untagged_sequence},
      {"not its first segment", with(Opcode::send, [](auto& h) { h.message_offset = 4; }), 8,
       rdmap::error::untagged_offset},
      {"longer than its receive", header_of(Opcode::send), 101, rdmap::error::untagged_too_long},
      {"an STag that is none", write([](auto& h) { h.stag.value ^= 0xFF00; }), 8,
       rdmap::error::tagged_invalid_stag},
      {"behind its memory", write([](auto& h) { h.tagged_offset = iova + 32'768 - 7; }), 8,
       rdmap::error::tagged_bounds},
      {"around the end of all memory", write([](auto& h) { h.tagged_offset = ~0ull - 3; }), 8,
       rdmap::error::tagged_offset_wraps},
      {"an answer to nothing", with(Opcode::read_response, [](auto&) {}), 8,
       rdmap::error::unexpected_opcode},
      {"a READ that is short", header_of(Opcode::read_request), 27,
       rdmap::error::untagged_too_long},
      {"a READ of no memory", header_of(Opcode::read_request), 28, rdmap::error::invalid_stag},
  };
  for (const Wrong& wrong : table) {
    SCOPED_TRACE(wrong.what);
    End end;
    end.connect();
    end.post_receive(100);
    end.post(SendOpcode::send, 8);
    end.take(wrong.header, bytes_of(wrong.bytes));
    EXPECT_EQ(end.qp->state(), QpState::error);
    const auto told = end.told();
    ASSERT_TRUE(told.has_value());
    EXPECT_EQ(rdmap::name(told->code), rdmap::name(wrong.code));
    ASSERT_TRUE(told->ddp_header && told->segment_bytes);
    EXPECT_EQ(*told->ddp_header, wrong.header);
    EXPECT_EQ(*told->segment_bytes, wrong.header.bytes() + wrong.bytes);
    EXPECT_FALSE(end.next().has_value()) << "nothing follows a TERMINATE";
    EXPECT_EQ(end.counters().remote_errors_sent, 1u);
    for (const auto& [wr_id, status] : done(end)) EXPECT_EQ(status, CompletionStatus::flushed);
  }
}

TEST(IwarpReceiver, RightsAreLookedAt) {
  End end({.access = verbs::Access::remote_read});
  end.connect();
  ddp::Header header = header_of(rdmap::Opcode::write);
  header.stag = end.region.rkey();
  header.tagged_offset = iova;
  end.take(header, bytes_of(8));
  EXPECT_EQ(end.told()->code, rdmap::error::access_rights);
  EXPECT_EQ(end.raised(), (std::vector{verbs::EventType::qp_access_error}));

  End other({.access = verbs::Access::remote_write});
  other.connect();
  Bytes data(rdmap::read_request_bytes);
  const rdmap::ReadRequest read{RemoteKey(1), 0, 8, other.region.rkey(), iova};
  rdmap::encode(read, std::span(data).first<rdmap::read_request_bytes>());
  other.take(header_of(rdmap::Opcode::read_request), data);
  const auto told = other.told();
  EXPECT_EQ(told->code, rdmap::error::access_rights);
  EXPECT_EQ(told->read_request, read);

  End third;
  third.region.access = verbs::Access::local_write;
  third.connect();
  header.stag = third.region.rkey();
  third.take(header, bytes_of(8));
  EXPECT_EQ(third.told()->code, rdmap::error::access_rights);
}

TEST(IwarpReceiver, ASendWithoutAReceiveEndsTheStream) {
  End end;
  end.connect();
  end.take(header_of(rdmap::Opcode::send), bytes_of(8));
  EXPECT_EQ(end.told()->code, rdmap::error::untagged_no_buffer);
}

TEST(IwarpReceiver, MoreReadsThanAgreedUponEndTheStream) {
  End end({.depth = 2});
  end.connect();
  ddp::Header header = header_of(rdmap::Opcode::read_request);
  const rdmap::ReadRequest read{RemoteKey(0x77), 0, 8, end.region.rkey(), iova};
  Bytes data(rdmap::read_request_bytes);
  rdmap::encode(read, std::span(data).first<rdmap::read_request_bytes>());
  for (std::uint32_t i = 1; i <= 3; ++i) {
    header.sequence = i;
    end.take(header, data);
  }
  EXPECT_EQ(end.told()->code, rdmap::error::untagged_no_buffer);
}

TEST(IwarpReceiver, AnswersThatWereNotAskedForEndTheStream) {
  const auto answered = [](auto change, std::uint32_t bytes) {
    End end;
    end.connect();
    end.post(SendOpcode::read, 100);
    end.sent();
    ddp::Header header = header_of(rdmap::Opcode::read_response);
    header.stag = end.region.rkey();
    header.tagged_offset = iova;
    change(header);
    end.take(header, bytes_of(bytes));
    const auto told = end.told();
    return told ? rdmap::name(told->code) : std::string_view("none");
  };
  EXPECT_EQ(answered([](auto&) {}, 100), "none");
  EXPECT_EQ(answered([](auto& h) { h.last = false; }, 99), "none");
  EXPECT_EQ(answered([](auto& h) { h.stag.value ^= 1; }, 100),
            rdmap::name(rdmap::error::tagged_invalid_stag));
  const auto bounds = rdmap::name(rdmap::error::tagged_bounds);
  EXPECT_EQ(answered([](auto& h) { h.tagged_offset += 4; }, 100), bounds);
  EXPECT_EQ(answered([](auto&) {}, 101), bounds);
  EXPECT_EQ(answered([](auto&) {}, 99), bounds);
  EXPECT_EQ(answered([](auto& h) { h.last = false; }, 100), bounds);
}

TEST(IwarpReceiver, ADamagedFpduIsNotPlaced) {
  End end;
  end.connect();
  ddp::Header header = header_of(rdmap::Opcode::write);
  header.stag = end.region.rkey();
  header.tagged_offset = iova + 80;
  Bytes damaged = fpdu(header, bytes_of(20));
  damaged[20] ^= std::byte{4};
  end.take(std::span(damaged).first(11));
  end.take(std::span(damaged).subspan(11));
  EXPECT_EQ(end.memory[80], testing::Host::pattern(80));
  EXPECT_EQ(end.told()->code, rdmap::error::crc);

  End careless;  // an end that agreed upon no CRC does not check it
  careless.environment.iwarp_crc = false;
  careless.connect();
  header.stag = careless.region.rkey();
  damaged = fpdu(header, bytes_of(20));
  damaged.back() ^= std::byte{4};
  careless.take(damaged);
  EXPECT_EQ(careless.memory[80], bytes_of(1)[0]);
  careless.post(SendOpcode::write, 3);
  const auto sent = careless.next();
  EXPECT_EQ(mpa::take_crc(std::span<const std::byte>(*sent).last<4>()), 0u);
}

TEST(IwarpReceiver, ATerminateEndsItAndBlamesWhatItNames) {
  End end;
  end.connect();
  end.post(SendOpcode::send, 8);
  end.post(SendOpcode::read, 8);
  end.post(SendOpcode::send, 8);
  const auto sent = end.sent();
  end.protocol().acknowledged(*end.qp, mpa::fpdu_bytes(ddp::untagged_header_bytes + 8));
  rdmap::Terminate terminate;
  terminate.code = rdmap::error::bounds;
  terminate.ddp_header = sent[1].header;
  Bytes data(rdmap::terminate_bytes_max);
  data.resize(rdmap::encode(terminate, data));
  end.take(header_of(rdmap::Opcode::terminate), data);
  EXPECT_EQ(done(end), (Done{{0, CompletionStatus::success},
                             {1, CompletionStatus::remote_access_error},
                             {2, CompletionStatus::flushed}}));
  EXPECT_EQ(end.qp->state(), QpState::error);
  EXPECT_EQ(end.protocol().terminated()->code, rdmap::error::bounds);
  EXPECT_FALSE(end.next().has_value()) << "a TERMINATE is not answered";
}

TEST(IwarpReceiver, ATerminateThatIsCutShortEndsItToo) {
  End end;
  end.connect();
  end.post(SendOpcode::send, 8);
  end.sent();
  end.take(header_of(rdmap::Opcode::terminate), bytes_of(3));
  EXPECT_EQ(end.qp->state(), QpState::error);
  EXPECT_EQ(done(end), (Done{{0, CompletionStatus::flushed}}));
}

TEST(IwarpReceiver, GhostsAreCountedAndHeadersAreNot) {
  End end;
  end.connect();
  end.post_receive(200);
  ddp::Header header = header_of(rdmap::Opcode::send);
  const Bytes whole = fpdu(header, bytes_of(150));
  const auto head = std::span(whole).first(2 + ddp::untagged_header_bytes);
  end.protocol().receive(*end.qp, {head.first(5), 0});
  end.protocol().receive(*end.qp, {head.subspan(5), 100});
  end.protocol().receive(*end.qp,
                         {{}, static_cast<std::uint32_t>(whole.size() - head.size()) - 100});
  const auto completions = end.completions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].byte_length, 150u);
  EXPECT_EQ(end.memory[receive_offset], testing::Host::pattern(receive_offset));
}

TEST(IwarpReceiver, AReceiveInPartIsFlushed) {
  End end;
  end.connect();
  end.post_receive(200);
  end.post_receive(200);
  ddp::Header header = header_of(rdmap::Opcode::send);
  header.last = false;
  end.take(header, bytes_of(150));
  end.must(end.step({}, QpState::error));
  EXPECT_EQ(done(end),
            (Done{{1'000, CompletionStatus::flushed}, {1'001, CompletionStatus::flushed}}));
}

}  // namespace
}  // namespace tulle::transport::iwarp
