#pragma once

// Chooses which virtual lane of a port sends next (IBTA 7.6.9). A port has two tables of lanes and
// weights, one of high and one of low priority. The entries of a table take turns. An entry may
// send whole packets while any of its weight is left. The excess of a packet over the weight is not
// charged to the next turn, so that weights of less than a packet mean a packet (Mellanox OFED's
// manual: with an MTU of 4 KB weights should be multiples of 64). The table of high priority comes
// first, until it has sent its limit without an opportunity for the other table.

#include <cstdint>
#include <span>
#include <vector>

namespace tulle::port {

struct VlWeight {
  std::uint8_t lane = 0;
  std::uint8_t weight = 0;  // in units of 64 bytes; 0: the entry is skipped
};

// Settings that a subnet manager writes into a port (IBTA 14.2.5.9, PortInfo's VLHighLimit).
class VlArbitration {
 public:
  static constexpr std::size_t entries_max = 64;  // entries of a table
  // No limit, so that low priority may starve.
  static constexpr std::uint8_t limit_unbounded = 0xFF;

  // OpenSM's default (osm_base.h, OSM_DEFAULT_QOS_VLARB_HIGH and _LOW, and _HIGH_LIMIT): lane 0 in
  // the high table, all others in the low table, with a weight of 4 each, and a limit of 0.
  VlArbitration();
  // The unit of high_limit is 4,096 bytes. 0 means one packet.
  VlArbitration(std::span<const VlWeight> high, std::span<const VlWeight> low,
                std::uint8_t high_limit);

  // Returns the lanes that may send at all, as bits.
  std::uint32_t lanes() const { return high_.lanes | low_.lanes; }

 private:
  friend class VlArbiter;
  struct Table {
    explicit Table(std::span<const VlWeight> from);
    std::vector<VlWeight> entries;  // without the skipped entries
    std::uint32_t lanes = 0;
  };

  // True if this many blocks of high priority, sent since the last of low priority, reach the
  // limit.
  bool is_limit_reached(std::uint32_t blocks) const {
    return high_limit_ != limit_unbounded && blocks > 0 && blocks >= limit_blocks();
  }
  std::uint32_t limit_blocks() const { return std::uint32_t{high_limit_} * 4'096 / 64; }

  Table high_;
  Table low_;
  std::uint8_t high_limit_ = 0;
};

// The turns of one port.
class VlArbiter {
 public:
  // Returns the lane that sends next. `open` has a bit for each lane with a packet and the credits
  // for it; the tables must contain at least one of these lanes. A repeated call returns the same
  // lane, unless `open` has changed.
  std::uint8_t choose(const VlArbitration& tables, std::uint32_t open) {
    const bool high = (open & tables.high_.lanes) != 0;
    const bool low = (open & tables.low_.lanes) != 0;
    from_high_ = high && !(low && tables.is_limit_reached(high_blocks_));
    return from_high_ ? high_.choose(tables.high_, open) : low_.choose(tables.low_, open);
  }
  // Records that a packet of the lane chosen last was sent.
  void sent(std::uint32_t bytes);

 private:
  struct Turn {
    std::uint8_t at = 0xFF;  // index of the current entry; 0xFF: before the first
    std::int16_t left = 0;   // rest of its weight

    std::uint8_t choose(const VlArbitration::Table& table, std::uint32_t open) {
      if (left > 0 && (open >> table.entries[at].lane & 1) != 0) return table.entries[at].lane;
      return advance(table, open);
    }
    std::uint8_t advance(const VlArbitration::Table& table, std::uint32_t open);
  };

  Turn high_;
  Turn low_;
  std::uint16_t high_blocks_ = 0;  // blocks of high priority sent since the last of low
  bool from_high_ = false;
};

}  // namespace tulle::port
