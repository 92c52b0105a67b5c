#include "live/fabric/datagrams.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <optional>
#include <utility>

#include "live/message/socket.h"
#include "os/shared_memory.h"
#include "os/system_error.h"

namespace tulle::live {
namespace {

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

Error no_datagram() { return {"what came is no datagram", EPROTO}; }

Result<UniqueFd> file_of(std::span<const std::byte> bytes) {
  UniqueFd file(memfd_create("tulle datagram", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return system_error("cannot make a file for a datagram");
  while (!bytes.empty()) {
    const ssize_t written = write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return system_error("cannot write a datagram's file");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  if (fcntl(file.get(), F_ADD_SEALS, seals) != 0) {
    return system_error("cannot seal a datagram's file");
  }
  return file;
}

// Returns the size of a file that nobody can change any more. Any other file could keep its reader
// waiting.
std::optional<std::size_t> size_of(const UniqueFd& file) {
  auto size = size_of_shared_memory(file.get());
  const bool is_fixed = size && (fcntl(file.get(), F_GET_SEALS) & F_SEAL_WRITE) != 0;
  if (!is_fixed || *size > datagram_bytes_max) return std::nullopt;
  return *size;
}

// Appends bytes of a file that has them.
bool read_file(const UniqueFd& file, std::size_t count, std::vector<std::byte>& bytes) {
  std::size_t at = bytes.size();
  bytes.resize(at + count);
  while (at < bytes.size()) {
    const ssize_t taken =
        pread(file.get(), bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (taken < 0 && errno == EINTR) continue;
    if (taken <= 0) return false;
    at += static_cast<std::size_t>(taken);
  }
  return true;
}

}  // namespace

Result<void> send_datagram(int socket, Datagram datagram) {
  if (datagram.bytes.size() > datagram_bytes_max) {
    return Error{"the datagram is longer than 64 MiB", EMSGSIZE};
  }
  if (datagram.bytes.size() <= datagram_bytes_in_message) {
    return send_message(socket, encoded(datagram));
  }
  auto file = file_of(std::exchange(datagram.bytes, {}));
  if (!file) return file.error();
  const std::array<int, 1> fds = {file->get()};
  return send_message(socket, encoded(datagram), fds);
}

bool has_room_for_files(std::size_t bytes_of_process, std::size_t bytes_of_all) {
  constexpr std::size_t of_process_min = 1 << 20;
  constexpr std::size_t of_process_max = 128 << 20;
  constexpr std::size_t of_all_max = 1 << 30;
  return bytes_of_process <= of_process_min ||
         (bytes_of_process <= of_process_max && bytes_of_all <= of_all_max);
}

Result<Datagram> receive_datagram(int socket) {
  std::vector<UniqueFd> unused;
  auto arrived = receive_first_bytes(socket, unused);
  if (!arrived) return arrived.error();
  if (auto read = read_more(*arrived, arrived->bytes); !read) return read.error();
  return std::move(arrived->datagram);
}

Result<ArrivedDatagram> receive_first_bytes(int socket, std::vector<UniqueFd>& unused) {
  return first_bytes_of(receive_message(socket, &unused), unused);
}

Result<ArrivedDatagram> first_bytes_of(Result<ReceivedMessage> message,
                                       std::vector<UniqueFd>& unused) {
  if (!message) return message.error();
  unused = std::move(message->fds);
  ArrivedDatagram arrived;
  Datagram& datagram = arrived.datagram;
  if (!decoded(message->bytes, datagram) || unused.size() > 1) return no_datagram();
  arrived.bytes = datagram.bytes.size();
  if (unused.empty()) return arrived;
  const auto size = size_of(unused[0]);
  if (!size) return no_datagram();
  arrived.bytes = *size;
  datagram.bytes.clear();
  const std::size_t first = std::min(*size, ArrivedDatagram::first_bytes);
  if (!read_file(unused[0], first, datagram.bytes)) return no_datagram();
  arrived.file = std::move(unused[0]);
  return arrived;
}

Result<void> read_more(ArrivedDatagram& arrived, std::size_t bytes_max) try {
  std::vector<std::byte>& bytes = arrived.datagram.bytes;
  const std::size_t count = std::min(bytes_max, arrived.bytes - bytes.size());
  if (count == 0) return {};
  bytes.reserve(arrived.bytes);
  if (!read_file(arrived.file, count, bytes)) return no_datagram();
  return {};
} catch (const std::bad_alloc&) {
  return Error{"there is no memory for a datagram", ENOMEM};
}

Result<std::size_t> next_datagram_bytes(int socket) {
  auto message = peek_message(socket);
  if (!message) return message.error();
  Datagram datagram;
  if (!decoded(message->bytes, datagram) || message->fds.size() > 1) return no_datagram();
  if (message->fds.empty()) return datagram.bytes.size();
  const auto size = size_of(message->fds[0]);
  if (!size) return no_datagram();
  return *size;
}

}  // namespace tulle::live
