// Code that all sockets share: the table of sockets, the defaults, waiting, and registered memory.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "os/cancellation.h"
#include "shim/rsockets/sockets/socket.h"

namespace tulle::rsockets {

namespace {

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<int, std::shared_ptr<Socket>> sockets;
};
Table& table() { return of_process<Table>(); }

// rsocket(7): a file holds one number. A file that is missing or holds no number changes nothing.
std::uint32_t configured(const char* name, std::uint32_t value) {
  std::ifstream file(std::string("/etc/rdma/rsocket/") + name);
  std::uint32_t found = 0;
  return file >> found ? found : value;
}

SocketSettings read_settings() {
  SocketSettings settings;
  settings.receive_buffer_bytes =
      std::max(configured("mem_default", settings.receive_buffer_bytes), 2u);
  settings.send_buffer_bytes = configured("wmem_default", settings.send_buffer_bytes);
  if (settings.send_buffer_bytes < send_low_water_bytes) {
    settings.send_buffer_bytes = 2 * send_low_water_bytes;
  }
  settings.send_queue = std::min(configured("sqsize_default", settings.send_queue), queue_max);
  settings.receive_queue =
      std::min(configured("rqsize_default", settings.receive_queue), queue_max);
  settings.inline_bytes = std::min(configured("inline_default", settings.inline_bytes), queue_max);
  settings.maps = configured("iomap_size", settings.maps);
  settings.polling = std::chrono::microseconds(configured("polling_time", 10));
  settings.wake_up = std::chrono::milliseconds(configured("wake_up_interval", 500));
  return settings;
}

}  // namespace

const SocketSettings& default_settings() {
  static const SocketSettings settings = read_settings();
  return settings;
}

void add_socket(std::shared_ptr<Socket> socket) {
  Table& all = table();
  const std::lock_guard guard(all.mutex);
  const int fd = socket->fd();
  all.sockets[fd] = std::move(socket);
}

std::shared_ptr<Socket> find_socket(int fd) {
  Table& all = table();
  const std::shared_lock guard(all.mutex);
  const auto found = all.sockets.find(fd);
  return found != all.sockets.end() ? found->second : nullptr;
}

std::shared_ptr<Socket> remove_socket(int fd) {
  Table& all = table();
  const std::lock_guard guard(all.mutex);
  const auto found = all.sockets.find(fd);
  if (found == all.sockets.end()) return nullptr;
  std::shared_ptr<Socket> socket = std::move(found->second);
  all.sockets.erase(found);
  return socket;
}

int Sleepers::sleep(std::unique_lock<std::mutex>& lock, int fd,
                    const std::function<void()>& take_events) {
  // A thread that sleeps already has left its wait by a jump from a signal handler.
  const std::thread::id self = std::this_thread::get_id();
  if (has_one_on_descriptor() && on_descriptor_ != self) {
    const CancellationPoint point;
    changed_.wait(lock);
    return 0;
  }
  // The thread may be cancelled while it waits.
  struct Place {
    Sleepers& sleepers;
    std::unique_lock<std::mutex>& lock;
    ~Place() {
      if (!lock.owns_lock()) lock.lock();
      sleepers.on_descriptor_ = {};
      sleepers.changed_.notify_all();
    }
  };
  on_descriptor_ = self;
  const Place place{*this, lock};
  lock.unlock();
  const int error = wait_readable(fd);
  lock.lock();
  take_events();
  return error;
}

int RegisteredBuffer::create(QueuePair& queue_pair, std::size_t bytes, bool peer_writes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t whole = (bytes + page - 1) / page * page;
  data_ = static_cast<std::byte*>(std::aligned_alloc(page, whole));
  if (data_ == nullptr) return ENOMEM;
  bytes_ = bytes;
  std::fill_n(data_, whole, std::byte{0});
  return queue_pair.register_memory({data_, bytes}, peer_writes, region_);
}

void RegisteredBuffer::reset() {
  region_.reset();
  std::free(data_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace tulle::rsockets
