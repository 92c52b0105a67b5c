#pragma once

// The link to processes of the same host: packets in rings (live/path/memory/host_packets.h), and
// the direct path, by which WRITEs and READs take no packets at all (live/path/memory/host_path.h).

#include <cstdint>
#include <memory>
#include <utility>

#include "live/link.h"
#include "live/path/memory/host_packets.h"
#include "live/path/memory/host_path.h"

namespace tulle::live {

class HostLink final : public Link {
 public:
  HostLink(std::unique_ptr<HostPath> path, HostPackets::IsLocal is_local)
      : path_(std::move(path)), packets_(path_->peers(), std::move(is_local)) {}

  HostPath& path() { return *path_; }

  Offer offer(device::Datagram& datagram, Time now) override {
    return packets_.offer(datagram, now);
  }
  Flushed flush(Time now) override { return packets_.flush(now); }
  [[nodiscard]] bool resume(Time now) override {
    path_->begin_turn();
    packets_.meet_peers();
    return packets_.resume(now);
  }
  Time next_deadline() const override { return packets_.next_deadline(); }
  // The caller may not poll while a long transfer is under way, but look at its memory.
  bool must_continue() const override { return path_->has_unfinished(); }

  int receive(device::Adapter& adapter, Time now) override {
    return packets_.receive(adapter, now);
  }
  bool is_by_memory() const override { return true; }
  bool is_unfinished() const override { return packets_.is_unfinished(); }
  void note_ring() override { packets_.note_ring(); }
  void set_polled(bool is_polled) override { packets_.set_polled(is_polled); }
  std::uint64_t packets_by_memory() const override { return packets_.packets_by_memory(); }

  void begin_thread() override { path_->peers().live_with_this_thread(); }
  void set_captured(bool is_captured) override { path_->set_open(!is_captured); }
  void count(DriverCounters& counters) override;
  void rebase(Time by) override { packets_.rebase(by); }
  void forget_in_child(int) override { path_->forget_in_child(); }

 private:
  std::unique_ptr<HostPath> path_;
  HostPackets packets_;
};

}  // namespace tulle::live
