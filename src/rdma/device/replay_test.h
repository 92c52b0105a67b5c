#pragma once

// Puts an adapter in the place of one of two Linux kernels whose conversation was recorded. The
// adapter gets the packets that the kernel got, and its application posts what the kernel's
// application posted. The packets that it sends are compared with the kernel's: the whole UDP
// payload, byte for byte, ICRC included.
//
// Some fields are not compared, since an implementation chooses them. The recorded values are put
// in before the ICRC is computed:
// - the UDP source port (IBTA A17.4.5.2: any; Linux has one recipe, Tulle that of A17.9.1),
// - IPv4's identification, which a host's kernel counts (RFC 791),
// - BTH's MigReq (IBTA 9.2.2: says "migrated" where there is no automatic path migration; this
//   kernel's rdma_rxe leaves it 0),
// - a FETCH & ADD's compare operand, which it does not use (IBTA 9.3.5; rdma_rxe leaves anything),
// - the credits of an acknowledgement, only where the queue pair has a separate receive queue: the
//   kernel never gives any (31), as IBTA 9.7.7.2.3 wants it for shared receive queues,
// - the time of a retransmission after a timeout. It must be within IBTA's limits (9.7.6.1.3),
//   which is checked.
// An adapter chooses its keys. The keys that the kernel was told are therefore replaced, and the
// ICRC is computed anew.

#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "rdma/device/adapter.h"
#include "rdma/device/recording_test.h"

namespace tulle::device::testing {

struct Scenario {
  std::string file;  // in tests/data/captures, without ".pcap"
  Side side = Side::client;
  verbs::QpType type = verbs::QpType::rc;
  verbs::Mtu path_mtu = verbs::Mtu::b1024;
  std::vector<std::size_t> lost = {};  // frames, as in read_recording
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  // Receive requests are posted from this frame on.
  std::size_t receives_from_frame = 0;
  // A key that the kernel had not given out.
  std::optional<RemoteKey> unknown_key = {};
  // Offset in the region of the lowest address that a request names.
  std::uint64_t first_offset = 0;
  // The application binds windows and sends their keys in messages of 12 bytes: key and address.
  bool binds_windows = false;
  // The application has put the data there that READs and atomics find. Otherwise `goldops_byte`
  // defines it.
  bool application_fills = false;
  verbs::CompletionStatus last_completion = verbs::CompletionStatus::success;
  bool ends_in_error = false;

  friend std::ostream& operator<<(std::ostream& out, const Scenario& scenario) {
    return out << scenario.file << (scenario.side == Side::client ? " client" : " server");
  }
};

enum class Receives : std::uint8_t { shared, own };

class Replay {
 public:
  Replay(const Scenario& scenario, Receives receives, Time notification_interval = Time::never());
  // Replays the conversation. Ends early where the two differ. The test then looks at `adapter`.
  void run();

  const Scenario& scenario;
  Adapter adapter;
  transport::QueuePair* qp = nullptr;
  std::uint32_t compared = 0;       // packets
  std::uint32_t notifications = 0;  // congestion notifications

 private:
  struct Said {
    Datagram datagram;
    std::vector<std::byte> payload;
  };
  struct Region {
    std::uint64_t address = 0;
    std::vector<std::byte> memory;
    std::vector<std::byte> expected;
    verbs::MemoryRegion* region = nullptr;
  };
  struct ReadResult {
    std::size_t offset = 0;  // in scratch_
    std::vector<std::byte> expected;
  };

  void create();
  void connect();
  void connect_datagram();
  void create_regions();
  Region& add_region(RemoteKey recorded, std::uint64_t first, std::uint64_t end);
  void post_receives();

  void fill(const RecordedPacket& packet);
  void tell(const RecordedPacket& packet, std::size_t index);
  std::vector<std::byte> with_our_keys(const RecordedPacket& packet);
  void expect(const RecordedPacket& packet, std::size_t index);
  void post(std::size_t index);
  void bind_window(std::span<const std::byte> message);
  void compare(const RecordedPacket& recorded, Said said);
  bool pull(Said& out);
  void pull_answers();
  void advance(Time to);
  void apply(const RecordedPacket& packet);
  void check_end();
  void check_completions();
  void check_received(const verbs::Completion& completion);
  std::span<std::byte> scratch(std::size_t bytes);
  verbs::Sge sge_of(std::span<std::byte> piece) const;

  Receives receives_;
  Recording recording_;
  Time now_;
  verbs::ProtectionDomain* pd_ = nullptr;
  verbs::CompletionQueue* cq_ = nullptr;
  verbs::SharedReceiveQueue* srq_ = nullptr;
  verbs::MemoryRegion* scratch_region_ = nullptr;
  std::vector<std::byte> scratch_;  // data to send, and the destination of READs and receives
  std::size_t scratch_used_ = 0;
  std::deque<Region> regions_;
  std::map<RemoteKey, RemoteKey> our_keys_;  // by the recorded key
  std::map<RemoteKey, RemoteKey> recorded_keys_;
  std::deque<Said> answers_;
  std::vector<std::span<std::byte>> receive_buffers_;
  bool receives_posted_ = false;
  std::vector<std::size_t> received_;  // first packets of messages that take a receive request
  std::vector<ReadResult> reads_;
  std::uint32_t posted_ = 0;
  std::optional<Psn> next_post_;
  std::optional<Psn> next_told_;
  std::uint64_t write_at_ = 0;  // where the next bytes of the WRITE in progress belong
};

}  // namespace tulle::device::testing
