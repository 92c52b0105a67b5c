#pragma once

// A node of Chakra's execution traces, and the readers of its two encodings.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tulle::traces {

// The kinds that Chakra's schema numbers.
enum class ChakraType : std::uint8_t {
  invalid,
  metadata,
  mem_load,
  mem_store,
  computation,
  send,
  receive,
  collective,
};

struct ChakraNode {
  std::uint64_t id = 0;
  ChakraType type = ChakraType::invalid;
  bool is_of_host = false;            // is_cpu_op
  bool leaves_dimension_out = false;  // a value of involved_dim is false
  double duration_us = 0;             // duration_micros, or runtime
  double operations = 0;              // num_ops
  std::optional<std::uint64_t> collective, bytes, source, destination, tag;  // comm_…
  std::string group;                                                         // pg_name
  std::string group_list;  // of a process group's node: text with the groups as JSON
  std::vector<std::uint64_t> data_dependencies, control_dependencies;
};

// Receives a node. An error ends the reading.
using TakeChakraNode = std::function<Result<void>(const ChakraNode& node)>;

// Sets a member from one of Chakra's attributes that is a number. Unknown names are nothing.
void set_attribute(ChakraNode& node, std::string_view name, double number, std::uint64_t whole);

// Each reads a file's nodes. The error has no file's name.
Result<void> read_chakra_protobuf(std::string_view text, const TakeChakraNode& take);
// Reads either the form of Chakra's feeder, an object with the list "workload_graph", or that of
// its jsonizer, a metadata object and then an object for each node.
Result<void> read_chakra_json(std::string_view text, const TakeChakraNode& take);

}  // namespace tulle::traces
