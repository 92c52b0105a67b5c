#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "live/connections/connection_service.h"
#include "live/fabric/datagrams.h"
#include "live/fabric/messages.h"
#include "live/message/closer.h"
#include "os/unique_fd.h"

namespace tulle::live {

// A connection of a program, and the port that it may have opened.
struct FabricSession {
  UniqueFd connection;
  UniqueFd datagrams;  // this end
  std::uint32_t id = 0;
  pid_t process = 0;                        // that connected; 0: the system does not say
  std::optional<std::uint32_t> host;        // whose port is open for datagrams
  std::size_t unread_file_bytes = 0;        // at most, of long datagrams for the program
  std::optional<ArrivedDatagram> arriving;  // whose file is read next; later ones wait behind it
  std::optional<std::uint32_t> data_host;   // whose port is open for data
  std::optional<std::uint32_t> entered;     // whose network is being made for the program
  std::optional<std::uint32_t> connects;    // whose connection manager has the program's channel
  ConnectionService::ChannelNumber channel = 0;
  InfinibandPort told;              // data: the port as the program was told last
  bool must_register_anew = false;  // data: and the program has not been told
  bool has_said = false;            // anything yet
  bool captures = false;
  bool is_over = false;

  // Returns who sends what comes by it. The system does not say which processes of other PID
  // namespaces are the same.
  Closer::Sender sender() const {
    constexpr Closer::Sender of_no_process = 1u << 31;
    return process > 0 ? static_cast<Closer::Sender>(process) : of_no_process | id;
  }
};

}  // namespace tulle::live
