#pragma once

// The processes of a fabric that is spread over machines speak to each other by tunnels. Packets
// and credits pass through them that cross the cables between machines, and each process tells the
// others what its own ports are like.
//
// This is a state machine without input or output. The driver carries the datagrams, which may be
// lost, come twice or out of order.
//
// Each process tells the others several times a second that it is there. If one is silent for a
// while, the cables to its machine are as if they had been cut.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/time.h"
#include "fabric/machines/tunnel_format.h"
#include "fabric/subnet.h"
#include "fabric/subnet_traffic.h"

namespace tulle::fabric {

class Tunnels final : public SubnetTraffic::Carrier {
 public:
  static constexpr Time between_hellos = Time::milliseconds(100);
  // A machine that says nothing for so long is gone.
  static constexpr Time silence_max = Time::seconds(1);
  // Packets with data wait if so many datagrams do.
  static constexpr std::size_t outgoing_max = 256;
  // Further datagrams are discarded, and counted, if so many wait.
  static constexpr std::size_t outgoing_most = 8'192;

  struct Settings {
    std::vector<std::uint32_t> machines;  // by node: the machine that has it (placement.h)
    std::uint32_t count = 0;              // of machines, at most machines_max
    std::uint32_t own = 0;                // the number of this one
    std::uint64_t session = 0;            // a random number that nobody else knows
    // The longest datagram, at least the usual one: longer ones are sent as pieces.
    std::size_t datagram_bytes = tunnel_datagram_bytes;
  };
  // Returns what the subnet of this machine's process is told.
  static std::vector<bool> elsewhere(const Settings& settings);

  // The subnet and its traffic must outlive this object.
  Tunnels(Time now, Settings settings, Subnet& subnet, SubnetTraffic& traffic);

  // Takes a datagram that came from the address of a machine.
  void receive(Time now, std::uint32_t machine, std::span<const std::byte> datagram);
  // Sends the datagrams that the subnet has for other machines, and tells these what has changed at
  // the ports here.
  void follow();
  // Does what is due.
  void run(Time now);
  // Returns when run() must be called, or waiting(), although nothing has happened.
  Time next_event() const { return has_credits_ ? Time::zero() : next_hello_; }
  void rebase(Time by);

  struct Outgoing {
    std::uint32_t machine = 0;
    std::vector<std::byte> datagram;
  };
  // Returns the datagrams that wait to be sent. pop() removes the first ones.
  const std::deque<Outgoing>& waiting();
  void pop(std::size_t count = 1) {
    outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  enum class State : std::uint8_t {
    own,
    silent,         // nothing received for a while
    heard,          // all is well
    deaf,           // it is received, and does not receive this one
    other_version,  // its process speaks another version of these datagrams
    other_fabric,   // its process has another topology, or other machines
  };
  State state(std::uint32_t machine) const;
  // Returns true, once, if something has come besides packets with data and their credits, so that
  // the subnet has something to do.
  bool take_news() { return std::exchange(has_news_, false); }
  std::uint32_t machine_of(std::uint32_t node) const { return settings_.machines[node]; }

  struct Counters {
    std::uint64_t received = 0;  // datagrams
    std::uint64_t sent = 0;
    std::uint64_t foreign = 0;  // not from a process of this fabric, or from an earlier life of it
    std::uint64_t late = 0;     // others that were sent later had come before
    std::uint64_t invalid = 0;  // damaged, or about nodes that the sender does not have
    std::uint64_t discarded = 0;   // too many waited
    std::uint64_t incomplete = 0;  // pieces that others should have preceded
  };
  const Counters& counters() const { return counters_; }

  // Carrier
  bool has_room(std::uint32_t) const override { return outgoing_.size() < outgoing_max; }
  void carry(const SubnetTraffic::Crossing& crossing) override;
  void tell(std::uint32_t link, port::CreditUpdate update, std::uint32_t total_sent) override;

 private:
  // What has arrived of a datagram that goes as pieces. It ends if anything comes in between.
  struct Pieces {
    std::vector<std::byte> body;
    std::size_t whole = 0;       // bytes that it will have; 0: none arrives
    std::uint32_t sequence = 0;  // of the last piece
  };
  struct Peer {
    std::uint64_t session = 0;  // it has shown that it knows this process's
    std::uint64_t claimed = 0;  // in its last hello
    Time heard_at;
    Time hears_at;                  // when it last confirmed that it receives
    bool was_excused = false;       // since then, for a time in which this process was stopped
    Time refused_at;                // when it last showed to be of another version or fabric
    Time hello_at = Time::never();  // when a hello was sent last
    State state = State::silent;
    std::uint32_t sent = 0;            // sequence of the last datagram
    std::uint32_t received = 0;        // sequence of the newest datagram
    std::vector<std::uint32_t> links;  // that lead to its nodes
    // The fabric's own managers that are at its nodes.
    struct Manager {
      std::uint32_t node = 0;
      std::uint16_t lid = 0;  // as it was told last
    };
    std::vector<Manager> managers;
    std::vector<CreditRecord> credits;
    Pieces pieces;           // of the datagram that arrives
    std::size_t untold = 0;  // ports from this one on have not been told to it
  };
  struct PortAt {
    std::uint32_t node = 0;
    std::uint8_t port = 0;
  };

  std::vector<std::byte> begin(std::uint32_t machine, TunnelKind kind);
  void send(std::uint32_t machine, std::vector<std::byte> datagram);
  void send_pieces(std::uint32_t machine, std::span<const std::byte> datagram);
  void say_hello(Time now, std::uint32_t machine, std::uint64_t session);
  void refuse(Time now, Peer& peer, State state);
  bool is_heard(std::uint32_t machine) const {
    return peers_[machine].state >= State::heard && peers_[machine].state <= State::deaf;
  }
  void receive_hello(Time now, std::uint32_t machine, const TunnelHeader& header,
                     std::span<const std::byte> body);
  void receive_ports(Time now, std::uint32_t machine, std::span<const std::byte> body);
  void receive_credits(Time now, std::uint32_t machine, std::span<const std::byte> body);
  void receive_piece(Time now, std::uint32_t machine, const TunnelHeader& header,
                     std::span<const std::byte> body);
  void receive_packet(Time now, std::uint32_t machine, const TunnelHeader& header,
                      std::span<const std::byte> body);
  bool leads_to(std::uint32_t link, std::uint32_t machine) const;
  std::uint32_t machine_beyond(std::uint32_t link) const;
  void lose(Time now, std::uint32_t machine);
  void send_crossing(const Subnet::Crossing& crossing);
  void look_for_silence(Time now);
  void flush_credits(std::uint32_t machine);
  void tell_ports(std::uint32_t machine, std::span<const PortRecord> records);
  void tell_changes();
  void tell_untold(std::uint32_t machine);
  void tell_cables(std::uint32_t machine);

  const Settings settings_;
  Subnet& subnet_;
  SubnetTraffic& traffic_;
  const std::uint32_t digest_;
  const std::vector<std::uint32_t> parts_;  // connected parts, by node
  std::vector<Peer> peers_;                 // by machine; this one's own is not used
  std::vector<PortAt> ports_;               // of the nodes here
  std::vector<PortRecord> told_;            // by their order
  std::deque<Outgoing> outgoing_;
  bool has_credits_ = false;  // of a peer, that have not become a datagram
  bool has_news_ = false;
  Time next_hello_;
  Time run_at_;
  Counters counters_;
};

}  // namespace tulle::fabric
