// Code that all sockets share: the table of sockets, the defaults, and helpers for queues and
// buffers.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "shim/rdmacm/rsocket.h"

namespace tulle::shim::rdmacm {

using rsockets::queue_max;
using rsockets::queue_min;
using rsockets::send_low_water_bytes;

namespace {

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<int, std::shared_ptr<Socket>> sockets;
};
// Never destroyed, because the service's thread runs until the process is gone.
Table& table() {
  static auto* instance = new Table;
  return *instance;
}

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

int wait_readable(int fd) {
  pollfd waiting = {fd, POLLIN, 0};
  return poll(&waiting, 1, -1) < 0 ? errno : 0;
}

int Sleepers::sleep(std::unique_lock<std::mutex>& lock, int fd) {
  if (has_one_on_descriptor_) {
    changed_.wait(lock);
    return 0;
  }
  has_one_on_descriptor_ = true;
  lock.unlock();
  const int error = wait_readable(fd);
  lock.lock();
  has_one_on_descriptor_ = false;
  changed_.notify_all();
  return error;
}

void set_queue_sizes(const Id& id, SocketSettings& settings) {
  const auto device_max = static_cast<std::uint32_t>(id.device->attributes.max_qp_wr);
  const std::uint32_t max = std::min(device_max, queue_max);
  settings.send_queue = std::clamp(settings.send_queue, std::min(queue_min, max), max);
  settings.receive_queue = std::clamp(settings.receive_queue, std::min(queue_min, max), max);
}

int create_queue_pair(Id& id, const SocketSettings& settings, ibv_qp_init_attr& attributes) {
  // One queue serves both directions, so that a thread that polls it sees all completions.
  id.recv_cq_channel = ibv_create_comp_channel(id.verbs);
  if (id.recv_cq_channel == nullptr) return errno;
  id.send_cq_channel = id.recv_cq_channel;
  const auto entries = static_cast<int>(settings.send_queue + settings.receive_queue);
  id.recv_cq =
      ibv_create_cq(id.verbs, entries, static_cast<rdma_cm_id*>(&id), id.recv_cq_channel, 0);
  id.send_cq = id.recv_cq;
  if (id.recv_cq == nullptr) {
    const int error = errno;
    ibv_destroy_comp_channel(id.recv_cq_channel);
    id.send_cq_channel = id.recv_cq_channel = nullptr;
    return error;
  }
  fcntl(id.recv_cq_channel->fd, F_SETFL, O_NONBLOCK);
  attributes.send_cq = attributes.recv_cq = id.recv_cq;
  attributes.cap.max_send_wr = settings.send_queue;
  attributes.cap.max_recv_wr = settings.receive_queue;
  attributes.cap.max_inline_data = settings.inline_bytes;
  attributes.sq_sig_all = 1;
  return rdma_create_qp(&id, nullptr, &attributes) == 0 ? 0 : errno;
}

bool take_completion_events(ibv_comp_channel& channel) {
  bool found = false;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(&channel, &queue, &context) == 0) {
    ibv_ack_cq_events(queue, 1);
    found = true;
  }
  return found;
}

int RegisteredBuffer::create(ibv_pd* pd, std::size_t bytes, int access) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t whole = (bytes + page - 1) / page * page;
  data_ = static_cast<std::byte*>(std::aligned_alloc(page, whole));
  if (data_ == nullptr) return ENOMEM;
  std::fill_n(data_, whole, std::byte{0});
  region_ = ibv_reg_mr(pd, data_, bytes, access);
  return region_ != nullptr ? 0 : errno;
}

void RegisteredBuffer::reset() {
  if (region_ != nullptr) ibv_dereg_mr(region_);
  std::free(data_);
  region_ = nullptr;
  data_ = nullptr;
}

}  // namespace tulle::shim::rdmacm
