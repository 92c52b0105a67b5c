// An attacker does these things to the descriptors that the agent hands him: the relay of his
// datagrams, the page of his counters, the events of a channel, the ring of a capture, and the
// connection.

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/memfd.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "attack.h"

namespace hostile {

using namespace tulle::live;

namespace {

struct Held {
  std::optional<Process> process;
  std::optional<Channel> channel;
  UniqueFd capture;
  std::vector<UniqueFd> rings;

  std::vector<int> all() const {
    std::vector<int> fds;
    if (process) {
      fds.push_back(process->connection.get());
      for (const UniqueFd& fd : process->fds) fds.push_back(fd.get());
    }
    if (channel) {
      fds.push_back(channel->connection.get());
      fds.push_back(channel->events.get());
    }
    for (const UniqueFd& fd : rings) fds.push_back(fd.get());
    fds.push_back(capture.get());
    return fds;
  }
};

Held take_all(Context& context) {
  Held held;
  held.process = open_process(context);
  held.channel = open_channel(context);
  held.capture = to_agent();
  Hello message = hello(Purpose::capture);
  message.ring_bytes = 1 << 16;
  send_raw(held.capture.get(), encode(message));
  for (int i = 0; i < 2; ++i) {
    auto source = next(context, held.capture.get(), 100);
    if (!source) break;
    for (UniqueFd& fd : source->fds) held.rings.push_back(std::move(fd));
  }
  context.expect(held.process && held.channel && !held.rings.empty(),
                 "the agent does not serve the attacker, so this attack shows nothing");
  return held;
}

// The agent reads the page and the ring's owner the ring while it answers.
void ask_for_status(Context& context) {
  const UniqueFd connection = to_agent();
  send_raw(connection.get(), encode(hello(Purpose::status)));
  context.expect(next(context, connection.get(), 5'000).has_value(), "the agent does not answer");
  drain(context, connection.get());
}

bool is_memory(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

// --- memory ---

void resize_memory(Context& context, int) {
  const Held held = take_all(context);
  for (const int fd : held.all()) {
    struct stat status {};
    if (!is_memory(fd) || fstat(fd, &status) != 0) continue;
    for (const off_t size : {off_t{0}, off_t{1}, status.st_size - 1, status.st_size + 4'096}) {
      context.expect(ftruncate(fd, size) != 0, "shared memory changes its size");
      context.did();
    }
    ask_for_status(context);
  }
}
void punch_holes(Context& context, int) {
  const Held held = take_all(context);
  for (const int fd : held.all()) {
    if (!is_memory(fd)) continue;
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4'096);
    fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 1 << 16);
    context.expect(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4'096) != 0, "memory collapses");
    context.expect(fallocate(fd, 0, 1 << 20, 1 << 20) != 0, "shared memory grows");
    context.did();
    ask_for_status(context);
  }
}
void write_memory(Context& context, int) {
  const Held held = take_all(context);
  const std::string junk(70'000, '\xFF');
  for (const int fd : held.all()) {
    if (!is_memory(fd)) continue;
    [[maybe_unused]] const ssize_t written = pwrite(fd, junk.data(), junk.size(), 0);
    context.did();
    ask_for_status(context);
  }
}
// Scribbles while the agent and the capture read.
void scribble(Context& context, int seed) {
  const Held held = take_all(context);
  tulle::Random random = context.random;
  for (const int fd : held.all()) {
    struct stat status {};
    if (!is_memory(fd) || fstat(fd, &status) != 0) continue;
    const auto size = static_cast<std::size_t>(status.st_size);
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) continue;
    auto* words = static_cast<volatile std::uint64_t*>(memory);
    for (int i = 0; i < 200; ++i) {
      for (std::size_t n = 0; n < 256; ++n) {
        words[random.next() % (std::min<std::size_t>(size, 8'192) / 8)] =
            seed == 0 ? random.next() : ~0ull >> random.next() % 64;
      }
      context.did();
      if (i % 50 == 0) ask_for_status(context);
    }
    munmap(memory, size);
  }
}
void map_executable(Context& context, int) {
  const Held held = take_all(context);
  for (const int fd : held.all()) {
    if (!is_memory(fd)) continue;
    void* memory = mmap(nullptr, 4'096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    context.scan_file(fd);
    if (memory != MAP_FAILED) munmap(memory, 4'096);
    context.did();
  }
}
void seal_memory(Context& context, int) {
  const Held held = take_all(context);
  for (const int fd : held.all()) {
    for (const int seal : {F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE, 0x10, 0x20}) {
      if (is_memory(fd)) {
        context.expect(fcntl(fd, F_ADD_SEALS, seal) != 0, "the attacker seals shared memory");
      }
      context.did();
    }
  }
  ask_for_status(context);
}
void reopen_descriptors(Context& context, int) {
  const Held held = take_all(context);
  for (const int fd : held.all()) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    for (const int mode : {O_RDWR, O_WRONLY | O_TRUNC, O_PATH}) {
      const UniqueFd again(open(path.c_str(), mode | O_CLOEXEC));
      if (again && is_memory(fd)) {
        context.expect(ftruncate(again.get(), 0) != 0,
                       "shared memory is cut by another descriptor");
      }
      context.did();
    }
    fchmod(fd, 0777);
    [[maybe_unused]] const int owned = fchown(fd, 65'534, 65'534);
    [[maybe_unused]] const int linked =
        linkat(AT_FDCWD, path.c_str(), AT_FDCWD, "/tmp/tulle-hostile-link", AT_SYMLINK_FOLLOW);
    unlink("/tmp/tulle-hostile-link");
  }
  ask_for_status(context);
}
void lock_descriptors(Context& context, int) {
  const Held held = take_all(context);
  for (const int fd : held.all()) {
    for (const int command : {F_SETLK, F_OFD_SETLK}) {
      for (const int type : {F_WRLCK, F_RDLCK}) {
        struct flock lock {};
        lock.l_type = static_cast<short>(type);
        lock.l_whence = SEEK_SET;
        fcntl(fd, command, &lock);
        context.did();
      }
    }
    fcntl(fd, F_SETLEASE, F_WRLCK);
    fcntl(fd, F_NOTIFY, 0x8000'0000 | 0x3F);
  }
  ask_for_status(context);
  context.hold();
}
// Asks for signals to the agent and the victims. The kernel refuses to send them.
void send_signals_by_descriptors(Context& context, int) {
  const Held held = take_all(context);
  for (const int fd : held.all()) {
    for (const pid_t pid : context.victims) {
      fcntl(fd, F_SETOWN, pid);
      fcntl(fd, F_SETSIG, 9);
      fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK);
      context.did();
    }
    fcntl(fd, F_SETOWN, context.agent);
    const int on = 1;
    ioctl(fd, FIOASYNC, &on);
    send_raw(fd, Bytes(4));
  }
  ask_for_status(context);
}

// --- sockets ---

struct Option {
  const char* name;
  int level;
  int number;
  int value;
  bool must_fail;  // on all that the agent hands out
};
const Option options[] = {
    {"detach_reuseport_bpf", SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 1, true},
    {"receive_buffer_force", SOL_SOCKET, SO_RCVBUFFORCE, 1 << 30, true},
    {"send_buffer_force", SOL_SOCKET, SO_SNDBUFFORCE, 1 << 30, true},
    {"receive_buffer_least", SOL_SOCKET, SO_RCVBUF, 1, false},
    {"send_buffer_least", SOL_SOCKET, SO_SNDBUF, 1, false},
    {"reuse_port", SOL_SOCKET, SO_REUSEPORT, 1, false},
    {"reuse_address", SOL_SOCKET, SO_REUSEADDR, 1, false},
    {"peek_offset", SOL_SOCKET, SO_PEEK_OFF, 1 << 20, false},
    {"busy_poll", SOL_SOCKET, SO_BUSY_POLL, 1'000'000, false},
    {"lock_filter", SOL_SOCKET, SO_LOCK_FILTER, 1, false},
    {"detach_filter", SOL_SOCKET, SO_DETACH_FILTER, 1, false},
    {"pass_credentials", SOL_SOCKET, SO_PASSCRED, 1, false},
    {"priority", SOL_SOCKET, SO_PRIORITY, 7, false},
    {"mark", SOL_SOCKET, SO_MARK, 1, true},
    {"zero_copy", SOL_SOCKET, SO_ZEROCOPY, 1, false},
    {"linger", SOL_SOCKET, SO_LINGER, 1, false},
    {"ip_transparent", IPPROTO_IP, IP_TRANSPARENT, 1, true},
    {"ip_free_bind", IPPROTO_IP, IP_FREEBIND, 1, true},
    {"ip_receive_errors", IPPROTO_IP, IP_RECVERR, 1, true},
    {"ip_multicast_all", IPPROTO_IP, IP_MULTICAST_ALL, 1, true},
    {"ip_packet_information", IPPROTO_IP, IP_PKTINFO, 1, true},
    {"ip_time_to_live", IPPROTO_IP, IP_TTL, 1, true},
    {"ipv6_only", IPPROTO_IPV6, IPV6_V6ONLY, 1, true},
    {"udp_encapsulation", IPPROTO_UDP, UDP_ENCAP, 2, true},
    {"udp_segments", IPPROTO_UDP, UDP_SEGMENT, 1, true},
    {"udp_joined", IPPROTO_UDP, UDP_GRO, 0, true},
};

void set_option(Context& context, int row) {
  const Held held = take_all(context);
  const Option& option = options[row];
  for (const int fd : held.all()) {
    int values[4] = {option.value, option.value, 0, 0};
    const bool is_set = setsockopt(fd, option.level, option.number, values,
                                   option.number == SO_LINGER ? 8 : 4) == 0;
    context.expect(!option.must_fail || !is_set, "the attacker sets this option");
    context.did();
  }
  ask_for_status(context);
}

void attach_program(Context& context, int option) {
  const Held held = take_all(context);
  sock_filter program[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog drop_all{1, program};
  const int no_program = -1;
  const bool is_ebpf = option == SO_ATTACH_REUSEPORT_EBPF || option == SO_ATTACH_BPF;
  for (const int fd : held.all()) {
    const bool is_attached = setsockopt(fd, SOL_SOCKET, option,
                                        is_ebpf ? static_cast<const void*>(&no_program) : &drop_all,
                                        is_ebpf ? sizeof(no_program) : sizeof(drop_all)) == 0;
    // A filter on his own end drops his own datagrams, and nobody else's.
    context.expect(option == SO_ATTACH_FILTER || !is_attached, "the attacker attaches a program");
    context.did();
  }
  ask_for_status(context);
}

void find_network_sockets(Context& context, int) {
  const Held held = take_all(context);
  for (const int fd : held.all()) {
    int domain = AF_UNIX;
    socklen_t size = sizeof(domain);
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    context.expect(domain == AF_UNIX, "the attacker holds a socket of the network");
    context.did();
  }
  context.expect(held.process && held.process->fds.size() == 2, "more descriptors than it needs");
}
void bind_and_connect(Context& context, int) {
  const Held held = take_all(context);
  for (const int fd : held.all()) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(4'791);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    context.expect(bind(fd, reinterpret_cast<sockaddr*>(&in), sizeof(in)) != 0, "it is bound");
    context.expect(connect(fd, reinterpret_cast<sockaddr*>(&in), sizeof(in)) != 0, "it connects");
    sockaddr un{};
    un.sa_family = AF_UNSPEC;
    static_cast<void>(connect(fd, &un, sizeof(un)));
    listen(fd, 8);
    const UniqueFd accepted(accept(fd, nullptr, nullptr));
    context.expect(!accepted, "the attacker accepts the agent's connections");
    context.did();
  }
  ask_for_status(context);
}
void shut_down_sockets(Context& context, int how) {
  const Held held = take_all(context);
  for (const int fd : held.all()) {
    shutdown(fd, how);
    context.did();
  }
  ask_for_status(context);
}
void send_where_nothing_is_due(Context& context, int) {
  const Held held = take_all(context);
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const std::vector<int> fds(100, null.get());
  for (const int fd : held.all()) {
    for (const std::size_t size : {0u, 1u, 40u, 60'000u}) {
      send_raw(fd, Bytes(size, std::byte{0xAB}));
      send_raw(fd, Bytes(size, std::byte{0xAB}), fds);
      context.did();
    }
  }
  ask_for_status(context);
}
void read_without_end(Context& context, int flags) {
  const Held held = take_all(context);
  Bytes buffer(70'000);
  for (const int fd : held.all()) {
    for (int i = 0; i < 50; ++i) {
      const ssize_t bytes = recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT | flags);
      if (bytes > 0) context.scan(std::span(buffer).first(static_cast<std::size_t>(bytes)));
      context.did();
    }
  }
}

// --- keeping and passing on ---

// Keeps the relay of a slot that it gives back, until others have the slot. It must not receive
// what comes for them.
void keep_after_death(Context& context, int) {
  std::vector<UniqueFd> kept;
  for (int i = 0; i < 140; ++i) {  // more than there are slots
    auto process = open_process(context);
    if (!process) continue;
    kept.push_back(std::move(process->fds[0]));
    context.did();
  }
  context.hold();  // the victims open devices meanwhile
  for (const UniqueFd& relay : kept) {
    Bytes buffer(70'000);
    for (;;) {
      const ssize_t bytes = recv(relay.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (bytes <= 0) break;
      context.scan(std::span(buffer).first(static_cast<std::size_t>(bytes)));
      context.expect(false, "the relay of a slot that was given back receives");
    }
  }
}
// A child lives on with all descriptors of a process that is killed.
void leave_a_child(Context& context, int) {
  int ends[2];
  if (pipe(ends) != 0) return;
  const pid_t parent = fork();
  if (parent == 0) {
    const Held held = take_all(context);
    if (fork() == 0) {
      usleep(300'000);
      _exit(0);
    }
    [[maybe_unused]] const ssize_t written = write(ends[1], "", 1);
    raise(SIGKILL);
  }
  char c;
  [[maybe_unused]] const ssize_t taken = read(ends[0], &c, 1);
  waitpid(parent, nullptr, 0);
  context.did();
  ask_for_status(context);
  close(ends[0]);
  close(ends[1]);
}
// Passes what it holds to the agent as descriptors of a message, and to itself in a circle.
void pass_on(Context& context, int) {
  Held held = take_all(context);
  const std::vector<int> fds = held.all();
  for (const int fd : fds) {
    send_raw(fd, encode(Expose{}), fds);
    const UniqueFd connection = to_agent();
    const int own = connection.get();
    send_raw(own, encode(hello(Purpose::list)), std::span(&own, 1));
    context.did();
  }
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return;
  send_raw(pair[0], Bytes(1), fds);
  send_raw(pair[0], Bytes(1), pair);  // in flight, and held by nobody once this ends
  close(pair[0]);
  close(pair[1]);
  ask_for_status(context);
}
void stop_with_a_slot(Context& context, int) {
  int ends[2];
  if (pipe(ends) != 0) return;
  const pid_t child = fork();
  if (child == 0) {
    const Held held = take_all(context);
    [[maybe_unused]] const ssize_t written = write(ends[1], "", 1);
    raise(SIGSTOP);
    _exit(0);
  }
  char c;
  [[maybe_unused]] const ssize_t taken = read(ends[0], &c, 1);
  context.did();
  context.hold();
  ask_for_status(context);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace

std::vector<Attack> descriptor_attacks() {
  std::vector<Attack> attacks;
  attacks.reserve(std::size(options));
  for (int row = 0; row < static_cast<int>(std::size(options)); ++row) {
    attacks.push_back({std::string("option.") + options[row].name, set_option, row});
  }
  const Attack more[] = {{"option.attach_filter", attach_program, SO_ATTACH_FILTER},
                         {"option.attach_bpf", attach_program, SO_ATTACH_BPF},
                         {"option.attach_reuseport_cbpf", attach_program, SO_ATTACH_REUSEPORT_CBPF},
                         {"option.attach_reuseport_ebpf", attach_program, SO_ATTACH_REUSEPORT_EBPF},
                         {"handed.no_network_sockets", find_network_sockets},
                         {"handed.bind_and_connect", bind_and_connect},
                         {"handed.shut_down_reading", shut_down_sockets, SHUT_RD},
                         {"handed.shut_down_writing", shut_down_sockets, SHUT_WR},
                         {"handed.shut_down_both", shut_down_sockets, SHUT_RDWR},
                         {"handed.send_where_nothing_is_due", send_where_nothing_is_due},
                         {"handed.read_all", read_without_end, 0},
                         {"handed.peek_at_all", read_without_end, MSG_PEEK},
                         {"handed.urgent_data", read_without_end, MSG_OOB},
                         {"memory.resize", resize_memory},
                         {"memory.punch_holes", punch_holes},
                         {"memory.write", write_memory},
                         {"memory.scribble_anything", scribble, 0},
                         {"memory.scribble_small_numbers", scribble, 1},
                         {"memory.map_executable", map_executable},
                         {"memory.seal", seal_memory},
                         {"memory.reopen", reopen_descriptors},
                         {"memory.lock", lock_descriptors},
                         {"handed.signals", send_signals_by_descriptors},
                         {"handed.keep_after_death", keep_after_death, 0, true},
                         {"handed.leave_a_child", leave_a_child},
                         {"handed.pass_on", pass_on},
                         {"handed.stop_with_a_slot", stop_with_a_slot}};
  attacks.insert(attacks.end(), std::begin(more), std::end(more));
  return attacks;
}

}  // namespace hostile
