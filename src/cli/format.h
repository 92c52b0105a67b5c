#pragma once

// Formats addresses and identifiers for people.

#include <arpa/inet.h>
#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "base/ids.h"

namespace tulle::cli {

inline std::string text_of(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, gid.bytes.data(), text, sizeof(text));
  return text;
}

inline std::string guid_text(std::uint64_t guid) {
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xFFFF,
                     guid >> 16 & 0xFFFF, guid & 0xFFFF);
}

}  // namespace tulle::cli
