#pragma once

// What a port offers to programs that send and receive management datagrams, as a kernel's MAD layer
// does: agents that register for classes and methods, transaction IDs that name the agent, answers
// that find their questions, and time-outs with retries. It is a state machine without input or
// output.

#include <array>
#include <bitset>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/time.h"
#include "management/packet.h"

namespace tulle::management {

// A program that has opened the port, as the driver numbers it.
using ClientId = std::uint32_t;

// What an agent asks for. Without methods it sends questions and gets their answers. With methods it
// also gets the questions of others that have these methods.
struct Registration {
  std::uint8_t management_class = 0;
  std::uint8_t class_version = 0;
  std::uint32_t oui = 0;  // 24 bits; of a vendor's class from 0x30 on
  std::bitset<128> methods;

  bool operator==(const Registration&) const = default;
};

// Returns true for the classes of vendors that carry an OUI (IBTA 16.5.1).
constexpr bool has_oui(std::uint8_t management_class) {
  return management_class >= 0x30 && management_class <= 0x4F;
}

class DatagramService {
 public:
  static constexpr std::uint32_t agents_of_client_max = 32;
  // Questions of one client that wait for their answers. A kernel has no such limit.
  static constexpr std::size_t questions_of_client_max = 4'096;

  struct Question {
    std::uint32_t agent = 0;
    Packet packet;
    Time timeout;  // of one try; zero: no answer is expected
    std::uint32_t retries = 0;
  };
  struct Delivery {
    ClientId client = 0;
    std::uint32_t agent = 0;
    bool has_timed_out = false;  // the datagram is the client's own, which got no answer
    Packet packet;
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

  // Makes the datagram ready to be sent, in place, and keeps it until its answer comes.
  Refusal send(Time now, ClientId client, Question& question);
  // Finds the agent that a datagram from the network is for. Returns nothing if there is none.
  std::optional<Delivery> receive(const Packet& packet);

  // Returns when a question's time is over; never if none waits.
  Time next_timeout() const;
  struct Expired {
    bool is_retry = false;  // true: send it again; false: deliver it as timed out
    Delivery delivery;
  };
  // Returns the next question whose time is over.
  std::optional<Expired> expire(Time now);

  // True if some agent gets the questions of a subnet manager's class.
  bool serves(std::uint8_t management_class, std::uint8_t method) const;

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

  std::optional<std::uint32_t> key_of(ClientId client, std::uint32_t agent) const;
  void forget(std::uint32_t key);
  std::size_t waiting_of(ClientId client) const;

  std::map<std::uint32_t, Agent> agents_;  // by the upper half of their transaction IDs
  std::deque<Waiting> waiting_;
  std::uint32_t next_key_ = 1;
};

}  // namespace tulle::management
