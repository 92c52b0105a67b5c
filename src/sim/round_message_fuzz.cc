// Lets another process send anything to a network of two, round after round. It is taken for
// damaged, or played: frames of any kind and place, notices, flow control, alarms and requests,
// none of which may reach beyond the network, or into a round that is over.
//
// The first byte says which network it is, and whether the other process says when the earliest of
// its events is (below 128), as it must, or when the latest is. Then come the messages: how many
// bytes each has (16 bits), and these. They are the numbers of requests, frames, bytes of payload,
// notices and events (64 bits each) and these lists, which cross to part 0. Anything else is sent
// as it is. The headers of frames are replaced by ones that can be read, since an adapter's own
// packets are not checked once more where they arrive.
// libFuzzer: -max_len=8000

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

#include "fabric/routing.h"
#include "fabric/topology.h"
#include "rdma/wire/packet.h"
#include "sim/network.h"
#include "sim/round_message_test.h"

namespace tulle::sim {
namespace {

constexpr std::uint32_t hosts = 4;
constexpr std::uint32_t refused_token = 7;

// This application takes any token that is not refused_token, but is called for its own hosts
// alone.
class Nobody final : public Application {
 public:
  void handle_completions(Time, std::uint32_t host) override { TULLE_CHECK(host < hosts / 2); }
  void handle_alarm(Time, std::uint32_t host, std::uint32_t token) override {
    TULLE_CHECK(host < hosts / 2 && token != refused_token);
  }
  void meet_request(std::uint32_t host, std::uint32_t token, std::uint32_t) override {
    TULLE_CHECK(host < hosts / 2 && token != refused_token);
  }
  bool accepts_alarm(std::uint32_t host, std::uint32_t token) const override {
    TULLE_CHECK(host < hosts / 2);
    return token != refused_token;
  }
  bool accepts_request(std::uint32_t host, std::uint32_t token, std::uint32_t) const override {
    TULLE_CHECK(host < hosts / 2);
    return token != refused_token;
  }
  bool goes_on() override { return true; }
};

class OtherProcess final : public Processes {
 public:
  OtherProcess(std::span<const std::byte> script, bool is_honest)
      : script_(script), is_honest_(is_honest) {}

  std::uint32_t number() const override { return 0; }
  std::uint32_t count() const override { return 2; }
  void exchange_pieces(const std::vector<Pieces>&, std::vector<Bytes>& from) override {
    RoundReport report{++round_, Time::never().ps, Time::never().ps, 1};
    std::uint16_t length = 0;
    std::span<const std::byte> bytes;
    if (script_.size() > sizeof length) {
      std::memcpy(&length, script_.data(), sizeof length);
      script_ = script_.subspan(sizeof length);
      bytes = script_.first(std::min<std::size_t>(length, script_.size()));
      script_ = script_.subspan(bytes.size());
    }
    Crossing crossing;
    if (read_crossing(bytes, crossing)) {
      for (port::Frame& frame : crossing.frames) give_header(frame);
      note(crossing, report);
      from[1] = message_of(report);
      add_share(0, crossing, from[1]);
      return;
    }
    from[1] = message_of(report);
    Packer(from[1]).add_all(bytes);
    // Such frames have headers that no adapter sends.
    const auto read = read_message(from[1]);
    const bool has_frames = read && std::ranges::any_of(read->shares, [](const Share& share) {
                              return !share.crossing.frames.empty();
                            });
    if (has_frames) from[1] = message_of(report);
  }

 private:
  static constexpr std::int64_t round_ps = 1'000'000;

  // Puts what the script has of a message into a crossing: the numbers of its lists, and these.
  // Returns false if it is something else.
  static bool read_crossing(std::span<const std::byte> bytes, Crossing& crossing) {
    Unpacker unpacker(bytes);
    std::array<std::uint64_t, 5> counts{};
    return unpacker.take(counts) && unpacker.take_all(counts[0], crossing.requests) &&
           unpacker.take_all(counts[1], crossing.frames) &&
           unpacker.take_all(counts[1], crossing.arrivals) &&
           unpacker.take_all(counts[2], crossing.payloads) &&
           unpacker.take_all(counts[3], crossing.notices) &&
           unpacker.take_all(counts[4], crossing.events) && unpacker.is_empty();
  }
  static void give_header(port::Frame& frame) {
    wire::Packet packet;
    packet.opcode = wire::opcode(wire::TransportClass::rc, wire::Operation::send_only);
    packet.destination_qp = QpNumber{0xABCD};
    frame.headers = 0;
    frame.header_bytes = wire::encode(packet, frame.header) & 0x3F;
  }
  // Says when the earliest of the events is, as a process does, or the latest one.
  void note(const Crossing& crossing, RoundReport& report) const {
    std::vector<std::int64_t> times;
    for (const Event& event : crossing.arrivals) times.push_back(event.at);
    for (const auto& at : crossing.notices) times.push_back(at.event.at);
    for (const Event& event : crossing.events) times.push_back(event.at);
    if (times.empty()) return;
    report.earliest_event =
        is_honest_ ? *std::ranges::min_element(times) : *std::ranges::max_element(times);
    if (Time{report.earliest_event}.is_never()) return;
    report.earliest_round = report.earliest_event - report.earliest_event % round_ps;
  }

  std::span<const std::byte> script_;
  bool is_honest_;  // says when the earliest of its events is, and not the latest
  std::uint64_t round_ = 0;
};

NetworkSettings settings_of(std::byte kind) {
  NetworkSettings settings;
  switch (std::to_integer<unsigned>(kind) % 3) {
    case 0:
      settings.switches.flow_control = port::FlowControl::pfc;
      break;
    case 1:
      settings.link_layer = LinkLayer::infiniband;
      settings.switches.flow_control = port::FlowControl::credits;
      settings.endpoints.enabled = true;
      break;
    default:
      settings.switches.flow_control = port::FlowControl::none;
      break;
  }
  return settings;
}

}  // namespace
}  // namespace tulle::sim

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tulle;
  using namespace tulle::sim;
  const std::span<const std::byte> script = std::as_bytes(std::span(data, size));
  if (script.empty()) return 0;
  static const auto topology =
      *fabric::single_switch({hosts, {100'000'000'000, Time::microseconds(1)}});
  static const auto routes = *fabric::compute_routes(topology, {});
  const bool is_honest = (script.front() & std::byte{0x80}) == std::byte{0};
  OtherProcess other(script.subspan(1), is_honest);
  Nobody nobody;
  Network network(topology, routes, settings_of(script.front()), nullptr, &other);
  try {
    network.play(Time::microseconds(40), nobody);
  } catch (const std::runtime_error& error) {
    TULLE_CHECK(std::string_view(error.what()) == "rank 1 has sent a damaged message");
  }
  return 0;
}
