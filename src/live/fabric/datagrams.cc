#include "live/fabric/datagrams.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
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

bool read_file(const UniqueFd& file, std::vector<std::byte>& bytes) {
  const auto size = size_of(file);
  if (!size) return false;
  bytes.resize(*size);
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t count =
        pread(file.get(), bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += static_cast<std::size_t>(count);
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

Result<Datagram> receive_datagram(int socket) {
  auto message = receive_message(socket);
  if (!message) return message.error();
  Datagram datagram;
  if (!decoded(message->bytes, datagram) || message->fds.size() > 1) return no_datagram();
  if (message->fds.size() == 1 && !read_file(message->fds[0], datagram.bytes)) {
    return no_datagram();
  }
  return datagram;
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
