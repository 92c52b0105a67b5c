#pragma once

// Messages between processes of one machine: fields in order, in the machine's byte order. Each
// message lists its fields once, for both directions:
//
//   template <typename Archive>
//   void fields(Archive& archive, Hello& hello) { archive(hello.purpose, …); }
//
// A list is the number of its elements, in 4 bytes, and the elements. A variant is the position of
// its alternative, one byte, and then the alternative's fields.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace tulle {

// Writes fields. The functions `fields` are looked for where their messages are, and where the
// owner is, a type.
template <typename Owner>
class FieldWriter {
 public:
  template <typename... Fields>
  void operator()(Fields&... values) {
    (put(values), ...);
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_)); }

  // Appends bytes as they are, for what comes before the fields.
  void append(const void* data, std::size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
  }

 private:
  template <typename T>
  void put(T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      append(&value, sizeof(value));
    } else {
      fields(*this, value);
    }
  }
  void put(std::string& text) {
    auto size = static_cast<std::uint32_t>(text.size());
    put(size);
    append(text.data(), text.size());
  }
  template <typename T, std::size_t n>
  void put(std::array<T, n>& values) {
    for (T& value : values) put(value);
  }
  template <typename T>
  void put(std::vector<T>& values) {
    auto size = static_cast<std::uint32_t>(values.size());
    put(size);
    for (T& value : values) put(value);
  }
  template <typename... Kinds>
  void put(std::variant<Kinds...>& value) {
    static_assert(sizeof...(Kinds) <= 0xFF);
    auto position = static_cast<std::uint8_t>(value.index());
    put(position);
    std::visit([this](auto& alternative) { this->put(alternative); }, value);
  }

  std::string bytes_;
};

// Reads what an untrusted process may have written. Missing fields read as zero.
template <typename Owner>
class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename... Fields>
  void operator()(Fields&... values) {
    (take(values), ...);
  }
  // Returns false if bytes were missing or had no meaning.
  bool is_complete() const { return complete_; }
  // Returns true if nothing follows the last field.
  bool is_exhausted() const { return rest_.empty(); }

 private:
  bool copy(void* to, std::size_t size) {
    if (!complete_ || rest_.size() < size) {
      complete_ = false;
      return false;
    }
    if (size > 0) std::memcpy(to, rest_.data(), size);
    rest_ = rest_.subspan(size);
    return true;
  }
  template <typename T>
  void take(T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      value = {};
      copy(&value, sizeof(value));
    } else {
      fields(*this, value);
    }
  }
  void take(bool& value) {
    std::uint8_t byte = 0;
    take(byte);
    complete_ &= byte <= 1;
    value = byte != 0;
  }
  void take(std::string& text) {
    text.resize(count(1));
    copy(text.data(), text.size());
  }
  template <typename T, std::size_t n>
  void take(std::array<T, n>& values) {
    for (T& value : values) take(value);
  }
  template <typename T>
  void take(std::vector<T>& values) {
    values.clear();
    for (std::size_t n = count(1); n > 0 && complete_; --n) take(values.emplace_back());
  }
  template <typename... Kinds>
  void take(std::variant<Kinds...>& value) {
    std::uint8_t position = 0;
    take(position);
    complete_ &= position < sizeof...(Kinds);
    if (complete_) take_alternative(value, position, std::index_sequence_for<Kinds...>());
  }
  template <typename Variant, std::size_t... positions>
  void take_alternative(Variant& value, std::size_t position, std::index_sequence<positions...>) {
    ((position == positions ? take(value.template emplace<positions>()) : void()), ...);
  }
  // Reads a count of elements. It is never larger than the bytes that are left allow, so that a
  // false count cannot cause a large allocation or a long loop.
  std::size_t count(std::size_t bytes_each) {
    std::uint32_t n = 0;
    take(n);
    if (n > rest_.size() / bytes_each) complete_ = false;
    return complete_ ? n : 0;
  }

  std::span<const std::byte> rest_;
  bool complete_ = true;
};

// Returns a message's fields as bytes.
template <typename Message>
std::vector<std::byte> fields_of(Message message) {
  FieldWriter<Message> writer;
  writer(message);
  return {writer.bytes().begin(), writer.bytes().end()};
}

// Returns nothing if the bytes are not exactly the fields of a message.
template <typename Message>
std::optional<Message> from_fields(std::span<const std::byte> bytes) {
  Message message;
  FieldReader<Message> reader(bytes);
  reader(message);
  if (!reader.is_complete() || !reader.is_exhausted()) return std::nullopt;
  return message;
}

}  // namespace tulle
