#include "ranks/endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tulle::ranks {
namespace {

constexpr std::uint64_t staging_bytes_max = 64u << 20;  // of a rank, unless two slots take more
// Receive requests besides those of the chunks: messages that report taken chunks.
constexpr std::uint32_t spare_requests = 4;

Error failed(const char* call, int number) {
  return Error{fmt::format("{}: {}", call, std::strerror(number)), number};
}

}  // namespace

std::uint8_t ack_timeout_of(std::chrono::milliseconds timeout) {
  constexpr double attempts = 8;
  std::uint8_t exponent = 14;
  const double seconds = std::chrono::duration<double>(timeout).count() / attempts;
  while (exponent < 24 && 4.096e-6 * static_cast<double>(1u << exponent) < seconds) ++exponent;
  return exponent;
}

Memory::~Memory() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

Result<Memory> Memory::of(std::uint64_t bytes) {
  constexpr int no_file = -1;
  constexpr int kind = MAP_PRIVATE | MAP_ANONYMOUS;
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind, no_file, 0);
  if (at == MAP_FAILED) return Error{fmt::format("there is no memory for {} bytes", bytes)};
  madvise(at, bytes, MADV_HUGEPAGE);  // where there are none, small ones do
  Memory memory;
  memory.bytes_ = {static_cast<std::byte*>(at), bytes};
  return memory;
}

Result<Endpoint> Endpoint::open(const VerbsLibrary& verbs, const Plan& plan, std::uint32_t rank,
                                std::chrono::milliseconds timeout) {
  Endpoint self;
  self.verbs_ = verbs;
  self.chunk_bytes_ = plan.chunk_bytes;
  self.target_offset_ = plan.has_second_buffer ? plan.buffer_bytes : 0;
  self.ack_timeout_ = ack_timeout_of(timeout);
  ibv_device** devices = verbs.get_device_list(nullptr);
  if (devices == nullptr || devices[0] == nullptr) {
    return Error{"there is no RDMA device (see `tulle devices`)"};
  }
  self.context_ = verbs.open_device(devices[0]);
  verbs.free_device_list(devices);
  if (self.context_ == nullptr) return failed("ibv_open_device", errno);
  self.pd_ = verbs.alloc_pd(self.context_);
  if (self.pd_ == nullptr) return failed("ibv_alloc_pd", errno);
  if (verbs.query_gid(self.context_, 1, 0, &self.gid_) != 0) {
    return Error{"the device has no address (see `tulle devices`)"};
  }
  auto memory = Memory::of(plan.memory_bytes());
  if (!memory) return memory.error();
  self.memory_ = std::move(*memory);
  if (auto made = self.make_links(plan, rank); !made) return made.error();
  if (auto made = self.make_queues(); !made) return made.error();
  return self;
}

// A link leads to each rank with which this one exchanges messages by a channel, either way.
Result<void> Endpoint::make_links(const Plan& plan, std::uint32_t rank) {
  for (workload::TaskGraph::Index i = 0; i < plan.graph.size(); ++i) {
    const workload::Task& task = plan.graph[i];
    if (task.rank != rank && task.peer != rank) continue;
    const std::uint32_t peer = task.rank == rank ? task.peer : task.rank;
    const auto [found, is_new] =
        by_peer_.try_emplace({peer, task.channel}, static_cast<std::uint32_t>(links_.size()));
    if (is_new) links_.push_back({.peer = peer, .channel = task.channel});
    if (task.peer == rank && task.reduces) links_[found->second].adds = true;
  }
  const std::uint64_t adding = static_cast<std::uint64_t>(
      std::ranges::count_if(links_, [](const Link& link) { return link.adds; }));
  const auto slots = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
      staging_bytes_max / (std::max<std::uint64_t>(adding, 1) * chunk_bytes_), 2, plan.slots));
  std::uint64_t staging_bytes = 0;
  for (Link& link : links_) {
    link.slots = link.adds ? slots : plan.slots;
    link.staging = staging_bytes;
    if (link.adds) staging_bytes += std::uint64_t{slots} * chunk_bytes_;
  }
  auto staging = Memory::of(std::max<std::uint64_t>(staging_bytes, 4'096));
  if (!staging) return staging.error();
  staging_ = std::move(*staging);
  return {};
}

Result<void> Endpoint::make_queues() {
  constexpr int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  memory_region_ = verbs_.reg_mr(pd_, memory_.bytes().data(), memory_.bytes().size(), access);
  if (memory_region_ == nullptr) return failed("ibv_reg_mr", errno);
  staging_region_ = verbs_.reg_mr(pd_, staging_.bytes().data(), staging_.bytes().size(), access);
  if (staging_region_ == nullptr) return failed("ibv_reg_mr", errno);
  channel_ = verbs_.create_comp_channel(context_);
  if (channel_ == nullptr) return failed("ibv_create_comp_channel", errno);
  if (fcntl(channel_->fd, F_SETFL, O_NONBLOCK) != 0) return failed("fcntl", errno);
  // Each link has so many requests of either kind at most.
  constexpr std::size_t requests = 2 * (64 + spare_requests);
  const auto depth = static_cast<int>(links_.size() * 2 * requests);
  cq_ = verbs_.create_cq(context_, depth, nullptr, channel_, 0);
  if (cq_ == nullptr) return failed("ibv_create_cq", errno);
  completions_.resize(32);
  for (std::uint32_t i = 0; i < links_.size(); ++i) {
    if (auto made = make_queue_pair(links_[i], i); !made) return made.error();
  }
  return {};
}

Result<void> Endpoint::make_queue_pair(Link& link, std::uint32_t number) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_;
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = 2 * 64 + spare_requests;  // a WRITE and a SEND for each chunk
  init.cap.max_recv_wr = link.slots + spare_requests;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  link.qp = verbs_.create_qp(pd_, &init);
  if (link.qp == nullptr) return failed("ibv_create_qp", errno);
  by_qp_[link.qp->qp_num] = number;
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const int status = verbs_.modify_qp(
      link.qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (status != 0) return failed("ibv_modify_qp", status);
  for (std::uint32_t i = 0; i < link.slots + spare_requests; ++i) {
    if (auto posted = receive(link, std::uint64_t{number} << 32); !posted) return posted.error();
  }
  return {};
}

std::vector<Address> Endpoint::addresses() const {
  std::vector<Address> all;
  for (const Link& link : links_) {
    Address& address = all.emplace_back();
    address.peer = link.peer;
    address.channel = link.channel;
    address.qp = link.qp->qp_num;
    address.slots = link.slots;
    std::copy_n(gid_.raw, address.gid.size(), address.gid.begin());
    address.staging = reinterpret_cast<std::uintptr_t>(staging_.bytes().data()) + link.staging;
    address.target = reinterpret_cast<std::uintptr_t>(memory_.bytes().data()) + target_offset_;
    address.staging_key = staging_region_->rkey;
    address.target_key = memory_region_->rkey;
  }
  return all;
}

Result<void> Endpoint::connect(std::span<const Address> remote) {
  std::size_t connected = 0;
  for (const Address& address : remote) {
    const auto found = by_peer_.find({address.peer, address.channel});
    if (found == by_peer_.end() || address.slots == 0 || address.slots > 64) continue;
    Link& link = links_[found->second];
    if (link.remote.slots != 0) continue;
    link.remote = address;
    if (auto done = connect(link); !done) return done.error();
    ++connected;
  }
  if (connected < links_.size()) return Error{"a rank did not send its address"};
  return {};
}

Result<void> Endpoint::connect(Link& link) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_RTR;
  ibv_port_attr port{};
  const int queried = verbs_.query_port(context_, 1, &port);
  if (queried != 0) return failed("ibv_query_port", queried);
  to.path_mtu = port.active_mtu;
  to.dest_qp_num = link.remote.qp;
  to.min_rnr_timer = 12;  // 0.64 ms (IBTA table 45)
  to.ah_attr.is_global = to.ah_attr.port_num = 1;
  std::ranges::copy(link.remote.gid, to.ah_attr.grh.dgid.raw);
  to.ah_attr.grh.hop_limit = 64;
  int status =
      verbs_.modify_qp(link.qp, &to,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (status != 0) {
    return Error{fmt::format("cannot reach rank {}: {}", link.peer, std::strerror(status))};
  }
  to.qp_state = IBV_QPS_RTS;
  to.timeout = ack_timeout_;
  to.retry_cnt = to.rnr_retry = 7;
  status = verbs_.modify_qp(link.qp, &to,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  if (status != 0) return failed("ibv_modify_qp", status);
  return {};
}

// On one host a WRITE moves the bytes at once, and only the notice behind it is a packet. A WRITE
// with immediate would be packets as a whole.
Result<void> Endpoint::write(const Link& link, std::uint64_t offset, std::uint32_t bytes,
                             std::uint64_t address, std::uint32_t key, std::uint32_t told,
                             std::uint64_t request) {
  ibv_sge from{reinterpret_cast<std::uintptr_t>(&memory_.bytes()[offset]), bytes,
               memory_region_->lkey};
  ibv_send_wr notice{};
  notice.wr_id = request;
  notice.opcode = IBV_WR_SEND_WITH_IMM;
  notice.send_flags = IBV_SEND_SIGNALED;
  notice.imm_data = htonl(told);
  ibv_send_wr chunk{};
  chunk.wr_id = request;
  chunk.opcode = IBV_WR_RDMA_WRITE;
  chunk.sg_list = &from;
  chunk.num_sge = 1;
  chunk.wr.rdma.remote_addr = address;
  chunk.wr.rdma.rkey = key;
  chunk.next = &notice;
  ibv_send_wr* bad = nullptr;
  const int status = ibv_post_send(link.qp, &chunk, &bad);
  return status == 0 ? Result<void>() : failed("ibv_post_send", status);
}

Result<void> Endpoint::tell(const Link& link, std::uint32_t told, std::uint64_t request) {
  ibv_send_wr notice{};
  notice.wr_id = request;
  notice.opcode = IBV_WR_SEND_WITH_IMM;
  notice.send_flags = IBV_SEND_SIGNALED;
  notice.imm_data = htonl(told);
  ibv_send_wr* bad = nullptr;
  const int status = ibv_post_send(link.qp, &notice, &bad);
  return status == 0 ? Result<void>() : failed("ibv_post_send", status);
}

Result<void> Endpoint::receive(const Link& link, std::uint64_t request) {
  ibv_recv_wr empty{};
  empty.wr_id = request;
  ibv_recv_wr* bad = nullptr;
  const int status = ibv_post_recv(link.qp, &empty, &bad);
  return status == 0 ? Result<void>() : failed("ibv_post_recv", status);
}

Result<std::span<const ibv_wc>> Endpoint::poll() {
  const int found = ibv_poll_cq(cq_, static_cast<int>(completions_.size()), completions_.data());
  if (found < 0) return failed("ibv_poll_cq", EIO);
  const std::span<const ibv_wc> taken(completions_.data(), static_cast<std::size_t>(found));
  for (const ibv_wc& completion : taken) {
    if (completion.status == IBV_WC_SUCCESS) continue;
    return Error{fmt::format("the connection to rank {} broke: {}",
                             links_[by_qp_.at(completion.qp_num)].peer,
                             verbs_.wc_status_str(completion.status))};
  }
  return taken;
}

Result<void> Endpoint::arm() {
  const int status = ibv_req_notify_cq(cq_, 0);
  return status == 0 ? Result<void>() : failed("ibv_req_notify_cq", status);
}

void Endpoint::take_event() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (verbs_.get_cq_event(channel_, &cq, &context) == 0) verbs_.ack_cq_events(cq, 1);
}

}  // namespace tulle::ranks
