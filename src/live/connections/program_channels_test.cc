#include "live/connections/program_channels.h"

#include <gtest/gtest.h>

#include <utility>

#include "live/message/socket.h"

namespace tulle::live {
namespace {

class ProgramChannelsTest : public testing::Test {
 protected:
  struct Program {
    ProgramChannel& channel;
    UniqueFd events;

    bool reads() const { return static_cast<bool>(receive_message(events.get())); }
  };
  Program open(const ChannelOwner& owner = {}) {
    ChannelNumber number = 0;
    auto events = channels_.open(owner, {}, number);
    EXPECT_TRUE(events);
    return {channels_.at(number), std::move(*events)};
  }
  Endpoint& create(const Program& program) {
    return endpoints_.create(program.channel.number, PortSpace::tcp, ConnectionQpType::rc);
  }
  // A peer asks the listener for a connection.
  Endpoint& request(const Program& program, const Endpoint& listener) {
    Endpoint& made = create(program);
    made.listener = listener.id;
    channels_.tell(made, event::ConnectRequest{made.id, listener.id, false, {}, {}, {}});
    return made;
  }

  EndpointTable endpoints_{RandomSource(1)};
  ProgramChannels channels_{endpoints_};
};

TEST_F(ProgramChannelsTest, EventsOfAHeldChannelWait) {
  const Program program = open();
  const Endpoint& endpoint = create(program);
  program.channel.is_held = true;
  channels_.tell(endpoint, event::Established{endpoint.id});
  EXPECT_FALSE(program.reads());
  EXPECT_EQ(endpoint.events_sent, 0u);
  program.channel.is_held = false;
  channels_.send_waiting(program.channel);
  EXPECT_TRUE(program.reads());
  EXPECT_EQ(endpoint.events_sent, 1u);
}

TEST_F(ProgramChannelsTest, AChannelWhoseProgramDoesNotReadIsBlocked) {
  const Program program = open();
  const Endpoint& endpoint = create(program);
  EXPECT_TRUE(channels_.take_blocked().empty());
  while (program.channel.waiting.empty()) {
    channels_.tell(endpoint, event::Established{endpoint.id});
  }
  ASSERT_EQ(channels_.take_blocked().size(), 1u);
  EXPECT_TRUE(channels_.take_blocked().empty());
}

TEST_F(ProgramChannelsTest, ARequestCountsWithItsListenerUntilItIsTaken) {
  const Program program = open();
  const Endpoint& listener = create(program);
  request(program, listener);
  Endpoint& second = request(program, listener);
  EXPECT_EQ(listener.events_sent, 2u);
  EXPECT_EQ(channels_.untaken_requests(listener), 2u);
  channels_.note_taken(program.channel, 1);
  EXPECT_EQ(channels_.untaken_requests(listener), 1u);
  channels_.forget_request(second);
  channels_.forget_request(second);
  EXPECT_EQ(channels_.untaken_requests(listener), 0u);
}

TEST_F(ProgramChannelsTest, AnEmptySocketHasNoRequests) {
  const Program program = open();
  const Endpoint& listener = create(program);
  request(program, listener);
  EXPECT_TRUE(program.reads());
  EXPECT_EQ(channels_.untaken_requests(listener), 0u);
  program.channel.is_held = true;
  request(program, listener);
  EXPECT_EQ(channels_.untaken_requests(listener), 1u);
}

TEST_F(ProgramChannelsTest, WaitingRequestsOfAListenerThatIsGoneAreDropped) {
  const Program program = open();
  program.channel.is_held = true;
  const Endpoint& other = create(program);
  channels_.tell(other, event::Established{other.id});
  const EndpointId gone = create(program).id;
  const EndpointId made = request(program, *endpoints_.find(gone)).id;
  endpoints_.erase(gone);
  EXPECT_EQ(channels_.drop_waiting(program.channel, gone), std::vector{made});
  EXPECT_EQ(program.channel.waiting.size(), 1u);
}

TEST_F(ProgramChannelsTest, WhatIsGivenBackIsBounded) {
  const Program program = open();
  const std::vector<ConnectionEvent> some(2048, event::Established{});
  EXPECT_TRUE(channels_.take_back(program.channel, some));
  EXPECT_TRUE(channels_.take_back(program.channel, some));
  EXPECT_FALSE(channels_.take_back(program.channel, {event::Established{}}));
  const Program another = open();
  event::Rejected longer;
  longer.private_data.resize(2048);
  EXPECT_FALSE(channels_.take_back(another.channel, {longer}));
}

TEST_F(ProgramChannelsTest, EventsThatCommandsAskForAreBounded) {
  const Program program = open();
  program.channel.waiting.resize(4095);
  EXPECT_TRUE(channels_.may_ask_for_event(program.channel));
  program.channel.waiting.resize(4096);
  EXPECT_FALSE(channels_.may_ask_for_event(program.channel));
  EXPECT_TRUE(channels_.may_wait(program.channel, 4096));
  EXPECT_FALSE(channels_.may_wait(program.channel, 4097));
}

TEST_F(ProgramChannelsTest, EventsOfALimitedUsersChannelsAreBoundedTogether) {
  constexpr ChannelOwner user{1, 7, true};
  const Program program = open(user);
  for (int i = 0; i < 16; ++i) open(user).channel.waiting.resize(4096);
  EXPECT_FALSE(channels_.may_wait(program.channel, 1));
  const Program others = open({1, 8, true});
  EXPECT_TRUE(channels_.may_wait(others.channel, 1));
}

}  // namespace
}  // namespace tulle::live
