// Descriptors that an attacker attaches to his messages, where they are due and where not.

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <array>
#include <thread>

#include "attack.h"

namespace hostile {

using namespace tulle::live;

namespace {

UniqueFd memory_of(std::size_t bytes) {
  UniqueFd fd(memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return {};
  return fd;
}

std::vector<UniqueFd> of_all_types() {
  std::vector<UniqueFd> fds;
  const auto add = [&](int fd) {
    if (fd >= 0) fds.emplace_back(fd);
  };
  add(open("/dev/null", O_RDWR | O_CLOEXEC));
  add(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  add(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  add(open("/", O_PATH | O_CLOEXEC));
  add(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  add(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  add(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  add(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  add(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0));
  add(epoll_create1(EPOLL_CLOEXEC));
  add(eventfd(0, EFD_CLOEXEC));
  add(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  add(memory_of(0).release());
  add(memory_of(4'096).release());
  add(memory_of(1ull << 40).release());
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) == 0) {
    add(ends[0]);
    add(ends[1]);
  }
  return fds;
}

void check_answer(Context& context) {
  const UniqueFd connection = to_agent();
  send_raw(connection.get(), encode(hello(Purpose::list)));
  context.expect(next(context, connection.get(), 5'000).has_value(), "the agent does not answer");
}

void attach_to_hellos(Context& context, int count) {
  const auto fds = of_all_types();
  std::vector<int> numbers;
  numbers.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    numbers.push_back(fds[static_cast<std::size_t>(i) % fds.size()].get());
  }
  for (int purpose = 0; purpose < 8; ++purpose) {
    const UniqueFd connection = to_agent();
    send_raw(connection.get(), encode(hello(static_cast<Purpose>(purpose))), numbers);
    context.did();
    static_cast<void>(next(context, connection.get(), 50));
  }
  check_answer(context);
}
void rejoin_with(Context& context, int) {
  const auto fds = of_all_types();
  for (const UniqueFd& first : fds) {
    const int both[] = {first.get(), first.get()};
    for (const std::uint32_t slot : {0u, 1u, 64u, 127u, 128u, ~0u}) {
      Rejoin rejoin;
      rejoin.slot = slot;
      rejoin.device.name = rejoin.choice.name = "tulle0";
      const UniqueFd connection = to_agent();
      send_raw(connection.get(), encode(rejoin), both);
      context.expect(is_refused(next(context, connection.get())), "a stranger rejoins");
      context.did();
    }
  }
}
// Another process of the attacker's asks for what was exposed, as a peer on the host does.
void expose_all_types(Context& context, int) {
  auto process = open_process(context);
  if (!process) return context.expect(false, "the agent opens no device");
  const auto fds = of_all_types();
  for (const UniqueFd& fd : fds) {
    const std::array<int, 2> exposed = {fd.get(), fd.get()};
    send_raw(process->connection.get(), encode(Expose{}), exposed);
    Hello message = hello(Purpose::find_peer);
    message.slot = process->opened.slot;
    const UniqueFd connection = to_agent();
    send_raw(connection.get(), encode(message));
    static_cast<void>(next(context, connection.get()));
    context.did();
  }
}
void expose_and_shorten(Context& context, int) {
  auto process = open_process(context);
  if (!process) return context.expect(false, "the agent opens no device");
  const UniqueFd table = memory_of(1 << 20);
  const std::array<int, 2> exposed = {table.get(), table.get()};
  for (int i = 0; i < 50; ++i) {
    send_raw(process->connection.get(), encode(Expose{}), exposed);
    [[maybe_unused]] const int cut = ftruncate(table.get(), i % 2 == 0 ? 0 : 1 << 20);
    context.did();
  }
  check_answer(context);
}
void expose_odd_counts(Context& context, int) {
  auto process = open_process(context);
  if (!process) return context.expect(false, "the agent opens no device");
  const UniqueFd memory = memory_of(4'096);
  for (const std::size_t count : {0u, 1u, 3u, 253u}) {
    const std::vector<int> fds(count, memory.get());
    send_raw(process->connection.get(), encode(Expose{}), fds);
    context.did();
  }
  check_answer(context);
}
void expose_many_times(Context& context, int) {
  auto process = open_process(context);
  if (!process) return context.expect(false, "the agent opens no device");
  for (int i = 0; i < 3'000; ++i) {
    const UniqueFd memory = memory_of(4'096);
    const std::array<int, 2> exposed = {memory.get(), memory.get()};
    if (!send_raw(process->connection.get(), encode(Expose{}), exposed)) usleep(200);
    context.did();
  }
  check_answer(context);
}

// A TCP connection whose peer takes nothing. Whoever closes it last waits for as long as SO_LINGER
// says, here half a minute.
UniqueFd that_lingers(std::vector<UniqueFd>& peers) {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&at), size) != 0 ||
      listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    return {};
  }
  UniqueFd own(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(own.get(), reinterpret_cast<sockaddr*>(&at), size) != 0) return {};
  peers.emplace_back(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const Bytes much(1 << 16);
  while (send(own.get(), much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  const linger wait{1, 30};
  setsockopt(own.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait));
  return own;
}
// The agent must not be the one who waits, whichever message the descriptor comes with.
void attach_what_lingers(Context& context, int place) {
  std::vector<UniqueFd> peers;
  std::vector<UniqueFd> held;
  for (int i = 0; i < 4; ++i) {
    UniqueFd lingering = that_lingers(peers);
    if (!lingering) return context.skip("no TCP on this loopback");
    // Two descriptors are due where a process exposes its table, and none elsewhere.
    const std::array<int, 2> attached = {lingering.get(), lingering.get()};
    UniqueFd connection;
    Bytes message = encode(hello(Purpose::list));
    if (place == 1) {
      auto process = open_process(context);
      if (!process) return context.expect(false, "the agent opens no device");
      connection = std::move(process->connection);
      message = encode(Expose{});
    } else if (place == 2) {
      auto channel = open_channel(context);
      if (!channel) return context.expect(false, "the agent opens no channel");
      connection = std::move(channel->connection);
      message = encode(CommandMessage{0, command::Create{PortSpace::tcp, {}}});
    } else {
      connection = to_agent();
    }
    if (place == 3) message.clear();
    if (place == 4) message.resize(message_bytes_max + 1);
    // The agent does not read what comes on the events' socket, if anything can.
    UniqueFd events;
    if (place == 5) {
      auto channel = open_channel(context);
      if (!channel) return context.expect(false, "the agent opens no channel");
      connection = std::move(channel->connection);
      events = std::move(channel->events);
    }
    // The agent throws away what lies unread when a conversation ends, with its descriptors.
    for (int n = 0; n < (place == 6 ? 20 : 1); ++n) {
      send_raw(place == 5 ? events.get() : connection.get(), message, attached);
    }
    context.did();
    // The attacker waits too if it is the last to close.
    std::thread([fd = lingering.release()] { close(fd); }).detach();
    if (place == 1) held.push_back(std::move(connection));
  }
  check_answer(context);
  held.clear();  // closes what was exposed
  check_answer(context);
  context.hold();
}
// Whoever closes the first of these connections waits. The agent must not keep all later ones open
// until then.
void leave_and_come_again(Context& context, int) {
  std::vector<UniqueFd> peers;
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const int nothing = null.get();
  for (int i = 0; i < 3'000; ++i) {
    UniqueFd lingering;
    if (i < 6) {
      lingering = that_lingers(peers);
      if (!lingering) return context.skip("no TCP on this loopback");
    }
    const int attached = lingering ? lingering.get() : nothing;
    const UniqueFd connection = to_agent();
    // The agent answers the first, and throws away what comes after it.
    for (int n = 0; n < 3; ++n) {
      send_raw(connection.get(), encode(hello(Purpose::list)), std::span(&attached, 1));
    }
    if (lingering) std::thread([fd = lingering.release()] { close(fd); }).detach();
    context.did();
    if (i == 1'500) context.hold();
  }
  check_answer(context);
  context.hold();
}
// More than the kernel lets one message carry, and more than a limit of files allows.
void attach_the_most(Context& context, int) {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const std::vector<int> most(253, null.get());
  std::vector<UniqueFd> connections(40);
  for (UniqueFd& connection : connections) {
    connection = to_agent();
    for (int i = 0; i < 10; ++i) {
      send_raw(connection.get(), encode(hello(Purpose::status)), most);
      context.did();
    }
  }
  check_answer(context);
}

}  // namespace

std::vector<Attack> attached_attacks() {
  return {{"attached.one_to_each_hello", attach_to_hellos, 1},
          {"attached.all_types_to_hellos", attach_to_hellos, 17},
          {"attached.most_to_hellos", attach_to_hellos, 253},
          {"attached.most_to_many", attach_the_most, 0, true},
          {"attached.rejoin", rejoin_with},
          {"attached.expose_all_types", expose_all_types},
          {"attached.expose_and_shorten", expose_and_shorten},
          {"attached.expose_odd_counts", expose_odd_counts},
          {"attached.expose_many_times", expose_many_times, 0, true},
          {"attached.lingers_with_hello", attach_what_lingers, 0},
          {"attached.lingers_exposed", attach_what_lingers, 1},
          {"attached.lingers_with_command", attach_what_lingers, 2},
          {"attached.lingers_with_nothing", attach_what_lingers, 3},
          {"attached.lingers_with_too_much", attach_what_lingers, 4},
          {"attached.lingers_in_events", attach_what_lingers, 5},
          {"attached.lingers_unread", attach_what_lingers, 6},
          {"attached.lingers_then_comes_again", leave_and_come_again, 0, true}};
}

}  // namespace hostile
