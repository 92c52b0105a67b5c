#pragma once

// Puts the header around a message's fields. `fields(archive, message)` is found where the message
// is declared.

#include "live/message/protocol.h"

namespace tulle::live {

template <typename Archive>
void fields(Archive& archive, Gid& gid) {
  archive(gid.bytes);
}

template <typename Message>
std::vector<std::byte> encoded(Message& message) {
  MessageWriter writer(
      {message_magic, protocol_version, static_cast<std::uint16_t>(Message::kind)});
  fields(writer, message);
  return {writer.bytes().begin(), writer.bytes().end()};
}

template <typename Message>
bool decoded(std::span<const std::byte> bytes, Message& message) {
  const auto header = peek_header(bytes);
  if (!header || header->kind != static_cast<std::uint16_t>(Message::kind)) return false;
  const bool any_version = Message::kind == MessageKind::refused;
  if (header->version != protocol_version && !any_version) return false;
  MessageReader reader(bytes.subspan(sizeof(MessageHeader)));
  fields(reader, message);
  return reader.is_complete() && reader.is_exhausted();
}

}  // namespace tulle::live
