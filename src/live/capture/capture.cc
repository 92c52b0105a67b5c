#include "live/capture/capture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "live/fabric/captures.h"
#include "live/fabric/client.h"
#include "live/path/packets/capture_ring.h"
#include "live/process/agent_client.h"
#include "os/unique_fd.h"
#include "os/users.h"
#include "rdma/pcapng/erf.h"
#include "rdma/pcapng/pcapng.h"
#include "rdma/wire/flow_control.h"
#include "rdma/wire/ip_udp.h"

namespace tulle::live {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int look_milliseconds = 2;
// A process may be interrupted between taking a frame's time and handing the frame over. The frames
// of its peers wait this long for it.
constexpr std::int64_t hold_back_nanoseconds = 10'000'000;

// Times of frames are within so many nanoseconds of the capture's beginning. A process may write
// any time, and a Time reaches 106 days.
constexpr std::int64_t times_nanoseconds = 100LL * 24 * 3600 * 1'000'000'000;

// The frames of one process. The oldest of them is read ahead into `frame` and `bytes`.
struct Source {
  CaptureRing ring;
  std::uint32_t interface = 0;
  std::string name{};                          // of a process
  std::optional<std::uint32_t> of_ethernet{};  // the interface of its RoCE v1's frames
  bool is_fabric = false;                      // frames begin with the port that sent them
  std::uint64_t frames = 0;
  // Bytes that may still be read in this turn, so that no process keeps the capture from others.
  std::uint64_t turn_bytes = 0;
  bool has_frame = false;
  CapturedFrame frame{};
  std::vector<std::byte> bytes{};
};

// The kernel computes a UDP checksum after the frame was mirrored. This function fills it in, for
// readers that check it.
void fill_in_checksum(std::span<std::byte> frame, std::uint32_t original_bytes) {
  wire::IpUdp headers;
  if (frame.size() != original_bytes) return;
  const wire::DecodedIpUdp decoded = wire::decode(frame, headers);
  if (!decoded.ok || headers.udp_checksum != 0) return;
  const std::span<const std::byte> payload = frame.subspan(decoded.header_bytes);
  headers.udp_checksum = wire::udp_checksum(headers, {&payload, 1});
  wire::encode(headers, payload.size(), frame);
}

class CaptureFile {
 public:
  CaptureFile(const CaptureOptions& options, int out)
      : options_(options), out_(out), epoch_(unix_nanoseconds()), file_(epoch_) {}

  bool begin() {
    file_.section_header(buffer_, fmt::format("Tulle {}", TULLE_VERSION));
    return flush();
  }
  void add(const CaptureSource& process, CaptureRing ring);
  // Adds the links of a fabric. The names are those of its nodes.
  void add_fabric(CaptureRing ring, std::vector<std::string> names);
  // Writes frames in the order of their times, as long as they are older than `before`, and of each
  // process no more than its ring holds. Returns false, with errno, if the file cannot be written.
  bool write_until(std::int64_t before);
  bool end();

  bool is_complete() const { return options_.count && written_ >= *options_.count; }
  std::uint64_t written() const { return written_; }
  std::uint64_t dropped() const {
    std::uint64_t sum = 0;
    for (const Source& source : sources_) sum += source.ring.dropped();
    return sum;
  }
  std::size_t processes() const { return sources_.size(); }
  std::size_t ports() const { return interfaces_.size(); }  // of a fabric, that sent something

 private:
  Source* oldest();
  void write_frame(Source& source);
  void write_packet(const Source& source);
  void write_flow_control(const Source& source, const CapturedAt& at, Time when);
  std::uint32_t interface_of(const CapturedAt& at);
  std::uint32_t interface_of_ethernet(Source& source);
  bool flush();
  Time time_of(std::int64_t unix_ns) const {
    const std::int64_t near =
        std::clamp(unix_ns, epoch_ - times_nanoseconds, epoch_ + times_nanoseconds);
    return Time::nanoseconds(near - epoch_);
  }

  CaptureOptions options_;
  int out_;
  std::int64_t epoch_;
  pcapng::Writer file_;
  pcapng::Writer::Buffer buffer_;
  std::deque<Source> sources_;
  std::vector<std::string> nodes_;                                               // of a fabric
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> interfaces_;  // by node and port
  std::uint64_t written_ = 0;
};

void CaptureFile::add(const CaptureSource& process, CaptureRing ring) {
  const std::string name = fmt::format("{} {}[{}]", process.device, process.command, process.pid);
  pcapng::CaptureInterface interface;
  interface.name = name;
  interface.link_type = pcapng::LinkType::ip;
  interface.snap_length = options_.snap_length;
  sources_.push_back({std::move(ring), file_.interface(buffer_, interface), name});
}

void CaptureFile::add_fabric(CaptureRing ring, std::vector<std::string> names) {
  nodes_ = std::move(names);
  sources_.push_back({std::move(ring), 0, {}, {}, true});
}

// Returns the interface of a port, which is made when it is first seen. A port that the fabric does
// not have may be in the ring only if the fabric's process is damaged.
std::uint32_t CaptureFile::interface_of(const CapturedAt& at) {
  constexpr std::uint32_t ports_max = 255;
  const std::pair key{std::min<std::uint32_t>(at.node, static_cast<std::uint32_t>(nodes_.size())),
                      std::min(at.port, ports_max)};
  const auto found = interfaces_.find(key);
  if (found != interfaces_.end()) return found->second;
  pcapng::CaptureInterface interface;
  const std::string node = key.first < nodes_.size() ? nodes_[key.first] : "unknown";
  interface.name = fmt::format("{} port {}", node, key.second);
  interface.link_type = pcapng::LinkType::erf;
  interface.snap_length = options_.snap_length;
  return interfaces_[key] = file_.interface(buffer_, interface);
}

// Writes a packet of a fabric as an ERF record, behind the port that sent it.
void CaptureFile::write_packet(const Source& source) {
  CapturedAt at;
  if (source.bytes.size() < sizeof at) return;
  std::memcpy(&at, source.bytes.data(), sizeof at);
  constexpr std::uint32_t packet_bytes_max = 0xFFFF - pcapng::erf_header_bytes;
  const Time when = time_of(source.frame.unix_nanoseconds);
  const std::uint32_t original = std::min(source.frame.original_bytes, packet_bytes_max);
  if (original == wire::flow_control_bytes) return write_flow_control(source, at, when);
  const auto header = pcapng::erf_header(when, pcapng::ErfType::infiniband, original, false);
  const std::array<std::span<const std::byte>, 2> pieces = {
      header, std::span(source.bytes).subspan(sizeof at)};
  const auto all = static_cast<std::uint32_t>(original + header.size());
  file_.packet(buffer_, when, pcapng::Direction::outbound, interface_of(at), pieces, all);
}

void CaptureFile::write_flow_control(const Source& source, const CapturedAt& at, Time when) {
  const auto packet = std::span(source.bytes).subspan(sizeof at);
  std::array<std::byte, pcapng::erf_link_bytes> filled{};
  std::copy_n(packet.begin(), std::min(packet.size(), filled.size()), filled.begin());
  const auto header =
      pcapng::erf_header(when, pcapng::ErfType::infiniband_link, filled.size(), false);
  const std::array<std::span<const std::byte>, 2> pieces = {header, filled};
  file_.packet(buffer_, when, pcapng::Direction::outbound, interface_of(at), pieces,
               header.size() + filled.size());
}

// A process's frames of Ethernet have a separate interface in the file, which is made when the
// first is seen: an interface has one link type.
std::uint32_t CaptureFile::interface_of_ethernet(Source& source) {
  if (!source.of_ethernet) {
    pcapng::CaptureInterface interface;
    interface.name = source.name + " Ethernet";
    interface.link_type = pcapng::LinkType::ethernet;
    interface.snap_length = options_.snap_length;
    source.of_ethernet = file_.interface(buffer_, interface);
  }
  return *source.of_ethernet;
}

void CaptureFile::write_frame(Source& source) {
  if (source.is_fabric) return write_packet(source);
  if (!source.frame.is_ethernet) fill_in_checksum(source.bytes, source.frame.original_bytes);
  const std::uint32_t interface =
      source.frame.is_ethernet ? interface_of_ethernet(source) : source.interface;
  const std::span<const std::byte> bytes = source.bytes;
  file_.packet(buffer_, time_of(source.frame.unix_nanoseconds),
               source.frame.outbound ? pcapng::Direction::outbound : pcapng::Direction::inbound,
               interface, {&bytes, 1}, source.frame.original_bytes);
}

Source* CaptureFile::oldest() {
  Source* oldest = nullptr;
  for (Source& source : sources_) {
    const bool is_wanted_in = options_.direction != CaptureDirection::out;
    const bool is_wanted_out = options_.direction != CaptureDirection::in;
    while (!source.has_frame && source.turn_bytes > 0 &&
           source.ring.read(source.frame, source.bytes)) {
      source.turn_bytes -= std::min(source.turn_bytes, CaptureRing::bytes_of(source.bytes.size()));
      source.has_frame = source.frame.outbound ? is_wanted_out : is_wanted_in;
    }
    if (!source.has_frame) continue;
    if (oldest == nullptr || source.frame.unix_nanoseconds < oldest->frame.unix_nanoseconds) {
      oldest = &source;
    }
  }
  return oldest;
}

bool CaptureFile::write_until(std::int64_t before) {
  constexpr std::size_t flush_bytes = 1 << 20;
  for (Source& source : sources_) source.turn_bytes = source.ring.bytes_max();
  while (!is_complete()) {
    Source* source = oldest();
    if (source == nullptr || source->frame.unix_nanoseconds >= before) break;
    write_frame(*source);
    source->has_frame = false;
    ++source->frames;
    ++written_;
    if (buffer_.size() >= flush_bytes && !flush()) return false;
  }
  return flush();
}

bool CaptureFile::end() {
  for (const Source& source : sources_) {
    if (source.is_fabric && interfaces_.empty()) continue;  // nothing was sent
    file_.statistics(buffer_, time_of(unix_nanoseconds()), source.interface,
                     source.frames + source.ring.dropped(), source.ring.dropped());
  }
  return flush();
}

bool CaptureFile::flush() {
  std::span<const std::byte> rest = buffer_;
  while (!rest.empty()) {
    const ssize_t written = write(out_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    rest = rest.subspan(static_cast<std::size_t>(written));
  }
  buffer_.clear();
  return true;
}

// Takes in a message of the host agent that announces a process.
void take_in(CaptureFile& file, ReceivedMessage& message) {
  CaptureSource process;
  if (!decode(message.bytes, process) || message.fds.empty()) return;
  auto ring = CaptureRing::map(std::move(message.fds[0]));
  if (ring) file.add(process, std::move(*ring));
}

// Takes in all messages that have come. Returns false if the other end is gone.
bool take_in_all(CaptureFile& file, int connection) {
  for (;;) {
    auto message = receive_message(connection);
    if (!message) return message.error().error_number == EAGAIN;
    take_in(file, *message);
  }
}

Result<UniqueFd> begin_at_agent(const CaptureOptions& options) {
  Hello hello;
  hello.purpose = Purpose::capture;
  hello.command = "tulle capture";
  hello.ring_bytes = options.ring_bytes;
  hello.snap_length = options.snap_length;
  auto answer = ask_agent(options.settings, hello, IfAbsent::start);
  if (!answer) return answer.error();
  return std::move(answer->connection);
}

Result<UniqueFd> begin_at_fabric(CaptureFile& file, const CaptureOptions& options) {
  auto status = fabric_status(options.fabric);
  if (!status) return status.error();
  std::vector<std::string> names;
  for (const FabricNode& node : status->nodes) names.push_back(node.name);
  auto begun = capture_fabric(options.fabric, options.ring_bytes, options.snap_length,
                              options.has_flow_control);
  if (!begun) return begun.error();
  file.add_fabric(std::move(begun->ring), std::move(names));
  return std::move(begun->connection);
}

}  // namespace

// Another user may have made the file, or a link in its place.
Result<UniqueFd> open_capture_file(const std::string& name) {
  const auto failed = [&] {
    return Error{fmt::format("cannot write {}: {}", name, std::strerror(errno)), errno};
  };
  if (name == "-") return UniqueFd(dup(STDOUT_FILENO));
  constexpr mode_t own = 0600;  // packets hold what programs sent
  constexpr int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK;
  UniqueFd out(open(name.c_str(), flags | O_NOFOLLOW, own));
  struct stat its {};
  if (!out && errno == ELOOP) {
    if (lstat(name.c_str(), &its) != 0) return failed();
    if (!is_trusted(its.st_uid)) {
      return Error{
          fmt::format("cannot write {}: the link belongs to {}", name, user_text(its.st_uid)),
          EPERM};
    }
    out.reset(open(name.c_str(), flags, own));
  }
  if (!out && errno == ENXIO && stat(name.c_str(), &its) == 0 && S_ISFIFO(its.st_mode)) {
    return Error{
        fmt::format("cannot write {}: nobody reads from this FIFO; start its reader first", name),
        ENXIO};
  }
  // From here on, a reader that is slow is waited for.
  if (!out || fstat(out.get(), &its) != 0 || fcntl(out.get(), F_SETFL, 0) != 0) return failed();
  const bool is_file = S_ISREG(its.st_mode);
  if ((is_file || S_ISFIFO(its.st_mode)) && !is_trusted(its.st_uid)) {
    return Error{
        fmt::format(
            "cannot write {}: it belongs to {}, who could read the packets; name another file",
            name, user_text(its.st_uid)),
        EPERM};
  }
  if (is_file && its.st_uid == geteuid() && fchmod(out.get(), own) != 0) return failed();
  if (is_file && ftruncate(out.get(), 0) != 0) return failed();
  return out;
}

Result<Captured> capture(const CaptureOptions& options, int out, int stop) {
  CaptureFile file(options, out);
  auto connection =
      options.fabric.empty() ? begin_at_agent(options) : begin_at_fabric(file, options);
  if (!connection) return connection.error();
  const auto started = Clock::now();
  bool is_written = file.begin();
  bool is_over = false;
  Captured captured;
  while (is_written && !is_over && !file.is_complete()) {
    pollfd sources[] = {{connection->get(), POLLIN, 0}, {stop, POLLIN, 0}};
    poll(sources, 2, look_milliseconds);
    captured.is_stopped = sources[1].revents != 0;
    is_over = !take_in_all(file, connection->get()) || captured.is_stopped;
    const std::chrono::duration<double> elapsed = Clock::now() - started;
    is_over = is_over || (options.duration_seconds && elapsed.count() >= *options.duration_seconds);
    is_written = file.write_until(is_over ? INT64_MAX : unix_nanoseconds() - hold_back_nanoseconds);
  }
  is_written = is_written && file.end();
  if (!is_written && errno != EPIPE) {
    return Error{fmt::format("cannot write {}: {}", options.output, std::strerror(errno)), errno};
  }
  captured.frames = file.written();
  captured.missing = file.dropped();
  captured.sources = options.fabric.empty() ? file.processes() : file.ports();
  return captured;
}

}  // namespace tulle::live
