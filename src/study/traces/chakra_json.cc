#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/quoted.h"
#include "study/traces/chakra.h"
#include "study/workload/csv.h"

namespace tulle::traces {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 8> type_names = {
    "INVALID_NODE", "METADATA_NODE",  "MEM_LOAD_NODE",  "MEM_STORE_NODE",
    "COMP_NODE",    "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE"};

struct Number {
  double real = 0;
  std::uint64_t whole = 0;  // all ones if it is none
};

// Reads a number, which may be in quotes, as protobuf writes 64 bits, or true or false.
std::optional<Number> number_of(const Json& value) {
  constexpr std::uint64_t none = ~std::uint64_t{0};
  if (value.is_boolean()) {
    const bool is_set = value.get_ref<const Json::boolean_t&>();
    return Number{is_set ? 1.0 : 0.0, is_set ? 1u : 0u};
  }
  if (value.is_number_unsigned()) {
    const auto whole = value.get_ref<const Json::number_unsigned_t&>();
    return Number{static_cast<double>(whole), whole};
  }
  if (value.is_number_integer()) {
    const auto whole = value.get_ref<const Json::number_integer_t&>();
    return Number{static_cast<double>(whole), whole < 0 ? none : static_cast<std::uint64_t>(whole)};
  }
  if (value.is_number_float()) {
    const double real = value.get_ref<const Json::number_float_t&>();
    const bool is_whole = real >= 0 && real < 1e15 && real == std::floor(real);
    return Number{real, is_whole ? static_cast<std::uint64_t>(real) : none};
  }
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  const auto real = workload::parse_real(text);
  if (!real) return std::nullopt;
  return Number{*real, workload::parse_number<std::uint64_t>(text).value_or(none)};
}

const Json* find(const Json& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = object.find(name);
    if (found != object.end()) return &*found;
  }
  return nullptr;
}

bool read_dependencies(const Json& object, std::initializer_list<const char*> names,
                       std::vector<std::uint64_t>& dependencies) {
  const Json* list = find(object, names);
  if (list == nullptr) return true;
  if (!list->is_array()) return false;
  for (const Json& each : *list) {
    const auto number = number_of(each);
    if (!number) return false;
    dependencies.push_back(number->whole);
  }
  return true;
}

std::optional<ChakraType> type_of(const Json& object) {
  const Json* type = find(object, {"NodeType", "type"});
  if (type == nullptr) return ChakraType::invalid;
  if (type->is_string()) {
    const auto& name = type->get_ref<const std::string&>();
    const auto known = std::find(type_names.begin(), type_names.end(), name);
    if (known != type_names.end()) return static_cast<ChakraType>(known - type_names.begin());
  }
  const auto number = number_of(*type);
  if (!number || number->whole >= type_names.size()) return std::nullopt;
  return static_cast<ChakraType>(number->whole);
}

void take_value(std::string_view name, const Json& value, ChakraNode& node) {
  if (name == "pg_name" && value.is_string()) {
    node.group = value.get_ref<const std::string&>();
  } else if (name == "involved_dim") {
    const Json* list = value.is_object() ? find(value, {"values"}) : &value;
    if (list == nullptr || !list->is_array()) return;
    node.leaves_dimension_out = std::find(list->begin(), list->end(), Json(false)) != list->end();
  } else if (const auto number = number_of(value)) {
    set_attribute(node, name, number->real, number->whole);
  }
}

// Attributes are members of the node's object, or a list of {"name": …, "int64Val": …}.
void take_attributes(const Json& object, ChakraNode& node) {
  const Json* list = find(object, {"attr"});
  if (list == nullptr || !list->is_array()) {
    for (const auto& [name, value] : object.items()) take_value(name, value, node);
    return;
  }
  for (const Json& each : *list) {
    if (!each.is_object()) continue;
    const Json* name = find(each, {"name"});
    if (name == nullptr || !name->is_string()) continue;
    for (const auto& [member, value] : each.items()) {
      if (member == "name" || member == "docString") continue;
      take_value(name->get_ref<const std::string&>(), value, node);
    }
  }
}

Result<void> take_node(const Json& object, const TakeChakraNode& take) {
  ChakraNode node;
  const Json* id = object.is_object() ? find(object, {"Id", "id"}) : nullptr;
  const auto number = id != nullptr ? number_of(*id) : std::optional(Number());
  if (!object.is_object() || !number) return Error{"a node is no object with an Id"};
  node.id = number->whole;
  const auto wrong = [&](const char* what) {
    return Error{fmt::format("node {}: {} is not understood", node.id, what)};
  };
  const auto type = type_of(object);
  if (!type) return wrong("its type");
  node.type = *type;
  if (!read_dependencies(object, {"data_deps", "dataDeps"}, node.data_dependencies) ||
      !read_dependencies(object, {"ctrl_deps", "ctrlDeps"}, node.control_dependencies)) {
    return wrong("a list of dependencies");
  }
  if (const Json* duration = find(object, {"runtime", "durationMicros", "duration_micros"})) {
    const auto length = number_of(*duration);
    if (!length) return wrong("its duration");
    node.duration_us = length->real;
  }
  const Json* inputs = find(object, {"inputs"});
  const Json* name = find(object, {"Name", "name"});
  const bool is_group =
      name != nullptr && name->is_string() &&
      name->get_ref<const std::string&>().find("process_group:init") != std::string::npos;
  if ((is_group || node.type == ChakraType::metadata) && inputs != nullptr && inputs->is_object()) {
    const Json* values = find(*inputs, {"values"});
    if (values != nullptr && values->is_string()) {
      node.group_list = values->get_ref<const std::string&>();
    }
  }
  take_attributes(object, node);
  return take(node);
}

// Returns the length of the object at the front of the text; 0 if it does not end.
std::size_t object_length(std::string_view text) {
  std::size_t depth = 0;
  bool is_quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_quoted) {
      if (c == '\\') ++i;
      is_quoted = c != '"';
    } else if (c == '"') {
      is_quoted = true;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}') {
      if (depth <= 1) return i + 1;
      --depth;
    }
  }
  return 0;
}

}  // namespace

Result<void> read_chakra_json(std::string_view text, const TakeChakraNode& take) {
  constexpr std::size_t bytes_max = 256u << 20;  // a value takes up to some twenty bytes for each
  if (text.size() > bytes_max) return Error{"JSON of more than 256 MiB is not read; take protobuf"};
  const std::size_t size = text.size();
  for (std::uint64_t number = 0;; ++number) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    if (text.empty() && number > 0) return {};
    const std::size_t place = size - text.size();
    const std::size_t length = text.starts_with('{') ? object_length(text) : 0;
    if (length == 0) return Error{fmt::format("there is no whole JSON object at byte {}", place)};
    const Json object = Json::parse(text.substr(0, length), nullptr, false);
    if (object.is_discarded()) return Error{fmt::format("the object at byte {} is no JSON", place)};
    text.remove_prefix(length);
    if (const Json* graph = find(object, {"workload_graph"})) {
      if (!graph->is_array()) return Error{"workload_graph is no list"};
      for (const Json& node : *graph) {
        if (auto right = take_node(node, take); !right) return right.error();
      }
    } else if (number > 0) {
      if (auto right = take_node(object, take); !right) return right.error();
    } else if (find(object, {"nodes"}) != nullptr) {
      return Error{"it is PyTorch's own trace; link and convert it with Chakra's tools"};
    }
  }
}

}  // namespace tulle::traces
