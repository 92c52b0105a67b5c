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
#include <tuple>
#include <utility>
#include <vector>

#include "base/time.h"
#include "management/packet.h"
#include "management/rmpp.h"
#include "management/waiting_questions.h"

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
  // Transactions of many packets that clients send, and that others begin with us. One more of
  // others is refused by silence, and its sender tries again. The answers to the clients' own
  // questions always have room.
  static constexpr std::size_t transactions_max = 256;
  static constexpr std::size_t transactions_of_client_max = 128;
  static constexpr std::size_t transactions_of_source_max = 16;  // that a LID has begun
  // Transactions that have ended. Their last acknowledgement may have to be sent again.
  static constexpr std::size_t finished_max = 256;
  // Bytes of all transactions under way, which bounds what peers and programs can make us keep, of
  // those that others have begun, and of those that one LID has begun.
  static constexpr std::size_t transaction_bytes_max = 128 << 20;
  static constexpr std::size_t bytes_of_client_max = transaction_bytes_max / 2;
  static constexpr std::size_t bytes_of_others_max = transaction_bytes_max / 2;
  static constexpr std::size_t bytes_of_source_max = bytes_of_others_max / 4;

  struct Question {
    std::uint32_t agent = 0;
    Packet packet;                 // its first 256 bytes
    std::vector<std::byte> whole;  // of a transaction of many packets: all bytes
    // Of one try; zero: no answer is expected. WaitingQuestions has the bounds of both.
    Time timeout;
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
    no_room,        // a bound is reached: of agents, questions or transactions
    unknown_agent,  // the client has no such agent
    too_long,       // for one packet, and it may not be a transaction of many
  };

  // Declares a client to be an opening of the port by this program. A client that is not declared
  // is an opening by itself.
  void enter(ClientId client, std::uint32_t program) { programs_[client] = program; }
  // Registers an agent and returns its number within the client, from 0 on.
  struct Registered {
    Refusal refusal = Refusal::none;
    std::uint32_t agent = 0;
  };
  Registered add(ClientId client, const Registration& registration);
  Refusal remove(ClientId client, std::uint32_t agent);
  // Forgets a client with all its agents and questions.
  void remove_client(ClientId client);

  // Returns why a long datagram could not be sent now. The question needs no `whole`, which would
  // have so many bytes.
  Refusal check_long(ClientId client, const Question& question, std::size_t bytes) const;
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
  void rebase(Time by);

 private:
  struct Agent {
    ClientId client = 0;
    std::uint32_t number = 0;
    Registration registration;
  };
  struct Sending {
    ClientId client = 0;
    RmppSender sender;
  };
  struct Receiving {
    RmppReceiver receiver;
    bool is_answer = false;    // to a question of a client
    bool is_finished = false;  // it has no bytes any more, and no place of its source
  };
  // The source's LID, the transaction ID and the class.
  using TransactionKey = std::tuple<std::uint16_t, std::uint64_t, std::uint8_t>;
  using Receivings = std::map<TransactionKey, Receiving>;
  // What is under way of one source, or of all of these.
  struct Share {
    std::size_t transactions = 0;
    std::size_t bytes = 0;
  };
  using ClassKey = std::tuple<std::uint8_t, std::uint8_t, std::uint32_t>;

  static ClassKey class_of(const Registration& registration) {
    return {registration.management_class, registration.class_version, registration.oui};
  }
  static TransactionKey transaction_of(const Packet& segment) {
    const wire::MadHeader header = header_of(segment.mad);
    return {segment.source.value, header.transaction_id, header.management_class};
  }
  ProgramId program_of(ClientId client) const;
  bool has_room_to_send(ClientId client, std::size_t bytes) const;
  bool is_transaction(std::uint32_t key, const Packet& packet) const;
  bool has_room(ClientId client, const Question& question, bool is_long, std::size_t bytes) const;
  std::optional<std::uint32_t> agent_for(const Packet& packet) const;
  std::optional<Delivery> deliver(const Packet& packet, std::vector<std::byte> whole);
  std::optional<Delivery> receive_segment(Time now, const Packet& packet);
  Receivings::iterator begin_transaction(Time now, const Packet& first);
  std::size_t room_of(const Receiving& receiving) const;
  void count(const Receiving& receiving, std::size_t bytes_before);
  void give_back_place(Receiving& receiving);
  void finish(Receivings::iterator receiving);
  Receivings::iterator end_transaction(Receivings::iterator receiving);
  std::optional<std::uint32_t> key_of(ClientId client, std::uint32_t agent) const;
  void forget(std::uint32_t key);
  std::size_t bytes_to_send() const;
  void expire_transactions(Time now);

  std::map<std::uint32_t, Agent> agents_;  // by the upper half of their transaction IDs
  std::map<std::pair<ClientId, std::uint32_t>, std::uint32_t> keys_;  // by client and number
  std::multimap<ClassKey, std::uint32_t> listeners_;                  // agents that have methods
  std::map<ClientId, ProgramId> programs_;
  WaitingQuestions waiting_;
  std::deque<Sending> senders_;
  Receivings receivers_;
  std::deque<TransactionKey> finished_;  // those that are finished, in this order
  std::size_t bytes_received_ = 0;
  Time transactions_due_ = Time::never();  // no transaction's time is over earlier
  Share others_;                           // what others have begun
  std::map<std::uint16_t, Share> of_source_;
  std::deque<Packet> outgoing_;
  std::uint32_t next_key_ = 1;
};

}  // namespace tulle::management
