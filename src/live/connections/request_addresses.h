#pragma once

// The header in front of a request's private data, which names the two addresses (IBTA A11).
// Between GIDs there is none.

#include <cstddef>
#include <optional>
#include <span>

#include "live/message/connection_values.h"
#include "management/cm/types.h"

namespace tulle::live {

struct RequestAddresses {
  SocketAddress source;
  SocketAddress destination;
};

// Returns the size of the header of a request to that address.
std::size_t hello_bytes(const SocketAddress& destination);

// Returns the private data of a request, behind the header. There is room for both.
management::cm::PrivateData with_hello(const RequestAddresses& addresses,
                                       std::span<const std::byte> private_data);

// Reads the two addresses of a request. Returns nothing if they are not given as in IBTA A11.
std::optional<RequestAddresses> read_addresses(const management::cm::Request& request);

}  // namespace tulle::live
