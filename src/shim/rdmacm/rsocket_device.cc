// Gives rsockets a device and the connection manager, over the calls that programs have.

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "live/path/packets/kernel_socket.h"
#include "rdma/verbs/types.h"
#include "shim/rdmacm/objects.h"
#include "shim/rdmacm/rsocket_device.h"

namespace tulle::shim::rdmacm {
namespace {

using rsockets::Completion;
using rsockets::SocketSizes;

// Marks the identifier of a work request as that of a receive.
constexpr std::uint64_t receive_flag = std::uint64_t{1} << 63;
constexpr std::uint8_t retries_without_end = 7;

ibv_path_data to_path_data(const ibv_sa_path_rec& from) {
  constexpr unsigned exactly = 2u << 6;
  ibv_path_data to = {};
  to.flags = from.preference;
  to.path.dgid = from.dgid;
  to.path.sgid = from.sgid;
  to.path.dlid = from.dlid;
  to.path.slid = from.slid;
  to.path.flowlabel_hoplimit = htobe32(be32toh(from.flow_label) << 8 | from.hop_limit);
  to.path.tclass = from.traffic_class;
  to.path.reversible_numpath = static_cast<std::uint8_t>(from.reversible << 7 | 1);
  to.path.pkey = from.pkey;
  to.path.qosclass_sl = htobe16(from.sl);
  to.path.mtu = static_cast<std::uint8_t>(from.mtu | exactly);
  to.path.rate = static_cast<std::uint8_t>(from.rate | exactly);
  to.path.packetlifetime = static_cast<std::uint8_t>(from.packet_life_time | exactly);
  return to;
}

const sockaddr* as_address(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr*>(&storage);
}

class Region final : public rsockets::MemoryRegion {
 public:
  explicit Region(ibv_mr* region) : region_(region) {}
  ~Region() override { ibv_dereg_mr(region_); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::uint32_t local_key() const override { return region_->lkey; }
  std::uint32_t remote_key() const override { return region_->rkey; }

 private:
  ibv_mr* region_;
};

// The queue pair of an id.
template <typename Base>
class OnId : public Base {
 public:
  explicit OnId(Id& id) : id_(id) {}
  ~OnId() override {
    rdma_destroy_qp(&id_);
    rdma_destroy_id(&id_);
  }
  OnId(const OnId&) = delete;
  OnId& operator=(const OnId&) = delete;

  int register_memory(std::span<std::byte> memory, bool peer_writes,
                      std::unique_ptr<rsockets::MemoryRegion>& out) override {
    if (id_.pd == nullptr) return EINVAL;
    const int access = IBV_ACCESS_LOCAL_WRITE | (peer_writes ? IBV_ACCESS_REMOTE_WRITE : 0);
    ibv_mr* region = ibv_reg_mr(id_.pd, memory.data(), memory.size(), access);
    if (region == nullptr) return errno;
    out = std::make_unique<Region>(region);
    return 0;
  }

  int poll(std::span<Completion> out) override {
    std::array<ibv_wc, 16> found;
    const std::size_t max = std::min(out.size(), found.size());
    const int count = ibv_poll_cq(id_.recv_cq, static_cast<int>(max), found.data());
    for (int i = 0; i < count; ++i) {
      const ibv_wc& from = found[static_cast<std::size_t>(i)];
      Completion& to = out[static_cast<std::size_t>(i)];
      to.work_id = from.wr_id & ~receive_flag;
      to.is_receive = (from.wr_id & receive_flag) != 0;
      to.succeeded = from.status == IBV_WC_SUCCESS;
      to.is_write = from.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
      to.immediate = ntohl(from.imm_data);
      to.bytes = from.byte_len;
    }
    return count;
  }

  void arm() override {
    if (id_.recv_cq != nullptr) ibv_req_notify_cq(id_.recv_cq, 0);
  }

  int completion_fd() const override { return id_.recv_cq_channel->fd; }

  bool take_events() override {
    bool found = false;
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(id_.recv_cq_channel, &queue, &context) == 0) {
      ibv_ack_cq_events(queue, 1);
      found = true;
    }
    return found;
  }

  void close() override { rdma_destroy_qp(&id_); }

 protected:
  // Makes the queue pair with one completion queue, whose channel never blocks a reader. The
  // attributes change to what the device grants.
  int create(const SocketSizes& sizes, ibv_qp_init_attr& attributes) {
    id_.recv_cq_channel = ibv_create_comp_channel(id_.verbs);
    if (id_.recv_cq_channel == nullptr) return errno;
    id_.send_cq_channel = id_.recv_cq_channel;
    const auto entries = static_cast<int>(sizes.send_queue + sizes.receive_queue);
    id_.recv_cq =
        ibv_create_cq(id_.verbs, entries, static_cast<rdma_cm_id*>(&id_), id_.recv_cq_channel, 0);
    id_.send_cq = id_.recv_cq;
    if (id_.recv_cq == nullptr) {
      const int error = errno;
      ibv_destroy_comp_channel(id_.recv_cq_channel);
      id_.send_cq_channel = id_.recv_cq_channel = nullptr;
      return error;
    }
    fcntl(id_.recv_cq_channel->fd, F_SETFL, O_NONBLOCK);
    attributes.send_cq = attributes.recv_cq = id_.recv_cq;
    attributes.cap.max_send_wr = sizes.send_queue;
    attributes.cap.max_recv_wr = sizes.receive_queue;
    attributes.cap.max_inline_data = sizes.inline_bytes;
    attributes.sq_sig_all = 1;
    return rdma_create_qp(&id_, nullptr, &attributes) == 0 ? 0 : errno;
  }

  Id& id_;
};

class IdConnection final : public OnId<rsockets::Connection> {
 public:
  explicit IdConnection(Id& id) : OnId(id) {
    // The channel never blocks: where a socket waits, it polls the descriptor.
    fcntl(id.channel->fd, F_SETFL, O_NONBLOCK);
  }

  int bind(const sockaddr_storage& address) override {
    return result(rdma_bind_addr(&id_, const_cast<sockaddr*>(as_address(address))));
  }
  int listen(int backlog) override { return result(rdma_listen(&id_, backlog)); }
  int take_request(std::unique_ptr<Connection>& out) override {
    rdma_cm_id* request = nullptr;
    if (rdma_get_request(&id_, &request) != 0) return errno;
    out = std::make_unique<IdConnection>(Id::of(request));
    return 0;
  }

  int resolve_address(const sockaddr_storage& destination, int timeout) override {
    auto* address = const_cast<sockaddr*>(as_address(destination));
    return result(rdma_resolve_addr(&id_, nullptr, address, timeout));
  }
  int resolve_route(int timeout) override { return result(rdma_resolve_route(&id_, timeout)); }
  int use_route(std::span<const std::byte> route) override {
    auto* bytes = const_cast<std::byte*>(route.data());
    const int set = rdma_set_option(&id_, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, bytes, route.size());
    return set == 0 ? complete(id_) : errno;
  }
  int connect(std::span<const std::byte> own_data) override {
    rdma_conn_param parameters = {};
    parameters.private_data = own_data.data();
    parameters.private_data_len = static_cast<std::uint8_t>(own_data.size());
    parameters.flow_control = 1;
    parameters.retry_count = retries_without_end;
    parameters.rnr_retry_count = retries_without_end;
    return result(rdma_connect(&id_, &parameters));
  }
  int accept(std::span<const std::byte> own_data) override {
    rdma_conn_param parameters = id_.event->param.conn;
    parameters.private_data = own_data.data();
    parameters.private_data_len = static_cast<std::uint8_t>(own_data.size());
    return result(rdma_accept(&id_, &parameters));
  }
  void reject() override { rdma_reject(&id_, nullptr, 0); }

  int finish() override { return complete(id_); }
  int events_fd() const override { return id_.channel->fd; }
  std::span<const std::byte> peer_data() const override {
    if (id_.event == nullptr) return {};
    const rdma_conn_param& parameters = id_.event->param.conn;
    return {static_cast<const std::byte*>(parameters.private_data), parameters.private_data_len};
  }
  bool is_over() const override {
    return id_.event != nullptr && id_.event->event == RDMA_CM_EVENT_DISCONNECTED;
  }

  const sockaddr_storage& local_address() const override { return id_.route.addr.src_storage; }
  const sockaddr_storage& peer_address() const override { return id_.route.addr.dst_storage; }
  int set_reuse_address(bool on) override { return set_option(RDMA_OPTION_ID_REUSEADDR, on); }
  int set_only_ipv6(bool on) override { return set_option(RDMA_OPTION_ID_AFONLY, on); }
  std::vector<std::byte> route() const override {
    if (id_.route.num_paths == 0) return {};
    const ibv_path_data path = to_path_data(*id_.route.path_rec);
    const auto bytes = std::as_bytes(std::span(&path, 1));
    return {bytes.begin(), bytes.end()};
  }
  int path_mtu_bytes() const override {
    return id_.route.num_paths > 0 ? verbs::mtu_bytes(id_.route.path_rec->mtu) : 0;
  }

  int open_queue_pair(SocketSizes& sizes) override {
    const auto device_max = static_cast<std::uint32_t>(id_.device->attributes.max_qp_wr);
    const std::uint32_t max = std::min(device_max, rsockets::queue_max);
    const std::uint32_t min = std::min(rsockets::queue_min, max);
    sizes.send_queue = std::clamp(sizes.send_queue, min, max);
    sizes.receive_queue = std::clamp(sizes.receive_queue, min, max);
    ibv_qp_init_attr attributes = {};
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap.max_send_sge = 2;
    attributes.cap.max_recv_sge = 1;
    const int error = create(sizes, attributes);
    if (error == 0) sizes.inline_bytes = attributes.cap.max_inline_data;
    return error;
  }
  bool has_queue_pair() const override { return id_.qp != nullptr; }
  void stop() override { to_error(id_); }

  int post(const rsockets::StreamWrite& write, std::uint32_t local_key) override {
    ibv_sge piece = {reinterpret_cast<std::uint64_t>(write.bytes.data()),
                     static_cast<std::uint32_t>(write.bytes.size()), local_key};
    ibv_send_wr request = {};
    request.wr_id = write.work_id;
    request.sg_list = &piece;
    request.num_sge = write.bytes.empty() ? 0 : 1;
    request.opcode = write.has_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    request.send_flags = write.is_inline ? IBV_SEND_INLINE : 0;
    request.imm_data = htonl(write.message);
    request.wr.rdma.remote_addr = write.address;
    request.wr.rdma.rkey = write.key;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(id_.qp, &request, &bad);
  }

  int post_receives(std::uint32_t count) override {
    std::array<ibv_recv_wr, 32> requests = {};
    while (count > 0) {
      const std::size_t batch = std::min<std::size_t>(count, requests.size());
      for (std::size_t i = 0; i < batch; ++i) {
        requests[i].wr_id = receive_flag;
        requests[i].next = i + 1 < batch ? &requests[i + 1] : nullptr;
      }
      ibv_recv_wr* bad = nullptr;
      if (const int error = ibv_post_recv(id_.qp, requests.data(), &bad); error != 0) return error;
      count -= static_cast<std::uint32_t>(batch);
    }
    return 0;
  }

 private:
  static int result(int returned) { return returned == 0 ? 0 : errno; }
  int set_option(int option, bool on) {
    int value = on ? 1 : 0;
    return result(rdma_set_option(&id_, RDMA_OPTION_ID, option, &value, sizeof value));
  }
};

class Handle final : public rsockets::AddressHandle {
 public:
  explicit Handle(ibv_ah* handle) : handle_(handle) {}
  ~Handle() override { ibv_destroy_ah(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ibv_ah* get() const { return handle_; }

 private:
  ibv_ah* handle_;
};

class IdDatagrams final : public OnId<rsockets::DatagramQueue> {
 public:
  using OnId::OnId;

  int open(const sockaddr_storage& local, const SocketSizes& sizes) {
    live::SocketAddress any_port = from_c(as_address(local));
    const Gid own = any_port.gid();
    any_port.port = 0;
    sockaddr_storage address = {};
    any_port.copy_to(address);
    if (rdma_bind_addr(&id_, reinterpret_cast<sockaddr*>(&address)) != 0) return errno;
    if (id_.verbs == nullptr) return ENODEV;
    ibv_qp_init_attr attributes = {};
    attributes.qp_type = IBV_QPT_UD;
    attributes.cap.max_send_sge = 1;
    attributes.cap.max_recv_sge = 2;
    if (const int error = create(sizes, attributes); error != 0) return error;
    ibv_port_attr port = {};
    if (ibv_query_port(id_.verbs, id_.port_num, &port) != 0) return errno;
    mtu_bytes_ = verbs::mtu_bytes(static_cast<std::uint8_t>(port.active_mtu));
    is_infiniband_ = port.link_layer == IBV_LINK_LAYER_INFINIBAND;
    for (int i = 0; i < port.gid_tbl_len; ++i) {
      ibv_gid gid = {};
      if (ibv_query_gid(id_.verbs, id_.port_num, i, &gid) != 0) continue;
      if (std::memcmp(gid.raw, own.bytes.data(), sizeof gid.raw) != 0) continue;
      gid_index_ = static_cast<std::uint8_t>(i);
      break;
    }
    return 0;
  }

  std::uint32_t qp_number() const override { return id_.qp->qp_num; }
  std::size_t mtu_bytes() const override { return mtu_bytes_; }

  int make_handle(const sockaddr_storage& peer,
                  std::unique_ptr<rsockets::AddressHandle>& out) override {
    ibv_ah_attr attributes = {};
    attributes.port_num = id_.port_num;
    if (is_infiniband_) {
      if (const int error = find_route(peer, attributes); error != 0) return error;
    } else {
      attributes.is_global = 1;
      // With RoCE v2, an address is its GID.
      const Gid destination = from_c(as_address(peer)).gid();
      std::memcpy(attributes.grh.dgid.raw, destination.bytes.data(),
                  sizeof attributes.grh.dgid.raw);
      attributes.grh.sgid_index = gid_index_;
      attributes.grh.hop_limit = 64;
    }
    ibv_ah* handle = ibv_create_ah(id_.pd, &attributes);
    if (handle == nullptr) return errno;
    out = std::make_unique<Handle>(handle);
    return 0;
  }

  int post_send(std::uint64_t work_id, std::span<const std::byte> datagram, std::uint32_t local_key,
                const rsockets::AddressHandle& to, std::uint32_t qp_number) override {
    ibv_sge piece = {reinterpret_cast<std::uint64_t>(datagram.data()),
                     static_cast<std::uint32_t>(datagram.size()), local_key};
    ibv_send_wr request = {};
    request.wr_id = work_id;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.wr.ud.ah = static_cast<const Handle&>(to).get();
    request.wr.ud.remote_qpn = qp_number;
    request.wr.ud.remote_qkey = RDMA_UDP_QKEY;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(id_.qp, &request, &bad);
  }

  int post_receive(std::uint64_t work_id, std::span<std::byte> address_header,
                   std::span<std::byte> datagram, std::uint32_t local_key) override {
    const auto piece_of = [local_key](std::span<std::byte> memory) {
      return ibv_sge{reinterpret_cast<std::uint64_t>(memory.data()),
                     static_cast<std::uint32_t>(memory.size()), local_key};
    };
    std::array<ibv_sge, 2> pieces = {piece_of(address_header), piece_of(datagram)};
    ibv_recv_wr request = {};
    request.wr_id = receive_flag | work_id;
    request.sg_list = pieces.data();
    request.num_sge = static_cast<int>(pieces.size());
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(id_.qp, &request, &bad);
  }

 private:
  // Asks the connection manager for the way to a peer of the same subnet.
  int find_route(const sockaddr_storage& peer, ibv_ah_attr& to) {
    constexpr int milliseconds = 5'000;
    rdma_cm_id* asking = nullptr;
    if (rdma_create_id(nullptr, &asking, nullptr, RDMA_PS_UDP) != 0) return errno;
    const std::unique_ptr<rdma_cm_id, int (*)(rdma_cm_id*)> owned(asking, rdma_destroy_id);
    sockaddr_storage address = peer;
    auto* target = reinterpret_cast<sockaddr*>(&address);
    if (rdma_resolve_addr(asking, nullptr, target, milliseconds) != 0 ||
        rdma_resolve_route(asking, milliseconds) != 0) {
      return errno;
    }
    const ibv_sa_path_rec& path = *asking->route.path_rec;
    to.dlid = be16toh(path.dlid);
    to.sl = path.sl;
    return 0;
  }

  std::size_t mtu_bytes_ = 0;
  std::uint8_t gid_index_ = 0;
  bool is_infiniband_ = false;
};

class RdmacmDevice final : public rsockets::Device {
 public:
  int create_connection(int domain, std::unique_ptr<rsockets::Connection>& out) override {
    rdma_cm_id* id = nullptr;
    if (rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP) != 0) return errno;
    id->route.addr.src_storage.ss_family = static_cast<sa_family_t>(domain);
    out = std::make_unique<IdConnection>(Id::of(id));
    return 0;
  }

  int create_datagram_queue(const sockaddr_storage& local, const SocketSizes& sizes,
                            std::unique_ptr<rsockets::DatagramQueue>& out) override {
    rdma_cm_id* id = nullptr;
    if (rdma_create_id(nullptr, &id, nullptr, RDMA_PS_UDP) != 0) return errno;
    auto queue = std::make_unique<IdDatagrams>(Id::of(id));
    if (const int error = queue->open(local, sizes); error != 0) return error;
    out = std::move(queue);
    return 0;
  }

  int kernel_socket(int domain) override {
    return live::kernel_socket(domain, SOCK_DGRAM).release();
  }
};

}  // namespace

rsockets::Device& rsocket_device() {
  // Never destroyed, because sockets may outlive the end of main().
  static auto* instance = new RdmacmDevice;
  return *instance;
}

}  // namespace tulle::shim::rdmacm
