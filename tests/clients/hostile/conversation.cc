// Conversations with the host agent, for the attacks.

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "attack.h"
#include "live/settings.h"

namespace hostile {

using namespace tulle::live;

void Context::expect(bool holds, std::string_view what) {
  if (!holds) violations_.emplace_back(what);
}

void Context::scan(std::span<const std::byte> bytes) {
  scanned_ += bytes.size();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const std::string& secret : secrets_) {
    for (std::size_t at = text.find(secret); at != std::string_view::npos;
         at = text.find(secret, at + secret.size())) {
      foreign_ += secret.size();
    }
  }
}

void Context::scan_file(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size <= 0) return;
  // Reading a hole of shared memory takes a page.
  constexpr std::size_t most = 16 << 20;
  const auto size = std::min(static_cast<std::size_t>(status.st_size), most);
  void* memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return;
  scan({static_cast<const std::byte*>(memory), size});
  munmap(memory, size);
}

void Context::scan_a_secret() {
  if (!secrets_.empty()) scan(std::as_bytes(std::span(secrets_.front())));
}

void Context::hold() {
  if (!looks_from_outside) return;
  std::puts("holding");
  std::fflush(stdout);
  pollfd answer{STDIN_FILENO, POLLIN, 0};
  char line[16];
  if (poll(&answer, 1, 20'000) > 0 && read(STDIN_FILENO, line, sizeof(line)) <= 0) did(0);
}

void Context::print(std::string_view name, double seconds) const {
  std::string text;
  for (const std::string& violation : violations_) {
    text += text.empty() ? "" : "; ";
    text += violation;
  }
  if (deeds_ == 0 && skipped_.empty()) text += "it did nothing";
  std::printf("done\t%.*s\t%llu\t%llu\t%llu\t%.1f\t%s\t%s\n", static_cast<int>(name.size()),
              name.data(), static_cast<unsigned long long>(deeds_),
              static_cast<unsigned long long>(scanned_), static_cast<unsigned long long>(foreign_),
              1'000 * seconds, skipped_.c_str(), text.c_str());
  std::fflush(stdout);
}

UniqueFd to_agent() {
  for (int i = 0; i < 100; ++i) {
    auto connection = connect_to(read_settings().agent);
    if (connection) return std::move(*connection);
    if (connection.error().error_number != EAGAIN) break;
    usleep(10'000);  // many connect at once
  }
  return {};
}

bool send_raw(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  alignas(cmsghdr) std::byte control[CMSG_SPACE(253 * sizeof(int))] = {};
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

std::optional<ReceivedMessage> next(Context& context, int socket, int milliseconds) {
  auto message = await_message(socket, milliseconds);
  if (!message) return std::nullopt;
  context.scan(message->bytes);
  for (const UniqueFd& fd : message->fds) context.scan_file(fd.get());
  return std::move(*message);
}

void drain(Context& context, int socket) {
  while (next(context, socket, 0)) {
  }
}

bool is_refused(const std::optional<ReceivedMessage>& message) {
  Refused refused;
  return message && decode(message->bytes, refused);
}

Hello hello(Purpose purpose) {
  Hello hello;
  hello.purpose = purpose;
  hello.command = "attacker";
  hello.device.name = "tulle0";
  return hello;
}

std::optional<Process> open_process(Context& context) {
  Process process;
  process.connection = to_agent();
  if (!process.connection || !send_raw(process.connection.get(), encode(hello(Purpose::open)))) {
    return std::nullopt;
  }
  auto answer = next(context, process.connection.get(), 5'000);
  if (!answer || !decode(answer->bytes, process.opened)) return std::nullopt;
  process.fds = std::move(answer->fds);
  return process;
}

ConnectionReply Channel::say(Context& context, ConnectionCommand command) {
  CommandMessage message;
  message.events_taken = events_taken;
  message.command = std::move(command);
  ReplyMessage reply;
  if (!send_raw(connection.get(), encode(std::move(message)))) return reply::Failed{EPIPE};
  auto answer = next(context, connection.get(), 5'000);
  if (!answer || !decode(answer->bytes, reply)) return reply::Failed{EPIPE};
  return reply.reply;
}

EndpointId Channel::create(Context& context, PortSpace space) {
  const bool is_datagram = space == PortSpace::udp;
  const auto reply = say(
      context, command::Create{space, is_datagram ? ConnectionQpType::ud : ConnectionQpType::rc});
  const auto* created = std::get_if<reply::Created>(&reply);
  return created == nullptr ? EndpointId{} : created->endpoint;
}

void Channel::take_events(Context& context) {
  while (next(context, events.get(), 0)) ++events_taken;
}

std::optional<Channel> open_channel(Context& context) {
  Channel channel;
  channel.connection = to_agent();
  if (!channel.connection || !send_raw(channel.connection.get(), encode(hello(Purpose::connect)))) {
    return std::nullopt;
  }
  auto answer = next(context, channel.connection.get(), 5'000);
  ChannelOpened opened;
  if (!answer || !decode(answer->bytes, opened) || answer->fds.empty()) return std::nullopt;
  channel.events = std::move(answer->fds[0]);
  channel.number = opened.channel;
  return channel;
}

bool has_failed(const ConnectionReply& reply) {
  return std::holds_alternative<reply::Failed>(reply);
}
int error_of(const ConnectionReply& reply) {
  const auto* failed = std::get_if<reply::Failed>(&reply);
  return failed == nullptr ? 0 : failed->error;
}

SocketAddress loopback(std::uint16_t port) {
  SocketAddress address;
  address.family = AF_INET;
  address.port = port;
  address.address[0] = std::byte{127};
  address.address[3] = std::byte{1};
  return address;
}

bool resolve(Context& context, Channel& channel, EndpointId id, const SocketAddress& to) {
  return !has_failed(channel.say(context, command::ResolveAddress{id, {}, to})) &&
         !has_failed(channel.say(context, command::ResolveRoute{{id}}));
}

}  // namespace hostile
