#pragma once

// The parts of a software fabric's process: server.cc has its loop, and sessions.cc the messages of
// programs.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fabric/subnet.h"
#include "fabric/subnet_managers.h"
#include "live/clock.h"
#include "live/fabric/captures.h"
#include "live/fabric/data_ports.h"
#include "live/fabric/host_administration.h"
#include "live/fabric/host_clients.h"
#include "live/fabric/host_networks.h"
#include "live/fabric/host_services.h"
#include "live/fabric/ip_interfaces.h"
#include "live/fabric/manager_files.h"
#include "live/fabric/messages.h"
#include "live/fabric/other_machines.h"
#include "live/fabric/session.h"
#include "live/fabric/session_list.h"
#include "live/fabric/surroundings.h"
#include "live/fabric/unclosed_descriptors.h"
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
  std::unique_ptr<fabric::SubnetManagers> managers_of(const FabricOptions& options);
  // Returns the time. Its zero moves only between turns.
  Time now() const { return clock_.peek(); }
  void rebase(Time by);
  void watch(int fd, void* of, EventKind kind = EventKind::session);
  void handle(const epoll_event& event);
  Time next_management() const;
  Time next_event() const;
  void turn();
  void manage();
  void accept_all();
  void end_finished();
  void end(Session& session);
  void close_read();
  void read_long_datagrams();
  bool read_long_datagram(Session& session, std::size_t& bytes_left);
  void take_network(HostNetworks::Answer answer);
  void pass_reregistrations();
  void tell_of_port(Session& session);
  void deliver(HostServices::Delivery delivery);
  void refuse(Session& session, const std::string& reason);

  // sessions.cc: the messages
  void handle(Session& session);
  void hear(Session& session);
  void take_datagrams(Session& session);
  bool refuses_to_read(Session& session, int socket);
  void handle_message(Session& session, ReceivedMessage& message);
  void greet(Session& session, const FabricHello& hello, std::vector<UniqueFd>& fds);
  void greet_program(Session& session, const FabricHello& hello, std::vector<UniqueFd>& fds);
  void open_port(Session& session, std::uint32_t host);
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

  DriverClock clock_;
  UnclosedDescriptors unclosed_;  // before all that has descriptors
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
  HostClients clients_;
  std::optional<IpInterfaces> interfaces_;  // none: the hosts have no IP over InfiniBand
  ManagerFiles manager_files_;
  SessionList sessions_;
  std::deque<std::uint32_t> arriving_;  // sessions whose long datagrams are read, in this order
  bool is_stopped_ = false;
  bool has_to_manage_ = true;     // something has happened besides packets with data
  bool has_more_to_end_ = false;  // sessions that are over
  bool has_more_data_ = false;    // packets with data are left to move
  bool waits_for_room_ = false;   // of the socket for other machines
};

}  // namespace tulle::live
