#pragma once

// The parts of a software fabric's process: server.cc has its loop, and sessions.cc the messages of
// programs.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fabric/subnet.h"
#include "fabric/subnet_managers.h"
#include "live/fabric/captures.h"
#include "live/fabric/data_ports.h"
#include "live/fabric/host_administration.h"
#include "live/fabric/host_connections.h"
#include "live/fabric/host_networks.h"
#include "live/fabric/host_services.h"
#include "live/fabric/ip_interfaces.h"
#include "live/fabric/manager_files.h"
#include "live/fabric/messages.h"
#include "live/fabric/other_machines.h"
#include "live/fabric/session.h"
#include "live/fabric/surroundings.h"
#include "live/message/closer.h"
#include "live/message/socket.h"
#include "os/event_loop.h"
#include "os/unique_fd.h"

namespace tulle::live {

class FabricServer {
 public:
  FabricServer(const FabricOptions& options, HostNetworks* networks,
               std::optional<MachineSocket> socket);
  FabricServer(const FabricServer&) = delete;
  FabricServer& operator=(const FabricServer&) = delete;
  ~FabricServer();

  Result<void> serve(UniqueFd listener, const std::function<void()>& ready);

 private:
  using Session = FabricSession;
  // The lowest bits of an event's datum say what kind of thing its address belongs to.
  enum class EventKind : std::uint8_t { session, bell, packets, addresses, machines };

  // server.cc: the loop
  static std::unique_ptr<fabric::SubnetManagers> managers_of(const FabricOptions& options,
                                                             fabric::Subnet& subnet);
  static Time now();
  void watch(int fd, void* of, EventKind kind = EventKind::session);
  void handle(const epoll_event& event);
  Time next_management() const;
  Time next_event() const;
  void turn();
  void manage();
  void accept_all();
  void end_silent();
  void end_finished();
  void end(Session& session);
  void close_read();
  void close_shut(Closer::Sender sender, UniqueFd socket);
  void read_long_datagrams();
  bool read_long_datagram(Session& session, std::size_t& bytes_left);
  void take_network(HostNetworks::Answer answer);
  void pass_reregistrations();
  void tell_of_port(Session& session);
  bool progress_connections();
  void deliver(HostServices::Delivery delivery);
  bool has_room_for_file(const Session& session, std::size_t bytes);
  // The system does not say which processes of other PID namespaces are the same.
  static Closer::Sender sender_of(const Session& session) {
    constexpr Closer::Sender of_no_process = 1u << 31;
    return session.process > 0 ? static_cast<Closer::Sender>(session.process)
                               : of_no_process | session.id;
  }
  // Sessions have smaller numbers.
  static constexpr std::uint32_t own_ids = 1u << 30;
  std::uint32_t unused_id();
  void discard(const Session& session, UniqueFd fd);
  void discard(const Session& session, std::vector<UniqueFd> fds);
  void refuse(Session& session, const std::string& reason);

  // sessions.cc: the messages
  void handle(Session& session);
  void hear(Session& session);
  void take_datagrams(Session& session);
  bool refuses_to_read(Session& session, int socket);
  void handle_message(Session& session, ReceivedMessage& message);
  std::string no_place_for(const Session& session, bool is_command) const;
  void greet(Session& session, const FabricHello& hello, std::vector<UniqueFd>& fds);
  void greet_program(Session& session, const FabricHello& hello, std::vector<UniqueFd>& fds);
  void open_port(Session& session, std::uint32_t host);
  HostAdministration& administration_of(std::uint32_t host);
  HostConnections& connections_of(std::uint32_t host);
  void open_channel(Session& session, std::uint32_t host);
  void execute(Session& session, std::span<const std::byte> bytes);
  void open_data_port(Session& session, std::uint32_t host, UniqueFd& button);
  void enter(Session& session, std::uint32_t host);
  void admit(Session& session, std::uint32_t host);
  void begin_capture(Session& session, const FabricHello& hello);
  void change_cable(Session& session, const FabricHello& hello);
  FabricNodes nodes_from(std::uint32_t first) const;
  static std::string no_network(std::uint32_t host, const std::string& reason);
  template <typename Message>
  void answer(Session& session, Message message);

  static constexpr std::size_t closing_threads_max = 64;
  Closer connection_closer_{closing_threads_max, Closer::Way::by_exiting};
  Closer closer_{closing_threads_max};  // of what came from programs
  std::size_t unclosed_of_all_max_;     // of that
  WatchedListener listener_;
  UniqueFd signals_;
  EventLoop loop_;
  HostNetworks* networks_;  // null: the hosts share this machine's network
  fabric::Subnet subnet_;
  std::unique_ptr<fabric::SubnetManagers> managers_;  // null: the fabric has none
  HostServices hosts_;
  DataPorts data_ports_;
  Captures captures_{data_ports_.traffic()};
  std::optional<OtherMachines> machines_;  // none: all nodes are here
  std::map<std::uint32_t, std::unique_ptr<HostAdministration>> administrations_;  // by host
  std::map<std::uint32_t, std::unique_ptr<HostConnections>> connections_;         // by host
  std::optional<IpInterfaces> interfaces_;  // none: the hosts have no IP over InfiniBand
  Time connections_due_ = Time::never();    // when one of them has something to do
  ManagerFiles manager_files_;
  std::map<std::uint32_t, std::vector<ConnectionService::ChannelNumber>> blocked_;  // by host
  std::vector<std::unique_ptr<Session>> sessions_;
  // Ends of sockets of sessions that are over, whose programs have not read all long datagrams.
  struct LeftUnread {
    Closer::Sender sender = 0;
    pid_t process = 0;
    std::size_t file_bytes = 0;
    UniqueFd datagrams;
  };
  std::vector<LeftUnread> left_unread_;
  std::deque<std::uint32_t> arriving_;  // sessions whose long datagrams are read, in this order
  std::uint32_t next_id_ = 0;           // of the last session
  bool is_stopped_ = false;
  bool has_to_manage_ = true;     // something has happened besides packets with data
  bool has_more_to_end_ = false;  // sessions that are over
  bool has_more_data_ = false;    // packets with data are left to move
  bool waits_for_room_ = false;   // of the socket for other machines
};

}  // namespace tulle::live
