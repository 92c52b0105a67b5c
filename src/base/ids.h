#pragma once

#include <array>
#include <compare>
#include <cstdint>

namespace tulle {

// An identifier that is a number but not arithmetic. Ids of two kinds do not compare, and no id is
// an integer.
template <typename Tag, typename Value>
struct Id {
  Value value = 0;
  constexpr Id() = default;
  constexpr explicit Id(Value v) : value(v) {}
  constexpr auto operator<=>(const Id&) const = default;  // NOLINT(modernize-use-nullptr)
};

using QpNumber = Id<struct QpNumberTag, std::uint32_t>;  // 24 bits (IBTA 9.2.4)
using LocalKey = Id<struct LocalKeyTag, std::uint32_t>;
using RemoteKey = Id<struct RemoteKeyTag, std::uint32_t>;
using Pkey = Id<struct PkeyTag, std::uint16_t>;
using Qkey = Id<struct QkeyTag, std::uint32_t>;
using Lid = Id<struct LidTag, std::uint16_t>;  // a port, within its subnet (IBTA 4.1.3)

// A port has 2^lmc LIDs in a row, one for each of its paths. The first, the port's base LID, is a
// multiple of 2^lmc (IBTA 7.11.1).
constexpr Lid base_of(Lid lid, unsigned lmc) {
  return Lid(static_cast<std::uint16_t>(lid.value >> lmc << lmc));
}
// Path bits beyond the port's are ignored.
constexpr Lid lid_of_path(Lid base, unsigned lmc, unsigned path_bits) {
  return Lid(static_cast<std::uint16_t>(base.value + (path_bits & ((1u << lmc) - 1))));
}

inline constexpr std::uint32_t qp_number_max = 0xFF'FFFF;

inline constexpr Pkey default_pkey{0xFFFF};  // full member of the default partition (IBTA 10.9.1.2)

// A packet sequence number: 24 bits that wrap (IBTA 9.7.2). PSNs are ordered only within half the
// space, so there is no operator<. `distance_from` returns how far this one is behind (<0) or ahead
// (>0) of another.
class Psn {
 public:
  static constexpr std::uint32_t mask = 0xFF'FFFF;

  constexpr Psn() = default;
  constexpr explicit Psn(std::uint32_t value) : value_(value & mask) {}

  constexpr std::uint32_t value() const { return value_; }
  constexpr bool operator==(const Psn&) const = default;
  constexpr Psn operator+(std::uint32_t n) const { return Psn(value_ + n); }
  constexpr Psn operator-(std::uint32_t n) const { return Psn(value_ - n); }
  constexpr Psn& operator++() { return *this = *this + 1; }

  // Returns this minus other in sequence space, in [-2^23, 2^23).
  constexpr std::int32_t distance_from(Psn other) const {
    // The difference has 24 bits with a sign, which the shifts extend to 32.
    return static_cast<std::int32_t>((value_ - other.value_) << 8) >> 8;
  }
  constexpr bool before(Psn other) const { return distance_from(other) < 0; }
  constexpr bool after(Psn other) const { return distance_from(other) > 0; }

 private:
  std::uint32_t value_ = 0;
};

// A global identifier: an IPv6 address in network order. RoCE v2 over IPv4 uses ::ffff:a.b.c.d
// (IBTA A17.4.5).
struct Gid {
  std::array<std::uint8_t, 16> bytes{};

  constexpr auto operator<=>(const Gid&) const = default;  // NOLINT(modernize-use-nullptr)
  constexpr bool is_ipv4_mapped() const {
    for (int i = 0; i < 10; ++i) {
      if (bytes[i] != 0) return false;
    }
    return bytes[10] == 0xFF && bytes[11] == 0xFF;
  }
  constexpr bool is_multicast() const {
    return is_ipv4_mapped() ? (bytes[12] & 0xF0) == 0xE0 : bytes[0] == 0xFF;
  }
  static constexpr Gid from_ipv4(std::uint32_t address) {
    Gid gid;
    gid.bytes[10] = gid.bytes[11] = 0xFF;
    for (int i = 0; i < 4; ++i) gid.bytes[15 - i] = static_cast<std::uint8_t>(address >> (8 * i));
    return gid;
  }
  // Returns the address in host order. Valid only if is_ipv4_mapped().
  constexpr std::uint32_t ipv4() const {
    return static_cast<std::uint32_t>(bytes[12]) << 24 |
           static_cast<std::uint32_t>(bytes[13]) << 16 |
           static_cast<std::uint32_t>(bytes[14]) << 8 | bytes[15];
  }
};

// A port as its peers address it: by GID, on InfiniBand within a subnet by LID, or by both where an
// InfiniBand packet has a GRH. A member that is not used is zero.
struct PortAddress {
  Gid gid;
  Lid lid;

  constexpr PortAddress() = default;
  constexpr PortAddress(const Gid& gid) : gid(gid) {}  // NOLINT(google-explicit-constructor)
  constexpr PortAddress(Lid lid, const Gid& gid = {})  // NOLINT(google-explicit-constructor)
      : gid(gid), lid(lid) {}
  constexpr auto operator<=>(const PortAddress&) const = default;  // NOLINT(modernize-use-nullptr)
};

}  // namespace tulle
