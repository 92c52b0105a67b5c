#pragma once

// A datagram service serves the programs that send and receive management datagrams at a port, as a
// kernel's MAD layer does. Agents register for classes and methods, transaction IDs name the agent,
// answers find their questions, and a question without an answer is repeated and then comes back.
// The service is a state machine without input or output.

#include <array>
#include <bitset>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/time.h"
#include "management/packet.h"
#include "management/rmpp.h"

namespace tulle::management {

// A program that has opened the port, as the driver numbers it.
using ClientId = std::uint32_t;

// A registration says which datagrams an agent gets. Without methods, the agent sends questions and
// gets their answers. With methods, it also gets the questions of others that have these methods.
struct Registration {
  std::uint8_t management_class = 0;
  std::uint8_t class_version = 0;
  std::uint32_t oui = 0;  // 24 bits; of a vendor's class from 0x30 on
  std::bitset<128> methods;
  // The service cuts the agent's long datagrams into segments, and puts those of others together
  // (management/rmpp.h). Otherwise the agent does so itself.
  bool has_transactions = false;
};

class DatagramService {
 public:
  static constexpr std::uint32_t agents_of_client_max = 32;
  // Questions of one client that wait for their answers. A kernel has no such limit.
  static constexpr std::size_t questions_of_client_max = 4'096;
  // Transactions of many packets under way. One more is refused by silence, and its sender tries
  // again.
  static constexpr std::size_t transactions_max = 256;
  // Bytes of all transactions under way, which bounds what peers and programs can make us keep.
  static constexpr std::size_t transaction_bytes_max = 128 << 20;

  struct Question {
    std::uint32_t agent = 0;
    Packet packet;                 // its first 256 bytes
    std::vector<std::byte> whole;  // of a transaction of many packets: all bytes
    Time timeout;                  // of one try; zero: no answer is expected
    std::uint32_t retries = 0;
  };
  struct Delivery {
    ClientId client = 0;
    std::uint32_t agent = 0;
    bool has_timed_out = false;  // the datagram is the client's own, which got no answer
    Packet packet;
    std::vector<std::byte> whole;  // all bytes, if the datagram came in segments
  };
  enum class Refusal : std::uint8_t {
    none,
    taken,          // another agent has the class and one of these methods
    no_room,        // the client has as many agents as it may have
    unknown_agent,  // the client has no such agent
  };

  // Registers an agent and returns its number within the client, from 0 on.
  struct Registered {
    Refusal refusal = Refusal::none;
    std::uint32_t agent = 0;
  };
  Registered add(ClientId client, const Registration& registration);
  Refusal remove(ClientId client, std::uint32_t agent);
  // Forgets a client with all its agents and questions.
  void remove_client(ClientId client);

  // Sends a client's datagram, and keeps it until its answer comes.
  Refusal send(Time now, ClientId client, Question question);
  // Finds the agent that a datagram from the network is for. Returns nothing if there is none, or
  // if it is a part of a longer one.
  std::optional<Delivery> receive(Time now, const Packet& packet);
  // Returns the next datagram that is to be sent into the network.
  std::optional<Packet> take_packet();

  // Returns when the time of a question or transaction is over; never if none waits.
  Time next_timeout() const;
  // Sends questions again whose time is over. Returns the next one that has been sent as often as
  // it may.
  std::optional<Delivery> expire(Time now);

 private:
  struct Agent {
    ClientId client = 0;
    std::uint32_t number = 0;
    Registration registration;
  };
  struct Waiting {
    std::uint32_t agent_key = 0;
    Packet packet;
    Time timeout;
    Time due;
    std::uint32_t retries = 0;
  };

  using Waitings = std::deque<Waiting>;

  Waitings::iterator question_of(const Packet& answer);
  std::optional<std::uint32_t> agent_for(const Packet& packet);
  std::optional<Delivery> deliver(const Packet& packet, std::vector<std::byte> whole);
  std::optional<Delivery> receive_segment(Time now, const Packet& packet);
  std::optional<std::uint32_t> key_of(ClientId client, std::uint32_t agent) const;
  void forget(std::uint32_t key);
  std::size_t waiting_of(ClientId client) const;
  std::size_t transaction_bytes() const;

  std::map<std::uint32_t, Agent> agents_;  // by the upper half of their transaction IDs
  Waitings waiting_;
  std::deque<RmppSender> senders_;
  std::deque<RmppReceiver> receivers_;
  std::deque<Packet> outgoing_;
  std::uint32_t next_key_ = 1;
};

}  // namespace tulle::management
