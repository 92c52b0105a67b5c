#pragma once

// How the two ends of a TCP connection agree on what an iWARP stream is: a request, a reply (RFC
// 5044 7.1), and in them what RFC 6581 adds: how many READs either end takes (IRD) and has
// outstanding (ORD), and whether the starting end says that it is ready before the other may send.
//
// Without input or output: bytes to send are asked for, what has come is handed in. Simulated queue
// pairs are connected without it, as theirs always are; it is for streams of real bytes.
//
// Markers: never asked for; a peer that asks for them is refused, which RFC 5044 4.3 does not
// foresee (a sender has to be able to insert them): Linux's siw and adapters do not ask.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "wire/mpa.h"
#include "wire/rdmap.h"

namespace tulle::transport::iwarp {

class MpaSetup {
 public:
  enum class Role : std::uint8_t { initiator, responder };
  enum class State : std::uint8_t {
    waits,        // for the peer's frame
    established,  // the stream of FPDUs begins with the byte that is not taken
    refused,      // by either end; a responder's reply, if there is one, still has to be sent
  };
  // What this end wants.
  struct Offer {
    bool crc = true;
    bool enhanced = true;  // revision 2; else revision 1, of RFC 5044 alone
    std::uint16_t inbound_reads = 16;
    std::uint16_t outbound_reads = 16;
    // Of the initiator: that it says by a WRITE or READ of no bytes that it is ready. Of the
    // responder: how it may be said.
    bool peer_to_peer = false;
    bool ready_by_write = true;
    bool ready_by_read = true;
    std::span<const std::byte> private_data = {};  // at most 508 bytes, or 512 of revision 1
  };
  // What both have agreed upon.
  struct Outcome {
    bool crc = true;
    std::uint16_t inbound_reads = 0;
    std::uint16_t outbound_reads = 0;
    // The initiator's first message, which the responder waits for before it sends; nothing: any.
    std::optional<wire::rdmap::Opcode> ready;
  };

  MpaSetup(Role role, const Offer& offer);

  State state() const { return state_; }
  // Of a connection that is established.
  const Outcome& outcome() const { return outcome_; }
  // Why it was refused; nothing: the peer said no, without a reason.
  const std::optional<wire::rdmap::TerminateCode>& error() const { return error_; }
  std::span<const std::byte> peer_private_data() const { return peer_private_data_; }

  // What is to be sent now, all of it, before anything else is.
  std::span<const std::byte> to_send() const { return to_send_; }
  void sent() { to_send_.clear(); }
  // Takes bytes of the peer's stream until its frame is whole; returns how many.
  std::size_t receive(std::span<const std::byte> bytes);

 private:
  void write_frame(bool rejected, const wire::mpa::EnhancedSetup& setup);
  void handle_frame();
  void handle_request(const wire::mpa::StartFrame& request);
  void handle_reply(const wire::mpa::StartFrame& reply);
  bool agree_as_responder(const wire::mpa::EnhancedSetup& asked, wire::mpa::EnhancedSetup& answer);
  void agree_as_initiator(const wire::mpa::EnhancedSetup& answer);
  void refuse(wire::rdmap::TerminateCode code);

  Role role_;
  Offer offer_;
  State state_ = State::waits;
  bool crc_asked_ = false;  // by the peer
  bool enhanced_ = true;
  Outcome outcome_;
  std::optional<wire::rdmap::TerminateCode> error_;
  std::vector<std::byte> private_data_;
  std::vector<std::byte> to_send_;
  std::vector<std::byte> received_;
  std::vector<std::byte> peer_private_data_;
};

}  // namespace tulle::transport::iwarp
