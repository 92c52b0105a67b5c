#pragma once

// A device in this process, for tests: connections between sockets, which carry writes at once, and
// queues for datagrams that send nothing. A test may also say what a peer never says.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "shim/rsockets/protocol/peer_table.h"
#include "shim/rsockets/sockets/device.h"

namespace tulle::rsockets {

class FakeConnection;

// All connections of a device share this. One lock guards it and all of them.
struct FakeNetwork {
  std::atomic<bool> accepts_slowly = false;    // an answer takes a second, or until this is false
  std::atomic<bool> confirms_nothing = false;  // an answer waits until a test calls confirm()
  std::mutex mutex;
  std::map<std::uint16_t, FakeConnection*> listeners;  // by port
  std::map<std::uint32_t, std::span<std::byte>> memory;
  std::uint32_t last_key = 0;
  std::vector<FakeConnection*> connections;  // in the order in which they were made
};

class FakeRegion final : public MemoryRegion {
 public:
  FakeRegion(FakeNetwork& network, std::span<std::byte> memory) : network_(network) {
    const std::lock_guard guard(network.mutex);
    key_ = ++network.last_key;
    network.memory[key_] = memory;
  }
  ~FakeRegion() override {
    const std::lock_guard guard(network_.mutex);
    network_.memory.erase(key_);
  }
  std::uint32_t local_key() const override { return key_; }
  std::uint32_t remote_key() const override { return key_; }

 private:
  FakeNetwork& network_;
  std::uint32_t key_ = 0;
};

// Completions, and a descriptor that is readable once there is one after arm().
class FakeCompletions {
 public:
  FakeCompletions() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~FakeCompletions() { ::close(fd_); }

  int fd() const { return fd_; }
  void arm() { is_armed_ = true; }
  void push(const Completion& completion) {
    waiting_.push_back(completion);
    if (!std::exchange(is_armed_, false)) return;
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(fd_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  int poll(std::span<Completion> out) {
    int count = 0;
    for (Completion& each : out) {
      if (waiting_.empty()) break;
      each = waiting_.front();
      waiting_.pop_front();
      ++count;
    }
    return count;
  }
  bool take_events() const {
    std::uint64_t ignored = 0;
    return ::read(fd_, &ignored, sizeof ignored) > 0;
  }

 private:
  int fd_;
  bool is_armed_ = false;
  std::deque<Completion> waiting_;
};

class FakeConnection final : public Connection {
 public:
  explicit FakeConnection(FakeNetwork& network)
      : network_(network), events_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE)) {
    network_.connections.push_back(this);
  }
  ~FakeConnection() override {
    close();
    const std::lock_guard guard(network_.mutex);
    std::erase(network_.connections, this);
    std::erase_if(network_.listeners, [this](const auto& each) { return each.second == this; });
    ::close(events_fd_);
  }

  // A test calls this to show the peer a message, or another completion.
  void hear(const Completion& completion) {
    const std::lock_guard guard(network_.mutex);
    completions_.push(completion);
  }
  void hear(std::uint32_t immediate, std::uint32_t bytes) {
    hear({.is_receive = true,
          .succeeded = true,
          .is_write = true,
          .immediate = immediate,
          .bytes = bytes});
  }
  // The peer confirms the answer to its request.
  void confirm() {
    const std::lock_guard guard(network_.mutex);
    results_.push_back(0);
    put_event();
  }
  bool is_stopped() const { return is_stopped_; }

  int bind(const sockaddr_storage& address) override {
    local_ = address;
    return 0;
  }
  int listen(int) override {
    const std::lock_guard guard(network_.mutex);
    network_.listeners[port_of(local_)] = this;
    return 0;
  }
  int take_request(std::unique_ptr<Connection>& out) override {
    const std::lock_guard guard(network_.mutex);
    if (requests_.empty()) return EAGAIN;
    take_event();
    out = std::move(requests_.front());
    requests_.pop_front();
    return 0;
  }
  int resolve_address(const sockaddr_storage& destination, int) override {
    remote_ = destination;
    return 0;
  }
  int resolve_route(int) override { return 0; }
  int use_route(std::span<const std::byte>) override { return 0; }
  int connect(std::span<const std::byte> own_data) override {
    const std::lock_guard guard(network_.mutex);
    const auto listener = network_.listeners.find(port_of(remote_));
    if (listener == network_.listeners.end()) return ECONNREFUSED;
    auto request = std::make_unique<FakeConnection>(network_);
    request->peer_data_.assign(own_data.begin(), own_data.end());
    request->peer_ = this;
    listener->second->requests_.push_back(std::move(request));
    listener->second->put_event();
    return EAGAIN;
  }
  int accept(std::span<const std::byte> own_data) override {
    for (int i = 0; i < 1'000 && network_.accepts_slowly; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const std::lock_guard guard(network_.mutex);
    peer_->peer_ = this;
    peer_->peer_data_.assign(own_data.begin(), own_data.end());
    peer_->results_.push_back(0);
    peer_->put_event();
    return network_.confirms_nothing ? EAGAIN : 0;
  }
  void reject() override {
    const std::lock_guard guard(network_.mutex);
    peer_->results_.push_back(ECONNREFUSED);
    peer_->put_event();
    peer_ = nullptr;
  }
  int finish() override {
    const std::lock_guard guard(network_.mutex);
    if (results_.empty()) return EAGAIN;
    take_event();
    const int result = results_.front();
    results_.pop_front();
    return result;
  }
  int events_fd() const override { return events_fd_; }
  std::span<const std::byte> peer_data() const override { return peer_data_; }
  bool is_over() const override { return is_over_; }
  const sockaddr_storage& local_address() const override { return local_; }
  const sockaddr_storage& peer_address() const override { return remote_; }
  int set_reuse_address(bool) override { return 0; }
  int set_only_ipv6(bool) override { return 0; }
  std::vector<std::byte> route() const override { return {}; }
  int path_mtu_bytes() const override { return 0; }

  int open_queue_pair(SocketSizes&) override {
    has_queue_pair_ = true;
    return 0;
  }
  bool has_queue_pair() const override { return has_queue_pair_; }
  void close() override {
    const std::lock_guard guard(network_.mutex);
    if (peer_ == nullptr) return;
    peer_->is_over_ = true;
    peer_->results_.push_back(0);
    peer_->put_event();
    peer_->peer_ = nullptr;
    peer_ = nullptr;
  }
  void stop() override {
    const std::lock_guard guard(network_.mutex);
    is_stopped_ = true;
    completions_.push({.is_receive = true});
  }
  int post(const StreamWrite& write, std::uint32_t) override {
    const std::lock_guard guard(network_.mutex);
    const bool arrives = peer_ != nullptr && !peer_->is_stopped_ && place(write);
    completions_.push({.work_id = write.work_id, .succeeded = arrives});
    if (!arrives || !write.has_immediate) return 0;
    peer_->completions_.push({.is_receive = true,
                              .succeeded = true,
                              .is_write = true,
                              .immediate = write.message,
                              .bytes = static_cast<std::uint32_t>(write.bytes.size())});
    return 0;
  }
  int post_receives(std::uint32_t) override { return 0; }

  int register_memory(std::span<std::byte> memory, bool,
                      std::unique_ptr<MemoryRegion>& out) override {
    out = std::make_unique<FakeRegion>(network_, memory);
    return 0;
  }
  int poll(std::span<Completion> out) override {
    const std::lock_guard guard(network_.mutex);
    return completions_.poll(out);
  }
  void arm() override {
    const std::lock_guard guard(network_.mutex);
    completions_.arm();
  }
  int completion_fd() const override { return completions_.fd(); }
  bool take_events() override { return completions_.take_events(); }

 private:
  static std::uint16_t port_of(const sockaddr_storage& address) {
    return PeerKey::of(reinterpret_cast<const sockaddr&>(address)).port;
  }
  void put_event() const {
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(events_fd_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  void take_event() const {
    std::uint64_t ignored = 0;
    EXPECT_EQ(::read(events_fd_, &ignored, sizeof ignored), static_cast<ssize_t>(sizeof ignored));
  }
  // Returns false if the peer has no such memory.
  bool place(const StreamWrite& write) {
    if (write.bytes.empty()) return true;
    const auto memory = network_.memory.find(write.key);
    if (memory == network_.memory.end()) return false;
    const std::uint64_t offset =
        write.address - reinterpret_cast<std::uint64_t>(memory->second.data());
    if (offset + write.bytes.size() > memory->second.size()) return false;
    std::memcpy(memory->second.data() + offset, write.bytes.data(), write.bytes.size());
    return true;
  }

  FakeNetwork& network_;
  int events_fd_;
  FakeConnection* peer_ = nullptr;
  std::deque<std::unique_ptr<Connection>> requests_;
  std::deque<int> results_;  // of calls under way, and of events
  std::vector<std::byte> peer_data_;
  FakeCompletions completions_;
  sockaddr_storage local_ = {};
  sockaddr_storage remote_ = {};
  bool has_queue_pair_ = false;
  bool is_stopped_ = false;
  bool is_over_ = false;
};

class FakeHandle final : public AddressHandle {
 public:
  explicit FakeHandle(std::atomic<std::size_t>& count) : count_(count) { ++count_; }
  ~FakeHandle() override { --count_; }

 private:
  std::atomic<std::size_t>& count_;
};

// How the device finds the ways to peers.
struct FakeWays {
  std::atomic<bool> are_slow = false;  // each takes a second, or until this is false
  std::atomic<bool> are_unknown = false;
  std::atomic<std::size_t> asked = 0;
};

class FakeDatagrams final : public DatagramQueue {
 public:
  FakeDatagrams(FakeNetwork& network, FakeWays& ways, std::atomic<std::size_t>& handles)
      : network_(network), ways_(ways), handles_(handles) {}
  std::uint32_t qp_number() const override { return 0x11; }
  std::size_t mtu_bytes() const override { return 1024; }
  int make_handle(const sockaddr_storage&, std::unique_ptr<AddressHandle>& out) override {
    ++ways_.asked;
    for (int i = 0; i < 1'000 && ways_.are_slow; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (ways_.are_unknown) return EHOSTUNREACH;
    out = std::make_unique<FakeHandle>(handles_);
    return 0;
  }
  int post_send(std::uint64_t work_id, std::span<const std::byte>, std::uint32_t,
                const AddressHandle&, std::uint32_t) override {
    completions_.push({.work_id = work_id, .succeeded = true});
    return 0;
  }
  int post_receive(std::uint64_t, std::span<std::byte>, std::span<std::byte>,
                   std::uint32_t) override {
    return 0;
  }
  int register_memory(std::span<std::byte> memory, bool,
                      std::unique_ptr<MemoryRegion>& out) override {
    out = std::make_unique<FakeRegion>(network_, memory);
    return 0;
  }
  int poll(std::span<Completion> out) override { return completions_.poll(out); }
  void arm() override { completions_.arm(); }
  int completion_fd() const override { return completions_.fd(); }
  bool take_events() override { return completions_.take_events(); }
  void close() override {}

 private:
  FakeNetwork& network_;
  FakeWays& ways_;
  std::atomic<std::size_t>& handles_;
  FakeCompletions completions_;
};

class FakeDevice final : public Device {
 public:
  // It stays while the process runs, since the service's thread may hold a socket for a moment
  // after a test has ended.
  static FakeDevice& instance() {
    static auto* device = new FakeDevice;
    return *device;
  }

  int create_connection(int, std::unique_ptr<Connection>& out) override {
    const std::lock_guard guard(network.mutex);
    out = std::make_unique<FakeConnection>(network);
    return 0;
  }
  int create_datagram_queue(const sockaddr_storage&, const SocketSizes&,
                            std::unique_ptr<DatagramQueue>& out) override {
    if (when_a_queue_is_made) when_a_queue_is_made();
    out = std::make_unique<FakeDatagrams>(network, ways, handles);
    return 0;
  }
  int kernel_socket(int domain) override { return ::socket(domain, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

  FakeNetwork network;
  FakeWays ways;
  std::atomic<std::size_t> handles = 0;  // address handles that exist
  std::function<void()> when_a_queue_is_made;
};

}  // namespace tulle::rsockets
