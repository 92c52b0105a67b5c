#include <chakra.pb.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "study/traces/chakra.h"

namespace tulle::traces {
namespace {

// Takes a varint of up to 32 bits from the front of the text.
std::optional<std::uint32_t> take_length(std::string_view& text) {
  std::uint64_t value = 0;
  for (std::uint32_t shift = 0; shift < 35; shift += 7) {
    if (text.empty()) return std::nullopt;
    const auto byte = static_cast<std::uint8_t>(text[0]);
    text.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7Fu} << shift;
    if ((byte & 0x80) == 0) {
      if (value > 0xFFFF'FFFF) return std::nullopt;
      return static_cast<std::uint32_t>(value);
    }
  }
  return std::nullopt;
}

template <typename Number>
void set_number(ChakraNode& node, std::string_view name, Number number) {
  const bool is_whole = number >= 0 && static_cast<double>(number) < 18e18;
  set_attribute(node, name, static_cast<double>(number),
                is_whole ? static_cast<std::uint64_t>(number) : ~std::uint64_t{0});
}

void take_attribute(const messages::Attribute& attribute, ChakraNode& node) {
  using messages::Attribute;
  const std::string& name = attribute.name();
  switch (attribute.value_case()) {
    case Attribute::kDoubleVal:
      return set_number(node, name, attribute.double_val());
    case Attribute::kFloatVal:
      return set_number(node, name, static_cast<double>(attribute.float_val()));
    case Attribute::kInt32Val:
      return set_number(node, name, attribute.int32_val());
    case Attribute::kInt64Val:
      return set_number(node, name, attribute.int64_val());
    case Attribute::kUint32Val:
      return set_number(node, name, attribute.uint32_val());
    case Attribute::kUint64Val:
      return set_number(node, name, attribute.uint64_val());
    case Attribute::kSint32Val:
      return set_number(node, name, attribute.sint32_val());
    case Attribute::kSint64Val:
      return set_number(node, name, attribute.sint64_val());
    case Attribute::kFixed32Val:
      return set_number(node, name, attribute.fixed32_val());
    case Attribute::kFixed64Val:
      return set_number(node, name, attribute.fixed64_val());
    case Attribute::kSfixed32Val:
      return set_number(node, name, attribute.sfixed32_val());
    case Attribute::kSfixed64Val:
      return set_number(node, name, attribute.sfixed64_val());
    case Attribute::kBoolVal:
      return set_number(node, name, attribute.bool_val() ? 1 : 0);
    case Attribute::kStringVal:
      if (name == "pg_name") node.group = attribute.string_val();
      return;
    case Attribute::kBoolList:
      if (name == "involved_dim") {
        const auto& values = attribute.bool_list().values();
        node.leaves_dimension_out = std::find(values.begin(), values.end(), false) != values.end();
      }
      return;
    case Attribute::VALUE_NOT_SET:
      return;
  }
}

bool take_node(const messages::Node& message, ChakraNode& node) {
  if (message.type() < 0 || message.type() > static_cast<int>(ChakraType::collective)) return false;
  node.id = message.id();
  node.type = static_cast<ChakraType>(message.type());
  node.duration_us = static_cast<double>(message.duration_micros());
  node.data_dependencies.assign(message.data_deps().begin(), message.data_deps().end());
  node.control_dependencies.assign(message.ctrl_deps().begin(), message.ctrl_deps().end());
  const bool is_group = message.name().find("process_group:init") != std::string::npos;
  if (is_group || node.type == ChakraType::metadata) node.group_list = message.inputs().values();
  for (const messages::Attribute& attribute : message.attr()) take_attribute(attribute, node);
  return true;
}

}  // namespace

Result<void> read_chakra_protobuf(std::string_view text, const TakeChakraNode& take) {
  // A node's memory is up to some fifty times its bytes, while it is read.
  constexpr std::uint32_t message_max = 4u << 20;
  const std::size_t size = text.size();
  if (text.starts_with("\x1F\x8B")) return Error{"it is compressed; unpack it with gunzip"};
  messages::Node message;
  for (std::uint64_t number = 0; !text.empty(); ++number) {
    const std::size_t place = size - text.size();
    const auto wrong = [&](std::string_view fault) {
      return Error{fmt::format("message {} at byte {} {}", number, place, fault)};
    };
    const auto length = take_length(text);
    if (!length || *length > text.size())
      return wrong("is cut; the file is not whole, or none of Chakra's");
    if (*length > message_max) return wrong("is longer than 4 MiB");
    const std::string_view bytes = text.substr(0, *length);
    const auto count = static_cast<int>(*length);
    if (number == 0) {
      messages::GlobalMetadata metadata;
      if (!metadata.ParseFromArray(bytes.data(), count)) return wrong("is no metadata of Chakra's");
    } else {
      ChakraNode node;
      if (!message.ParseFromArray(bytes.data(), count) || !take_node(message, node)) {
        return wrong("is no node of Chakra's");
      }
      if (auto right = take(node); !right) return right.error();
    }
    text.remove_prefix(*length);
  }
  if (size == 0) return Error{"the file is empty"};
  return {};
}

}  // namespace tulle::traces
