#pragma once

// Reads a table of TOML key by key, with types, units and ranges. The first error is kept, as one
// line that names file, line and key. A key that is wrong has its default, so that the caller need
// not check after each key. A key that the caller never asks for is an error too.
//
// Several tables may be layered, such as a variant's over its file's. A key's value is then the
// uppermost one, and tables under the same key are layered in the same way.

#include <toml++/toml.h>

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "study/config/bounds.h"

namespace tulle::config {

// The errors of a file, of which the first is kept.
class Findings {
 public:
  explicit Findings(std::string file) : file_(std::move(file)) {}

  // Line 0 means the file as a whole.
  void add(std::uint32_t line, std::string_view key, std::string_view what);
  // Adds an error at a node, which may come from elsewhere than the file.
  void add(const toml::node& node, std::string_view key, std::string_view what);
  bool any() const { return !first_.empty(); }
  const std::string& first() const { return first_; }
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::string first_;
};

class TableReader {
 public:
  // The tables, from the lowest to the uppermost. Without any, every key has its default.
  using Layers = std::vector<const toml::table*>;

  // `path` is the table's own key, with a dot.
  TableReader(Layers layers, std::string path, std::uint32_t line, Findings& findings)
      : layers_(std::move(layers)), path_(std::move(path)), line_(line), findings_(&findings) {}

  bool has(std::string_view key) const { return find(key) != nullptr; }
  TableReader table(std::string_view key);
  // Returns a list of tables, [[key]], or an empty list if it is absent.
  std::vector<TableReader> tables(std::string_view key);

  std::string text(std::string_view key, std::string_view otherwise);
  bool boolean(std::string_view key, bool otherwise);
  std::int64_t integer(std::string_view key, std::int64_t otherwise, std::int64_t least,
                       std::int64_t most);
  double number(std::string_view key, double otherwise, double least, double most);
  Time time(std::string_view key, Time otherwise, Time most = delay_max);
  // If `link` is given, in bits a second, the value may be a part of it: "link/500".
  std::int64_t rate(std::string_view key, std::int64_t otherwise, std::int64_t link = 0);
  std::uint64_t bytes(std::string_view key, std::uint64_t otherwise);
  std::vector<std::int64_t> integers(std::string_view key, std::vector<std::int64_t> otherwise);

  std::vector<std::string> texts(std::string_view key, std::vector<std::string> otherwise);

  // Returns the place of the text among `names`, as an enumerator.
  template <typename Enum>
  Enum choice(std::string_view key, std::span<const std::string_view> names, Enum otherwise) {
    return static_cast<Enum>(choose(key, names, static_cast<std::size_t>(otherwise)));
  }

  // Puts a table under the others, which must outlive this reader. Its keys count where the others
  // have none.
  void put_under(const toml::table& table) { layers_.insert(layers_.begin(), &table); }

  // Reports an error of a key that was read.
  void wrong(std::string_view key, std::string_view what);
  // Must be called when all keys have been asked for. Reports the keys that were not.
  void finish();
  bool is_given() const { return !layers_.empty(); }
  Findings& findings() { return *findings_; }

 private:
  // Returns the tables under the key, from the lowest on, down to one that something else hides.
  Layers tables_under(std::string_view key) const;
  // Returns the key's value, or null. If several tables are layered there, it is the lowest.
  const toml::node* find(std::string_view key) const;
  const toml::node* take(std::string_view key);
  std::size_t choose(std::string_view key, std::span<const std::string_view> names,
                     std::size_t otherwise);
  template <typename T>
  std::optional<T> value(std::string_view key, std::string_view what);

  Layers layers_;
  std::string path_;
  std::uint32_t line_;
  Findings* findings_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace tulle::config
