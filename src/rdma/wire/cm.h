#pragma once

// Messages of the connection manager (IBTA 12.6). Each follows a MadHeader and fills the MAD. Also
// the front of a request's private data where the service is an IP port (IBTA annex A11).

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/big_endian.h"
#include "base/ids.h"
#include "rdma/wire/header.h"
#include "rdma/wire/mad.h"

namespace tulle::wire::cm {

inline constexpr std::uint8_t management_class = 0x07;  // IBTA 13.4.4
inline constexpr std::uint8_t class_version = 2;
inline constexpr std::uint8_t method_send = 0x03;  // IBTA 13.4.5: the only one that CM uses
inline constexpr std::size_t message_bytes = mad_bytes - sizeof(MadHeader);

// CM attributes (IBTA 16.7.2).
enum class Attribute : std::uint16_t {
  request = 0x0010,
  message_receipt_acknowledgement = 0x0011,
  reject = 0x0012,
  reply = 0x0013,
  ready_to_use = 0x0014,
  disconnect_request = 0x0015,
  disconnect_reply = 0x0016,
  service_id_request = 0x0017,
  service_id_reply = 0x0018,
  load_alternate_path = 0x0019,
  alternate_path_response = 0x001A,
};

// A part of a byte: `width` bits, of which the lowest is bit `shift`.
template <unsigned shift, unsigned width>
class BitField {
 public:
  static constexpr std::uint8_t mask = ((1u << width) - 1) << shift;
  static constexpr std::uint8_t of(std::uint8_t byte) {
    return static_cast<std::uint8_t>((byte & mask) >> shift);
  }
  static constexpr void set(std::uint8_t& byte, unsigned value) {
    byte = static_cast<std::uint8_t>((byte & ~mask) | ((value << shift) & mask));
  }
};

// One path of a REQ (IBTA 12.6.5). RoCE has no LIDs and sends 0xFFFF.
struct Path {
  using SubnetLocal = BitField<3, 1>;  // in `service_level`
  using ServiceLevel = BitField<4, 4>;
  using AckTimeout = BitField<3, 5>;  // in `ack_timeout`: 4.096 us * 2^value
  static constexpr unsigned flow_label_shift = 12;

  be16 local_lid;
  be16 remote_lid;
  Gid local;
  Gid remote;
  be32 flow_label_and_rate;  // flow label 20, reserved 6, packet rate 6
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t service_level = 0;
  std::uint8_t ack_timeout = 0;
};
static_assert(is_wire_format<Path, 44>);

struct Request {
  static constexpr Attribute attribute = Attribute::request;
  using FlowControl = BitField<0, 1>;  // in `service_type`
  using ServiceType = BitField<1, 2>;
  using RemoteResponseTimeout = BitField<3, 5>;
  using RetryCount = BitField<0, 3>;  // in `retry_count`
  using LocalResponseTimeout = BitField<3, 5>;
  using RnrRetryCount = BitField<0, 3>;  // in `mtu`
  using RdcExists = BitField<3, 1>;
  using PathMtu = BitField<4, 4>;                // IBTA's code: 1 is 256 bytes, 5 is 4096
  using ExtendedTransportType = BitField<0, 3>;  // in `max_retries`
  using Srq = BitField<3, 1>;
  using MaxRetries = BitField<4, 4>;
  static constexpr std::uint8_t service_rc = 0, service_uc = 1, service_rd = 2;
  static constexpr std::uint8_t service_extended = 3;  // ExtendedTransportType names the service
  static constexpr std::uint8_t extended_xrc = 1;

  be32 local_id;
  be32 reserved1;
  be64 service_id;
  be64 local_ca_guid;
  be32 reserved2;
  be32 local_qkey;
  be24 local_qp;
  std::uint8_t responder_resources = 0;
  be24 local_eecn;
  std::uint8_t initiator_depth = 0;
  be24 remote_eecn;
  std::uint8_t service_type = 0;
  be24 starting_psn;
  std::uint8_t retry_count = 0;
  be16 pkey;
  std::uint8_t mtu = 0;
  std::uint8_t max_retries = 0;
  Path primary;
  Path alternate;
  std::array<std::byte, 92> private_data{};
};
static_assert(is_wire_format<Request, message_bytes>);

// The message that a REJ or an MRA answers (IBTA 12.6.6, 12.6.7).
enum class Subject : std::uint8_t { request = 0, reply = 1, other = 2 };

struct MessageReceiptAcknowledgement {
  static constexpr Attribute attribute = Attribute::message_receipt_acknowledgement;
  using Message = BitField<6, 2>;         // in `message`: Subject, where `other` is a LAP
  using ServiceTimeout = BitField<3, 5>;  // in `service_timeout`: 4.096 us * 2^value

  be32 local_id;
  be32 remote_id;
  std::uint8_t message = 0;
  std::uint8_t service_timeout = 0;
  std::array<std::byte, 222> private_data{};
};
static_assert(is_wire_format<MessageReceiptAcknowledgement, message_bytes>);

// Reasons of a REJ (IBTA 12.6.7.2).
enum class Reason : std::uint16_t {
  no_qp = 1,
  no_resources = 3,
  timeout = 4,
  unsupported = 5,
  invalid_communication_id = 6,
  invalid_service_id = 8,
  invalid_transport_type = 9,
  stale_connection = 10,
  invalid_path_mtu = 26,
  consumer = 28,
  invalid_class_version = 31,
};

struct Reject {
  static constexpr Attribute attribute = Attribute::reject;
  using Message = BitField<6, 2>;     // in `message`: Subject
  using InfoLength = BitField<1, 7>;  // in `info_length`: bytes of info

  be32 local_id;
  be32 remote_id;
  std::uint8_t message = 0;
  std::uint8_t info_length = 0;
  be16 reason;
  std::array<std::byte, 72> info{};
  std::array<std::byte, 148> private_data{};
};
static_assert(is_wire_format<Reject, message_bytes>);

struct Reply {
  static constexpr Attribute attribute = Attribute::reply;
  using FlowControl = BitField<0, 1>;  // in `ack_delay`
  using FailoverAccepted = BitField<1, 2>;
  using TargetAckDelay = BitField<3, 5>;
  using Srq = BitField<4, 1>;  // in `rnr_retry_count`
  using RnrRetryCount = BitField<5, 3>;

  be32 local_id;
  be32 remote_id;
  be32 local_qkey;
  be24 local_qp;
  std::uint8_t reserved1 = 0;
  be24 local_eecn;
  std::uint8_t reserved2 = 0;
  be24 starting_psn;
  std::uint8_t reserved3 = 0;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t ack_delay = 0;
  std::uint8_t rnr_retry_count = 0;
  be64 local_ca_guid;
  std::array<std::byte, 196> private_data{};
};
static_assert(is_wire_format<Reply, message_bytes>);

struct ReadyToUse {
  static constexpr Attribute attribute = Attribute::ready_to_use;
  be32 local_id;
  be32 remote_id;
  std::array<std::byte, 224> private_data{};
};
static_assert(is_wire_format<ReadyToUse, message_bytes>);

struct DisconnectRequest {
  static constexpr Attribute attribute = Attribute::disconnect_request;
  be32 local_id;
  be32 remote_id;
  be24 remote_qp;
  std::uint8_t reserved = 0;
  std::array<std::byte, 220> private_data{};
};
static_assert(is_wire_format<DisconnectRequest, message_bytes>);

struct DisconnectReply {
  static constexpr Attribute attribute = Attribute::disconnect_reply;
  be32 local_id;
  be32 remote_id;
  std::array<std::byte, 224> private_data{};
};
static_assert(is_wire_format<DisconnectReply, message_bytes>);

// A service ID resolution request (SIDR), for datagrams (IBTA 12.11).
struct ServiceIdRequest {
  static constexpr Attribute attribute = Attribute::service_id_request;
  be32 request_id;
  be16 pkey;
  be16 reserved;
  be64 service_id;
  std::array<std::byte, 216> private_data{};
};
static_assert(is_wire_format<ServiceIdRequest, message_bytes>);

// Status of a SIDR reply (IBTA 12.11.2).
enum class ServiceStatus : std::uint8_t {
  valid = 0,
  unsupported_service = 1,
  rejected = 2,
  no_qp = 3,
  redirected = 4,
  unsupported_version = 5,
};

struct ServiceIdReply {
  static constexpr Attribute attribute = Attribute::service_id_reply;
  be32 request_id;
  std::uint8_t status = 0;
  std::uint8_t info_length = 0;
  be16 reserved1;
  be24 qp;
  std::uint8_t reserved2 = 0;
  be64 service_id;
  be32 qkey;
  std::array<std::byte, 72> info{};
  std::array<std::byte, 136> private_data{};
};
static_assert(is_wire_format<ServiceIdReply, message_bytes>);

// The rest of a LAP describes the path, which Tulle does not read.
struct LoadAlternatePath {
  static constexpr Attribute attribute = Attribute::load_alternate_path;
  be32 local_id;
  be32 remote_id;
  std::array<std::byte, 224> rest{};
};
static_assert(is_wire_format<LoadAlternatePath, message_bytes>);

// APR status (IBTA 12.6.9).
enum class PathStatus : std::uint8_t { loaded = 0, invalid_communication_id = 1, unsupported = 2 };

struct AlternatePathResponse {
  static constexpr Attribute attribute = Attribute::alternate_path_response;
  be32 local_id;
  be32 remote_id;
  std::uint8_t info_length = 0;
  std::uint8_t status = 0;
  be16 reserved;
  std::array<std::byte, 72> info{};
  std::array<std::byte, 148> private_data{};
};
static_assert(is_wire_format<AlternatePathResponse, message_bytes>);

// The IP addresses and the port of the two ends, at the front of the private data (IBTA A11.2).
struct IpHello {
  using MinorVersion = BitField<0, 4>;  // in `version`
  using MajorVersion = BitField<4, 4>;
  using IpVersion = BitField<4, 4>;  // in `ip_version`: 4 or 6

  std::uint8_t version = 0;
  std::uint8_t ip_version = 0;
  be16 source_port;
  std::array<std::byte, 16> source{};  // IPv4 uses the last four bytes
  std::array<std::byte, 16> destination{};
};
static_assert(is_wire_format<IpHello, 36>);

// Returns the service ID of an IP port (IBTA A11.3): the prefix 0x0000000001, the protocol's
// number, the port.
constexpr std::uint64_t ip_service_id(std::uint16_t port_space, std::uint16_t port) {
  return std::uint64_t{port_space} << 16 | port;
}

// A whole MAD as it travels.
template <typename Message>
struct Mad {
  MadHeader header;
  Message message;
};
static_assert(is_wire_format<Mad<Request>, mad_bytes>);

// Returns the header of a message of this kind.
constexpr MadHeader header_of(Attribute attribute, std::uint64_t transaction_id) {
  MadHeader header;
  header.management_class = management_class;
  header.class_version = class_version;
  header.method = method_send;
  header.transaction_id = transaction_id;
  header.attribute_id = static_cast<std::uint16_t>(attribute);
  return header;
}

}  // namespace tulle::wire::cm
