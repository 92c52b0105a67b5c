#pragma once

// Test support: writes Chakra's protobuf by its definition, without the generated code.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tulle::traces {

class ProtobufWriter {
 public:
  ProtobufWriter& number(std::uint32_t field, std::uint64_t value) {
    varint(field << 3);
    varint(value);
    return *this;
  }
  ProtobufWriter& bytes(std::uint32_t field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    text_ += value;
    return *this;
  }
  ProtobufWriter& varint(std::uint64_t value) {
    for (; value > 0x7F; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
    return *this;
  }
  const std::string& text() const { return text_; }
  // Returns the message after its length, as a file has it.
  std::string delimited() const { return ProtobufWriter().varint(text_.size()).text() + text_; }

 private:
  std::string text_;
};

// A node as Chakra's generator writes it.
struct WrittenNode {
  std::uint64_t id = 0;
  std::uint64_t type = 0;
  std::vector<std::uint64_t> data, control;
  std::uint64_t duration_us = 0;

  WrittenNode& with(std::string_view name, std::uint64_t int64) {
    attributes +=
        ProtobufWriter().bytes(10, ProtobufWriter().bytes(1, name).number(9, int64).text()).text();
    return *this;
  }
  WrittenNode& of_host() {
    const auto is_cpu_op = ProtobufWriter().bytes(1, "is_cpu_op").number(27, 1).text();
    attributes += ProtobufWriter().bytes(10, is_cpu_op).text();
    return *this;
  }
  WrittenNode& in_group(std::string_view name) {
    const auto group = ProtobufWriter().bytes(1, "pg_name").bytes(29, name).text();
    attributes += ProtobufWriter().bytes(10, group).text();
    return *this;
  }
  WrittenNode& in_dimensions(std::string_view values) {
    const auto list = ProtobufWriter().bytes(1, values).text();
    const auto dimensions = ProtobufWriter().bytes(1, "involved_dim").bytes(28, list).text();
    attributes += ProtobufWriter().bytes(10, dimensions).text();
    return *this;
  }
  WrittenNode& with_values(std::string_view values) {
    attributes += ProtobufWriter().bytes(8, ProtobufWriter().bytes(1, values).text()).text();
    return *this;
  }

  std::string attributes;
};

inline std::string protobuf_of(const std::vector<WrittenNode>& nodes) {
  std::string file = ProtobufWriter().bytes(1, "0.0.4").delimited();
  for (const WrittenNode& node : nodes) {
    ProtobufWriter message;
    message.number(1, node.id).bytes(2, "a name").number(3, node.type);
    ProtobufWriter control, data;
    for (const std::uint64_t id : node.control) control.varint(id);
    for (const std::uint64_t id : node.data) data.varint(id);
    message.bytes(4, control.text()).bytes(5, data.text()).number(7, node.duration_us);
    const std::string whole = message.text() + node.attributes;
    file += ProtobufWriter().varint(whole.size()).text() + whole;
  }
  return file;
}

}  // namespace tulle::traces
