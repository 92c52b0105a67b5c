// Tests that the checker of the wire finds each promise broken, and finds nothing wrong with a
// conversation that keeps them.

#include "tests/scenarios/wire_watch.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/scenarios/broken.h"

namespace tulle::scenarios {
namespace {

using verbs::CompletionStatus;
using wire::AckKind;
using wire::Operation;

constexpr Time us(std::int64_t n) { return Time::microseconds(n); }
constexpr Time ack_time = Time::nanoseconds(4'096);  // code 0 is for ever, code 1 twice this
constexpr Time timeout = ack_time * 2;
constexpr Time rnr_wait = us(10);  // IBTA table 46: code 1

// One requester, whose connection begins at PSN 100.
class WireWatchTest : public testing::Test {
 protected:
  WireWatchTest() {
    watch.connect(0, {.name = "it",
                      .first = Psn(100),
                      .mtu_bytes = 256,
                      .timeout = 1,
                      .retry_count = 2,
                      .rnr_retry = 1});
  }
  static wire::Packet packet(Operation operation, std::uint32_t place) {
    wire::Packet out;
    out.opcode = wire::opcode(wire::TransportClass::rc, operation);
    out.psn = Psn(100 + place);
    return out;
  }
  static wire::Packet answer(std::uint32_t place, AckKind kind, std::uint8_t value) {
    wire::Packet out = packet(Operation::acknowledge, place);
    out.syndrome = {kind, value};
    return out;
  }
  void send(Time at, std::uint32_t place, Operation operation = Operation::write_only) {
    watch.port_used(0, at, at);
    watch.request_left(at, 0, packet(operation, place));
  }
  void acknowledge(Time at, std::uint32_t place, std::uint8_t credits = 31) {
    watch.answer_arrived(at, 0, answer(place, AckKind::ack, credits));
  }
  void refuse(Time at, std::uint32_t place) {
    watch.answer_arrived(at, 0, answer(place, AckKind::rnr_nak, 1));
  }
  void ask_again(Time at, std::uint32_t place) {
    watch.answer_arrived(at, 0, answer(place, AckKind::nak, 0));
  }
  void answer(std::uint32_t place, std::uint8_t credits, std::uint32_t receives) {
    watch.answer_left(0, answer(place, AckKind::ack, credits), receives);
  }
  // Expects that a promise is broken, with this text in its message.
  template <typename Action>
  static void expect_broken(const std::string& text, const Action& action) {
    try {
      action();
      ADD_FAILURE() << "nothing was found: " << text;
    } catch (const Broken& broken) {
      EXPECT_NE(std::string(broken.what()).find(text), std::string::npos) << broken.what();
    }
  }

  bool sends = true;
  WireWatch watch{[this](std::size_t) { return sends; }};
};

TEST_F(WireWatchTest, TimeOutsUpToTheRetries) {
  send(us(0), 0);
  send(timeout, 0);
  send(timeout * 2, 0);
  expect_broken("more time-outs than its retries", [&] { send(timeout * 3, 0); });
}

TEST_F(WireWatchTest, ProgressGivesTheRetriesBack) {
  send(us(0), 0);
  send(us(0), 1);
  send(timeout, 0);
  send(timeout, 1);
  acknowledge(timeout, 0);
  send(timeout * 2, 1);
  send(timeout * 3, 1);
  expect_broken("more time-outs than its retries", [&] { send(timeout * 4, 1); });
}

TEST_F(WireWatchTest, NobodyTimesOutEarly) {
  send(us(0), 0);
  expect_broken("before its ACK timer", [&] { send(timeout - Time{1}, 0); });
}

TEST_F(WireWatchTest, AnAnswerStartsTheTimerAgain) {
  send(us(0), 0);
  send(us(0), 1);
  acknowledge(us(5), 0);
  expect_broken("before its ACK timer", [&] { send(timeout, 1); });
}

TEST_F(WireWatchTest, ANakIsAReasonOnce) {
  send(us(0), 0);
  send(us(0), 1);
  ask_again(us(1), 0);
  send(us(2), 0);
  send(us(2), 1);
  ask_again(us(3), 0);
  expect_broken("before its ACK timer", [&] { send(us(4), 0); });
}

TEST_F(WireWatchTest, AnAckAcrossAReadAsksForItAgain) {
  wire::Packet read = packet(Operation::read_request, 0);
  read.dma_length = 512;
  watch.request_left(us(0), 0, read);
  send(us(0), 2);
  acknowledge(us(1), 2);
  watch.request_left(us(2), 0, read);
  send(us(2), 2);
  expect_broken("before its ACK timer", [&] { watch.request_left(us(3), 0, read); });
}

TEST_F(WireWatchTest, TheTimerRunsAtMostFourTimes) {
  send(us(0), 0);
  watch.port_used(0, timeout * 4, timeout * 4);
  expect_broken("more than four times", [&] { watch.port_used(0, timeout * 4 + us(1), us(99)); });
}

TEST_F(WireWatchTest, ABusyPortIsAnExcuse) {
  send(us(0), 0);
  watch.port_used(0, us(0), timeout * 5);
  send(timeout * 5, 0);
  sends = false;
  watch.port_used(0, timeout * 50, timeout * 51);
}

TEST_F(WireWatchTest, NothingIsSentDuringAnRnrWait) {
  send(us(0), 0);
  refuse(us(1), 0);
  expect_broken("during an RNR wait", [&] { send(us(1) + rnr_wait - Time{1}, 0); });
}

TEST_F(WireWatchTest, TheWaitEndsInTime) {
  send(us(0), 0);
  refuse(us(1), 0);
  send(us(1) + rnr_wait, 0);
  acknowledge(us(20), 0);
  send(us(20), 1);
  refuse(us(21), 1);
  expect_broken("sent nothing when its RNR wait was over",
                [&] { send(us(21) + rnr_wait + Time{1}, 1); });
}

TEST_F(WireWatchTest, RnrNaksUpToTheRetries) {
  send(us(0), 0);
  refuse(us(1), 0);
  send(us(1) + rnr_wait, 0);
  refuse(us(12), 0);
  expect_broken("more RNR NAKs than its retries", [&] { send(us(12) + rnr_wait, 0); });
}

TEST_F(WireWatchTest, NobodyGivesUpTooSoon) {
  send(us(0), 0);
  send(timeout, 0);
  expect_broken("gave up after 1 retries",
                [&] { watch.failed(timeout * 2, 0, CompletionStatus::retry_exceeded_error); });
  send(timeout * 2, 0);
  expect_broken("before its ACK timer", [&] {
    watch.failed(timeout * 3 - Time{1}, 0, CompletionStatus::retry_exceeded_error);
  });
  watch.failed(timeout * 3, 0, CompletionStatus::retry_exceeded_error);
  refuse(timeout * 3, 0);
  expect_broken("gave up after 1 RNR NAKs",
                [&] { watch.failed(timeout * 4, 0, CompletionStatus::rnr_retry_exceeded_error); });
}

TEST_F(WireWatchTest, MessagesUpToTheCreditsAndOneProbe) {
  send(us(0), 0, Operation::send_only);
  acknowledge(us(1), 0, 1);
  send(us(1), 1, Operation::send_only);  // the credit
  expect_broken("beyond its credits", [&] { send(us(1), 2, Operation::send_only); });
  acknowledge(us(2), 1, 0);
  send(us(2), 2, Operation::send_only);  // a probe, as nothing else is under way
  expect_broken("beyond its credits", [&] { send(us(2), 3, Operation::send_only); });
  send(us(2), 3);  // a WRITE takes no receive
}

TEST_F(WireWatchTest, NoPsnIsLeftOut) {
  send(us(0), 0);
  expect_broken("left out a PSN", [&] { send(us(0), 2); });
}

TEST_F(WireWatchTest, WhatIsAcknowledgedHasArrived) {
  send(us(0), 0, Operation::send_only);
  send(us(0), 1, Operation::send_only);
  watch.request_arrived(0, packet(Operation::send_only, 1), 3);
  expect_broken("acknowledged what had not arrived", [&] { answer(1, 1, 3); });
  watch.request_arrived(0, packet(Operation::send_only, 0), 3);
  answer(1, 1, 3);
}

TEST_F(WireWatchTest, CreditsAreTheReceivesThatArePosted) {
  send(us(0), 0, Operation::send_only);
  watch.request_arrived(0, packet(Operation::send_only, 0), 4);
  answer(0, 3, 4);
  expect_broken("more receives than it had", [&] { answer(0, 4, 4); });
  expect_broken("told of 2 receives and had 3", [&] { answer(0, 2, 4); });
  expect_broken("told of no credits", [&] { answer(0, 31, 4); });
}

TEST_F(WireWatchTest, SharedReceivesAreNoCredits) {
  watch.connect(1, {.name = "other", .first = Psn(100), .takes_shared_receives = true});
  watch.request_arrived(1, packet(Operation::write_only, 0), 4);
  watch.answer_left(1, answer(0, AckKind::ack, 31), 4);
  expect_broken("told of shared receives",
                [&] { watch.answer_left(1, answer(0, AckKind::ack, 4), 4); });
}

}  // namespace
}  // namespace tulle::scenarios
