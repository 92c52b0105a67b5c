// Measures how an event-driven program fares, over verbs or over TCP: a client asks, a server
// answers, and both sleep in poll(2) while nothing comes. An answer is one message; or, as a
// storage target reads, a WRITE of the data and a message after it.
//
// Both processes are of this program. Over verbs it runs under `tulle run`.

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const char* what, int error = errno) {
  std::fprintf(stderr, "exchanges: %s: %s\n", what, std::strerror(error));
  std::exit(1);
}

void must(const char* what, bool is_ok) {
  if (!is_ok) die(what);
}

struct Exchange {
  std::size_t request_bytes = 0;
  std::size_t data_bytes = 0;  // that come before the answer; over verbs a WRITE
  std::size_t answer_bytes = 0;
  std::uint32_t depth = 1;  // exchanges at a time
  int count = 0;
};

// One side of a connection. A message begins with the number of its exchange, which is below the
// depth, and data ends with it.
class End {
 public:
  virtual ~End() = default;
  virtual void ask(std::uint32_t exchange) = 0;
  virtual void answer(std::uint32_t exchange) = 0;
  // Sleeps until messages have come. Returns their exchanges, or nothing if the peer has gone.
  virtual const std::vector<std::uint32_t>& await() = 0;
};

// --- verbs ---

struct Address {
  std::uint32_t qp = 0;
  ibv_gid gid{};
  std::uint64_t memory = 0;
  std::uint32_t key = 0;
};

class VerbsEnd final : public End {
 public:
  // `meet` is a socket to the peer, over which both tell their addresses.
  VerbsEnd(const Exchange& exchange, bool is_client, int meet);

  void ask(std::uint32_t exchange) override { send(exchange, exchange_.request_bytes); }
  void answer(std::uint32_t exchange) override;
  const std::vector<std::uint32_t>& await() override;

 private:
  // Each exchange has a row of memory: what is sent, what is received, and the data.
  std::size_t message_bytes() const {
    return std::max(exchange_.request_bytes, exchange_.answer_bytes);
  }
  std::size_t row_bytes() const { return 2 * message_bytes() + exchange_.data_bytes; }
  std::byte* sent(std::uint32_t exchange) { return &memory_[exchange * row_bytes()]; }
  std::byte* received(std::uint32_t exchange) { return sent(exchange) + message_bytes(); }
  std::size_t data_at(std::uint32_t exchange) const {
    return exchange * row_bytes() + 2 * message_bytes();
  }
  ibv_sge piece(std::byte* at, std::size_t bytes) const {
    return {reinterpret_cast<std::uintptr_t>(at), static_cast<std::uint32_t>(bytes), region_->lkey};
  }
  void open();
  void connect(int meet);
  void receive(std::uint32_t row);
  void post(ibv_send_wr& request);
  void send(std::uint32_t exchange, std::size_t bytes);
  void take(const ibv_wc& completion);

  Exchange exchange_;
  bool is_client_;
  int meet_;
  std::vector<std::byte> memory_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_qp* qp_ = nullptr;
  Address peer_;
  std::vector<std::uint32_t> come_;
};

VerbsEnd::VerbsEnd(const Exchange& exchange, bool is_client, int meet)
    : exchange_(exchange),
      is_client_(is_client),
      meet_(meet),
      memory_(row_bytes() * exchange.depth) {
  open();
  for (std::uint32_t row = 0; row < exchange.depth; ++row) receive(row);
  connect(meet);
}

void VerbsEnd::open() {
  ibv_device** devices = ibv_get_device_list(nullptr);
  must("ibv_get_device_list", devices != nullptr);
  must("there is no device", devices[0] != nullptr);
  context_ = ibv_open_device(devices[0]);
  must("ibv_open_device", context_ != nullptr);
  ibv_free_device_list(devices);
  pd_ = ibv_alloc_pd(context_);
  channel_ = ibv_create_comp_channel(context_);
  must("ibv_create_comp_channel", channel_ != nullptr);
  must("fcntl", fcntl(channel_->fd, F_SETFL, O_NONBLOCK) == 0);
  const int depth = static_cast<int>(exchange_.depth);
  cq_ = ibv_create_cq(context_, 4 * depth, nullptr, channel_, 0);
  must("ibv_create_cq", cq_ != nullptr);
  constexpr int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  region_ = (ibv_reg_mr)(pd_, memory_.data(), memory_.size(), access);
  must("ibv_reg_mr", region_ != nullptr);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_;
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = 2 * exchange_.depth;
  init.cap.max_recv_wr = exchange_.depth;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  qp_ = ibv_create_qp(pd_, &init);
  must("ibv_create_qp", qp_ != nullptr);
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  must("INIT",
       ibv_modify_qp(qp_, &to,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
}

void VerbsEnd::connect(int meet) {
  Address own{qp_->qp_num, {}, reinterpret_cast<std::uintptr_t>(memory_.data()), region_->rkey};
  must("ibv_query_gid", ibv_query_gid(context_, 1, 0, &own.gid) == 0);
  must("send", ::send(meet, &own, sizeof own, 0) == sizeof own);
  must("recv", recv(meet, &peer_, sizeof peer_, MSG_WAITALL) == sizeof peer_);
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = IBV_MTU_4096;
  to.dest_qp_num = peer_.qp;
  to.min_rnr_timer = 12;
  to.ah_attr.is_global = to.ah_attr.port_num = 1;
  to.ah_attr.grh.dgid = peer_.gid;
  to.ah_attr.grh.hop_limit = 64;
  must("RTR",
       ibv_modify_qp(qp_, &to,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  to.qp_state = IBV_QPS_RTS;
  to.timeout = 14;
  to.retry_cnt = to.rnr_retry = 7;
  must("RTS", ibv_modify_qp(qp_, &to,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  // The peer may send as soon as it is ready, so both wait for each other.
  char ready = 0;
  must("send", ::send(meet, &ready, 1, 0) == 1);
  must("recv", recv(meet, &ready, 1, 0) == 1);
  must("ibv_req_notify_cq", ibv_req_notify_cq(cq_, 0) == 0);
}

void VerbsEnd::receive(std::uint32_t row) {
  ibv_sge into = piece(received(row), message_bytes());
  ibv_recv_wr request{};
  request.wr_id = row;
  request.sg_list = &into;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  must("ibv_post_recv", ibv_post_recv(qp_, &request, &bad) == 0);
}

void VerbsEnd::post(ibv_send_wr& request) {
  ibv_send_wr* bad = nullptr;
  must("ibv_post_send", ibv_post_send(qp_, &request, &bad) == 0);
}

void VerbsEnd::send(std::uint32_t exchange, std::size_t bytes) {
  std::memcpy(sent(exchange), &exchange, sizeof exchange);
  ibv_sge from = piece(sent(exchange), bytes);
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = &from;
  request.num_sge = 1;
  post(request);
}

void VerbsEnd::answer(std::uint32_t exchange) {
  if (exchange_.data_bytes > 0) {
    std::byte* const data = &memory_[data_at(exchange)];
    std::memcpy(data + exchange_.data_bytes - sizeof exchange, &exchange, sizeof exchange);
    ibv_sge from = piece(data, exchange_.data_bytes);
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE;
    request.sg_list = &from;
    request.num_sge = 1;
    request.wr.rdma.remote_addr = peer_.memory + data_at(exchange);
    request.wr.rdma.rkey = peer_.key;
    post(request);
  }
  send(exchange, exchange_.answer_bytes);
}

void VerbsEnd::take(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) {
    std::fprintf(stderr, "exchanges: %s\n", ibv_wc_status_str(completion.status));
    std::exit(1);
  }
  if (completion.opcode != IBV_WC_RECV) return;
  const auto row = static_cast<std::uint32_t>(completion.wr_id);
  std::uint32_t exchange = 0;
  std::memcpy(&exchange, received(row), sizeof exchange);
  must("a message of no exchange", exchange < exchange_.depth);
  if (is_client_ && exchange_.data_bytes > 0) {
    std::byte* const end = &memory_[data_at(exchange) + exchange_.data_bytes - sizeof exchange];
    must("the data came after the answer", std::memcmp(end, &exchange, sizeof exchange) == 0);
    std::memset(end, 0xFF, sizeof exchange);
  }
  come_.push_back(exchange);
  receive(row);
}

const std::vector<std::uint32_t>& VerbsEnd::await() {
  come_.clear();
  for (;;) {
    std::array<ibv_wc, 16> completions;
    int found = 0;
    while ((found = ibv_poll_cq(cq_, completions.size(), completions.data())) > 0) {
      for (int i = 0; i < found; ++i) take(completions[i]);
    }
    must("ibv_poll_cq", found == 0);
    if (!come_.empty()) return come_;
    std::array<pollfd, 2> waiting{{{channel_->fd, POLLIN, 0}, {meet_, POLLIN, 0}}};
    must("poll", poll(waiting.data(), waiting.size(), -1) > 0);
    if (waiting[1].revents != 0) return come_;  // the peer has ended
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    must("ibv_get_cq_event", ibv_get_cq_event(channel_, &cq, &context) == 0);
    ibv_ack_cq_events(cq, 1);
    must("ibv_req_notify_cq", ibv_req_notify_cq(cq_, 0) == 0);
  }
}

// --- TCP ---

class TcpEnd final : public End {
 public:
  TcpEnd(const Exchange& exchange, bool is_client, int socket)
      : exchange_(exchange),
        socket_(socket),
        come_bytes_(is_client ? exchange.data_bytes + exchange.answer_bytes
                              : exchange.request_bytes),
        message_(come_bytes_) {
    const int yes = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    must("fcntl", fcntl(socket, F_SETFL, O_NONBLOCK) == 0);
  }

  void ask(std::uint32_t exchange) override { send(exchange, exchange_.request_bytes); }
  void answer(std::uint32_t exchange) override {
    send(exchange, exchange_.data_bytes + exchange_.answer_bytes);
  }
  const std::vector<std::uint32_t>& await() override;

 private:
  void send(std::uint32_t exchange, std::size_t bytes) {
    std::vector<std::byte>& message = outgoing_.emplace_back(bytes);
    std::memcpy(message.data(), &exchange, sizeof exchange);
    write_some();
  }
  void write_some();
  void read_some();

  Exchange exchange_;
  int socket_;
  std::size_t come_bytes_;  // of a message that comes
  std::vector<std::byte> message_;
  std::size_t read_ = 0;     // of message_
  std::size_t written_ = 0;  // of the first of outgoing_
  std::deque<std::vector<std::byte>> outgoing_;
  bool is_over_ = false;
  std::vector<std::uint32_t> come_;
};

void TcpEnd::write_some() {
  while (!outgoing_.empty()) {
    const std::vector<std::byte>& message = outgoing_.front();
    const ssize_t n = ::send(socket_, &message[written_], message.size() - written_, MSG_NOSIGNAL);
    if (n < 0) {
      is_over_ = errno != EAGAIN;
      return;
    }
    written_ += static_cast<std::size_t>(n);
    if (written_ < message.size()) continue;
    written_ = 0;
    outgoing_.pop_front();
  }
}

void TcpEnd::read_some() {
  for (;;) {
    const ssize_t n = recv(socket_, &message_[read_], message_.size() - read_, 0);
    if (n <= 0) {
      is_over_ = n == 0 || errno != EAGAIN;
      return;
    }
    read_ += static_cast<std::size_t>(n);
    if (read_ < message_.size()) continue;
    read_ = 0;
    std::uint32_t exchange = 0;
    std::memcpy(&exchange, message_.data(), sizeof exchange);
    come_.push_back(exchange);
  }
}

const std::vector<std::uint32_t>& TcpEnd::await() {
  come_.clear();
  while (come_.empty() && !is_over_) {
    pollfd waiting{socket_, POLLIN, 0};
    if (!outgoing_.empty()) waiting.events |= POLLOUT;
    must("poll", poll(&waiting, 1, -1) == 1);
    if ((waiting.revents & POLLOUT) != 0) write_some();
    if ((waiting.revents & ~POLLOUT) != 0) read_some();
  }
  return come_;
}

// --- both ---

// Returns the two ends of a TCP connection over loopback.
std::array<int, 2> connected() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  must("bind", bind(listener, at, length) == 0);
  must("listen", listen(listener, 1) == 0);
  must("getsockname", getsockname(listener, at, &length) == 0);
  const int first = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  must("connect", connect(first, at, length) == 0);
  const int second = accept(listener, nullptr, nullptr);
  must("accept", second >= 0);
  close(listener);
  return {first, second};
}

std::unique_ptr<End> make(const Exchange& exchange, bool over_tcp, bool is_client, int socket) {
  if (over_tcp) return std::make_unique<TcpEnd>(exchange, is_client, socket);
  return std::make_unique<VerbsEnd>(exchange, is_client, socket);
}

[[noreturn]] void serve(const Exchange& exchange, bool over_tcp, int socket) {
  const auto end = make(exchange, over_tcp, false, socket);
  for (;;) {
    const std::vector<std::uint32_t>& come = end->await();
    if (come.empty()) _exit(0);
    for (const std::uint32_t each : come) end->answer(each);
  }
}

// Returns the microseconds of each exchange, and how long all took.
struct Result {
  std::vector<double> microseconds;
  double seconds = 0;
};

Result run_client(const Exchange& exchange, End& end) {
  Result result;
  std::vector<Clock::time_point> asked(exchange.depth);
  const int warm_up = exchange.count / 10;
  int begun = 0;
  int done = 0;
  const auto ask = [&](std::uint32_t each) {
    if (begun == warm_up + exchange.count) return;
    ++begun;
    asked[each] = Clock::now();
    end.ask(each);
  };
  for (std::uint32_t each = 0; each < exchange.depth; ++each) ask(each);
  Clock::time_point start = Clock::now();
  while (done < begun) {
    const std::vector<std::uint32_t>& come = end.await();
    if (come.empty()) die("the server is gone", ECONNRESET);
    for (const std::uint32_t each : come) {
      const Clock::time_point now = Clock::now();
      if (++done == warm_up) start = now;
      const std::chrono::duration<double, std::micro> took = now - asked[each];
      if (done > warm_up) result.microseconds.push_back(took.count());
      ask(each);
    }
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::sort(result.microseconds.begin(), result.microseconds.end());
  return result;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app(
      "Measures exchanges of a request and an answer between two processes that sleep until "
      "something comes. Prints JSON.");
  Exchange exchange{64, 0, 64, 1, 2000};
  bool over_tcp = false;
  app.add_flag("--tcp", over_tcp, "over TCP and not over verbs");
  const CLI::Range bytes(std::size_t{4}, std::size_t{1} << 24);
  app.add_option("--request", exchange.request_bytes, "bytes of a request (64)")->check(bytes);
  app.add_option("--answer", exchange.answer_bytes, "bytes of an answer (64)")->check(bytes);
  app.add_option("--data", exchange.data_bytes, "bytes of data before an answer (0)");
  app.add_option("--depth", exchange.depth, "exchanges at a time (1)")->check(CLI::Range(1, 256));
  app.add_option("--count", exchange.count, "exchanges to measure (2000)")
      ->check(CLI::Range(10, 10'000'000));
  CLI11_PARSE(app, argc, argv);
  const auto ends = connected();
  const pid_t parent = getpid();
  const pid_t child = fork();
  must("fork", child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    close(ends[0]);
    serve(exchange, over_tcp, ends[1]);
  }
  close(ends[1]);
  const auto end = make(exchange, over_tcp, true, ends[0]);
  const Result result = run_client(exchange, *end);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const auto at = [&](double part) {
    return result.microseconds[static_cast<std::size_t>(
        static_cast<double>(result.microseconds.size() - 1) * part)];
  };
  std::printf("{\"median_us\": %.3f, \"p99_us\": %.3f, \"per_second\": %.1f}\n", at(0.5), at(0.99),
              exchange.count / result.seconds);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "exchanges: %s\n", error.what());
  return 1;
}
