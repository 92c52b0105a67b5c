#pragma once

// The set-up of an iWARP stream on a TCP connection: a request and a reply (RFC 5044 7.1). They
// also carry what RFC 6581 adds: how many READs each end takes (IRD) and has outstanding (ORD), and
// whether the initiator must say that it is ready before the responder may send.
//
// There is no input or output: the caller asks for bytes to send and hands in bytes that have come.
// This is for streams of real bytes. Simulated queue pairs are connected without it, like those of
// all transports.
//
// Markers are never asked for. A peer that asks for them is refused, which RFC 5044 4.3 does not
// foresee (a sender must be able to insert them). Linux's siw and adapters do not ask.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rdma/wire/mpa.h"
#include "rdma/wire/rdmap.h"

namespace tulle::transport::iwarp {

class MpaSetup {
 public:
  enum class Role : std::uint8_t { initiator, responder };
  enum class State : std::uint8_t {
    waits,        // waits for the peer's frame
    established,  // the stream of FPDUs begins with the first byte that receive() did not take
    refused,      // either end refused; a responder's reply, if there is one, must still be sent
  };
  // The wishes of this end.
  struct Offer {
    bool crc = true;
    bool enhanced = true;  // revision 2; false: revision 1, which is RFC 5044 alone
    std::uint16_t inbound_reads = 16;
    std::uint16_t outbound_reads = 16;
    // The initiator sets peer_to_peer if it will say by a WRITE or READ of no bytes that it is
    // ready. Either end sets the ways of saying so that it accepts.
    bool peer_to_peer = false;
    bool ready_by_write = true;
    bool ready_by_read = true;
    std::span<const std::byte> private_data = {};  // at most 508 bytes, or 512 in revision 1
  };
  // The agreement of both ends.
  struct Outcome {
    bool crc = true;
    std::uint16_t inbound_reads = 0;
    std::uint16_t outbound_reads = 0;
    // The initiator's first message, which the responder waits for before it sends. If empty, any
    // message will do.
    std::optional<wire::rdmap::Opcode> ready;
  };

  MpaSetup(Role role, const Offer& offer);

  State state() const { return state_; }
  // Valid once the state is `established`.
  const Outcome& outcome() const { return outcome_; }
  // The reason of a refusal. Empty if the peer refused without a reason.
  const std::optional<wire::rdmap::TerminateCode>& error() const { return error_; }
  std::span<const std::byte> peer_private_data() const { return peer_private_data_; }

  // Returns the bytes to send now, all of them before anything else.
  std::span<const std::byte> to_send() const { return to_send_; }
  void sent() { to_send_.clear(); }
  // Takes bytes of the peer's stream until its frame is complete. Returns how many it took.
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
  bool crc_asked_ = false;  // the peer asks for CRCs
  bool enhanced_ = true;
  Outcome outcome_;
  std::optional<wire::rdmap::TerminateCode> error_;
  std::vector<std::byte> private_data_;
  std::vector<std::byte> to_send_;
  std::vector<std::byte> received_;
  std::vector<std::byte> peer_private_data_;
};

}  // namespace tulle::transport::iwarp
