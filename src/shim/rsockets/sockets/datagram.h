#pragma once

// Datagrams over UD: the driver of shim/rsockets/protocol/datagram.h. A socket has a UDP socket,
// and a queue pair for each address of this host that it sends from. Until a peer's queue pair is
// known, datagrams to it go over UDP. The service answers datagrams that came over UDP with this
// side's queue pair.

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "shim/rsockets/protocol/datagram.h"
#include "shim/rsockets/protocol/peer_table.h"
#include "shim/rsockets/sockets/socket.h"

namespace tulle::rsockets {

class Datagram final : public Socket, public std::enable_shared_from_this<Datagram> {
 public:
  // A socket remembers so many peers. A peer takes some hundred bytes and an address handle.
  static constexpr std::size_t peers_max = 4096;

  Datagram(const SocketSettings& settings, Device& device) : Socket(settings), device_(device) {}
  ~Datagram() override;
  int open(int domain);

  int fd() const override { return udp_; }
  int bind(const sockaddr_storage& address) override;
  int listen(int) override { return EOPNOTSUPP; }
  int accept(std::shared_ptr<Socket>&) override { return EOPNOTSUPP; }
  int connect(const sockaddr_storage& address) override;
  int shutdown(int how) override;
  void close() override;
  int receive(std::span<const iovec> into, int flags, sockaddr_storage* from,
              std::size_t& bytes) override;
  int send(std::span<const iovec> from, int flags, const sockaddr_storage* to,
           std::size_t& bytes) override;
  short ready(short events) override;
  int arm() override;
  void drain() override;
  int local_name(sockaddr_storage& out) override;
  int peer_name(sockaddr_storage& out) override;
  int set_option(int level, int option, const void* value, socklen_t bytes) override;
  int get_option(int level, int option, void* value, socklen_t& bytes) override;
  int set_flags(int flags) override;
  void on_readable() override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Endpoint {
    sockaddr_storage local = {};
    std::unique_ptr<DatagramQueue> queue;
    RegisteredBuffer send_buffer;
    RegisteredBuffer receive_buffer;  // slots, and behind them one area for all address headers
    std::vector<std::uint32_t> free_slots;  // slots of the send buffer
    std::size_t data_max = 0;               // of one datagram

    ~Endpoint() {
      if (queue != nullptr) queue->close();
    }
  };
  struct Peer {
    sockaddr_storage address = {};
    Endpoint* endpoint = nullptr;
    std::unique_ptr<AddressHandle> handle;
    std::uint32_t qp_number = 0;
    bool is_looked_for = false;
    Clock::time_point look_again;  // not before, since nobody answered
  };
  using PeerHandle = std::shared_ptr<Peer>;
  struct Arrived {
    sockaddr_storage from = {};
    Endpoint* endpoint = nullptr;  // the slot's endpoint; null: the datagram came over UDP
    std::uint32_t slot = 0;
    std::span<const std::byte> data;  // in the slot
    std::vector<std::byte> bytes;
  };

  int start();
  int find_peer(const sockaddr_storage& address, PeerHandle& out);
  int local_address(const sockaddr_storage& destination, sockaddr_storage& out) const;
  int find_endpoint(const sockaddr_storage& local, Endpoint*& out);
  int create_endpoint(Endpoint& endpoint);
  int post_receive(Endpoint& endpoint, std::uint32_t slot);
  void find_way(const PeerHandle& peer);
  // Never blocks.
  int send_over_udp(const Peer& peer, std::span<const iovec> from, bool has_data,
                    std::size_t& bytes);
  // Returns true if the UDP socket can send as poll(2) has it: half of its send buffer is free.
  bool has_udp_room() const;
  int note_udp_full();
  int send_over_ud(Peer& peer, std::span<const iovec> from, std::size_t& bytes);
  void poll_completions();
  void handle_received(Endpoint& endpoint, const Completion& completion);
  void handle_udp(std::span<const std::byte> bytes, const sockaddr_storage& from);
  bool can_send() const;
  int await(Lock& lock, bool may_block, const std::function<bool()>& condition);
  void arm_all();
  void take_events();

  Device& device_;
  int udp_ = -1;
  // Readable with any of the completion channels, with news_fd_, and once the UDP socket that was
  // full has room.
  int wait_fd_ = -1;
  int news_fd_ = -1;  // readable once something came over UDP, or the socket was shut
  std::mutex mutex_;
  Sleepers sleepers_;
  bool is_armed_ = false;
  bool is_udp_full_ = false;  // a datagram of the program's found no room in the UDP socket
  bool is_started_ = false;
  bool is_shut_ = false;
  std::list<Endpoint> endpoints_;
  PeerTable<Peer> peers_{peers_max};
  PeerHandle connected_;
  std::deque<Arrived> arrived_;
};

}  // namespace tulle::rsockets
