// Plays processes before a whole host agent, which runs in a thread: their first messages and what
// follows, in any order, with any descriptors, of the agent's own user and of another one.
// Alongside them runs a process that has a slot and does nothing. It must keep its slot and
// receive nothing but what the agent sends every process. When the others are gone, the agent holds
// none of their descriptors.

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "live/agent/core.h"
#include "live/message/protocol.h"
#include "live/message/socket.h"
#include "live/private_network_test.h"
#include "os/shared_memory.h"

namespace tulle::live {
namespace {

using base::Script;

constexpr uid_t other_user = 65'533;
constexpr int patience_milliseconds = 5'000;
std::atomic<bool> is_ready = false;

// Credentials belong to the thread that asks the kernel directly, so the agent's thread keeps its
// own. Returns false if there is no other user in this namespace.
bool become(uid_t user) { return syscall(SYS_setresuid, -1, user, -1) == 0; }

// What the descriptors of this process refer to. Pipes are the fuzzer's, to its symbolizer.
std::vector<std::string> open_files() {
  std::vector<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code is_gone;
    auto what = std::filesystem::read_symlink(file.path(), is_gone).string();
    if (!what.starts_with("pipe:")) files.push_back(std::move(what));
  }
  return files;
}

// The agent, and a process that has a slot.
struct World {
  World() {
    settings.agent = "@tulle-fuzz-" + std::to_string(getpid());
    settings.port = static_cast<std::uint16_t>(20'000 + getpid() % 10'000);
    settings.device.interfaces = "lo";
    auto listener = listen_at(settings.agent);
    TULLE_CHECK(listener);
    std::thread([this, at = std::move(*listener)]() mutable {
      AgentCore core(settings);
      const auto served = core.serve(std::move(at), false, [] { is_ready = true; });
      TULLE_CHECK(!served && "the agent must not leave");
    }).detach();
    while (!is_ready) usleep(1'000);
    quiet = connect();
    const auto answer = ask(quiet.get(), hello(Purpose::open));
    TULLE_CHECK(answer && decode(answer->bytes, opened));
    settle();
    files = open_files().size();
  }

  UniqueFd connect() const {
    auto made = connect_to(settings.agent);
    return made ? std::move(*made) : UniqueFd();
  }
  // Waits while as many connections wait as may, as a device does.
  UniqueFd connect_patiently() const {
    auto made = connect_to(settings.agent);
    for (int waited = 0; !made && made.error().error_number == EAGAIN; ++waited) {
      TULLE_CHECK(waited < patience_milliseconds);
      usleep(1'000);
      made = connect_to(settings.agent);
    }
    return made ? std::move(*made) : UniqueFd();
  }
  Hello hello(Purpose purpose) const {
    Hello hello;
    hello.purpose = purpose;
    hello.command = "fuzz";
    hello.device.name = "tulle0";
    hello.device.interfaces = "lo";
    return hello;
  }
  static std::optional<ReceivedMessage> ask(int connection, const Hello& hello) {
    TULLE_CHECK(send_message(connection, encode(hello)));
    for (;;) {
      auto answer = await_message(connection, patience_milliseconds);
      if (!answer) return std::nullopt;
      if (peek_header(answer->bytes)->kind == static_cast<std::uint16_t>(MessageKind::wait))
        continue;
      return std::move(*answer);
    }
  }
  // Returns when the agent has served a new client, and hence all that was sent before.
  void settle() const {
    for (int i = 0; i < 2; ++i) {
      const UniqueFd connection = connect_patiently();
      TULLE_CHECK(connection);
      const auto answer = ask(connection.get(), hello(Purpose::list));
      Devices devices;
      TULLE_CHECK(answer && decode(answer->bytes, devices) && devices.devices.size() == 1);
    }
  }

  Settings settings;
  UniqueFd quiet;
  Opened opened;
  // The fewest descriptors that were open while nobody else was there.
  std::size_t files = 0;
};

World& world() {
  static World* world = new World;
  return *world;
}

class Run {
 public:
  explicit Run(Script& script) : script_(script) {}

  void go() {
    while (!script_.is_over()) step();
    for (auto& connection : connections_) connection.reset();
    received_.clear();
    check_quiet();
  }

 private:
  void step() {
    UniqueFd& connection = connections_[script_.below(6)];
    if (!connection) {
      const bool is_other = script_.one_in(4) && become(other_user);
      connection = world().connect();
      if (is_other) TULLE_CHECK(become(0));
      if (!connection) return;
    }
    switch (script_.below(16)) {
      case 0:
        connection.reset();
        return;
      case 1:
      case 2:
        return receive(connection);
      case 3:
        return send(connection, script_.bytes(script_.byte()));
      case 4: {
        const MessageHeader header{message_magic, protocol_version, script_.byte()};
        std::vector<std::byte> bytes(sizeof(header));
        std::memcpy(bytes.data(), &header, sizeof(header));
        const auto body = script_.bytes(script_.byte());
        bytes.insert(bytes.end(), body.begin(), body.end());
        return send(connection, bytes);
      }
      case 5:
        return send(connection, encode(Membership{any_slot(), any_gid(), script_.below(2) == 0}));
      case 6: {
        Rejoin rejoin;
        rejoin.slot = any_slot();
        rejoin.command = any_text();
        rejoin.choice.interfaces = "lo";
        rejoin.device.name = rejoin.choice.name = any_text();
        rejoin.device.gids.resize(script_.below(4) * 200u);
        return send(connection, encode(rejoin));
      }
      case 7:
        return send(connection, encode(Expose{}));
      case 8: {
        GidsHeld held;
        held.version = script_.below(4);
        held.indices[script_.below(4)] = script_.number();
        return send(connection, encode(held));
      }
      case 9: {
        CommandMessage message;
        message.events_taken = script_.byte();
        message.command = command::Create{PortSpace::tcp, ConnectionQpType::rc};
        if (script_.below(2) == 0) message.command = command::Listen{EndpointId{script_.word()}, 4};
        return send(connection, encode(message));
      }
      default:
        return send(connection, encode(any_hello()));
    }
  }

  Hello any_hello() {
    // A status takes the agent 30 ms, so it is asked for seldom.
    constexpr std::array purposes = {Purpose::list,      Purpose::open,    Purpose::capture,
                                     Purpose::find_peer, Purpose::connect, Purpose::attribute};
    Hello hello = world().hello(purposes[script_.below(6)]);
    const std::uint32_t choice = script_.byte();
    if (choice == 255) hello.purpose = Purpose::status;
    if (choice == 254) hello.purpose = static_cast<Purpose>(script_.byte());
    if (choice % 8 == 1) hello.command = any_text();
    if (choice % 8 == 2) hello.device.name = any_text();
    if (choice % 8 == 3) hello.device.interfaces = any_text();
    hello.slot = any_slot();
    hello.ring_bytes = script_.one_in(8) ? script_.word() % (4u << 20) : 0;
    hello.snap_length = script_.byte();
    constexpr std::array files = {
        "state", "phys_state", "gids/0", "gid_attrs/types/1", "gid_attrs/ndevs/0", "gids/"};
    hello.file = files[script_.below(6)];
    if (choice % 8 == 4) hello.file += any_text();
    return hello;
  }

  std::string any_text() {
    const auto bytes = script_.bytes(script_.below(64));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::uint32_t any_slot() {
    const std::uint32_t choice = script_.byte();
    return choice < 16 ? world().opened.slot : choice < 250 ? choice % 8 : script_.word();
  }
  Gid any_gid() {
    Gid gid = Gid::from_ipv4(0xEF00'0001 + script_.below(128));
    if (script_.one_in(4)) gid.bytes[script_.below(16)] = script_.byte();
    return gid;
  }

  void send(const UniqueFd& connection, std::span<const std::byte> bytes) {
    std::vector<int> fds;
    std::vector<UniqueFd> made;
    for (unsigned i = script_.one_in(4) ? script_.below(8) : 0; i > 0; --i) {
      switch (script_.below(5)) {
        case 0:
          if (auto fd = make_shared_memory("fuzz", script_.half())) made.push_back(std::move(*fd));
          break;
        case 1:
          made.emplace_back(memfd_create("fuzz", MFD_CLOEXEC));
          break;
        case 2:
          made.emplace_back(open("/dev/null", O_RDWR | O_CLOEXEC));
          break;
        default:
          // A descriptor that the agent itself gave.
          if (!received_.empty()) {
            const int fd = received_[script_.byte() % received_.size()].get();
            made.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
          }
      }
    }
    for (const UniqueFd& each : made) {
      if (each) fds.push_back(each.get());
    }
    static_cast<void>(send_message(connection.get(), bytes, fds));
  }

  // Takes answers, and their descriptors.
  void receive(const UniqueFd& connection) {
    pollfd readable{connection.get(), POLLIN, 0};
    poll(&readable, 1, 1);
    for (;;) {
      auto message = receive_message(connection.get());
      if (!message) return;
      TULLE_CHECK(peek_header(message->bytes));
      for (UniqueFd& fd : message->fds) {
        if (received_.size() < 32) received_.push_back(std::move(fd));
      }
    }
  }

  // The quiet process has its slot, and has received nothing but what concerns all. The agent has
  // let go of the others.
  void check_quiet() {
    // What is open for a moment counts too, so one low count is enough.
    std::vector<std::string> files;
    for (int i = 0; i < 120; ++i) {
      world().settle();
      files = open_files();
      if (files.size() <= world().files) break;
      usleep(1'000u << std::min(i, 6));
    }
    if (files.size() > world().files) {
      for (const std::string& file : files) std::cerr << "open: " << file << '\n';
    }
    TULLE_CHECK(files.size() <= world().files);
    world().files = files.size();
    for (;;) {
      auto message = receive_message(world().quiet.get());
      if (!message) break;
      const auto header = peek_header(message->bytes);
      TULLE_CHECK(header);
      const auto kind = static_cast<MessageKind>(header->kind);
      TULLE_CHECK(kind == MessageKind::publish || kind == MessageKind::start_capture ||
                  kind == MessageKind::stop_capture || kind == MessageKind::device_changed);
    }
    pollfd state{world().quiet.get(), POLLIN, 0};
    TULLE_CHECK(poll(&state, 1, 0) == 0);
  }

  Script& script_;
  std::array<UniqueFd, 6> connections_;
  std::vector<UniqueFd> received_;
};

}  // namespace
}  // namespace tulle::live

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tulle::live::enter_private_network();
  tulle::live::world();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tulle::base::Script script(data, size);
  tulle::live::Run(script).go();
  return 0;
}
