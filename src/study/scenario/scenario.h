#pragma once

// A scenario describes a simulation, read from TOML. One file may hold variants, each of which
// changes some keys of the rest. The variants are run one after the other and compared side by
// side. scenarios/reference.toml names every key.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "study/report/picture_settings.h"
#include "study/scenario/setup.h"

namespace tulle::scenario {

// TOML as it was parsed: study/scenario/document.h.
struct Document;
struct Keys;

struct Variant {
  std::string name;
  std::string title;
};

// A fabric to be compared with others: a file of scenario keys, with its own title.
struct Fabric {
  std::string name;  // name of the file, without .toml
  std::string title;
  std::string sources;      // sources of its keys' values
  bool by_default = false;  // compared if no fabrics are named
  bool one_plane = false;   // adapters have one port, as those of a kernel with its cores
  std::shared_ptr<const Keys> keys;

  bool goes_with(std::uint32_t planes) const { return planes == 1 || !one_plane; }
};

// Keys of a scenario for which callers have values. Those of `set` replace them.
struct Overrides {
  std::optional<std::uint64_t> seed;
  std::string prices;     // the path of a price list, in UTF-8; empty: as the scenario has it
  bool is_alone = false;  // run each job also by itself (report.alone)
};

// Results keep the settings of each of their variants, of which a page is a multiple.
inline constexpr std::size_t settings_bytes_max = std::size_t{64} << 20;

class Scenario {
 public:
  // `set` holds lines of TOML ("traffic.bytes = \"1MB\"") that replace keys of the file. The error
  // is one line, "FILE:LINE: KEY: fault".
  static Result<Scenario> read(const std::string& path, const std::vector<std::string>& set,
                               const Overrides& overrides = {});
  // Does the same with a text. `file` is its name in errors, and `folder` is where other files are
  // looked for.
  static Result<Scenario> parse(std::string_view text, const std::string& file,
                                const std::string& folder, const std::vector<std::string>& set,
                                const Overrides& overrides = {});
  // Does the same with keys that are not in a text. `origin` takes a file's place in errors.
  static Result<Scenario> of(Keys keys, const std::string& origin, const std::string& folder,
                             const std::vector<std::string>& set, const Overrides& overrides = {});

  // Returns a scenario of this one's topology, traffic and faults, with each of these fabrics as a
  // variant. Its other keys and its own variants are left out. The keys of `set` replace those of
  // the fabrics.
  Scenario on_fabrics(std::vector<Fabric> fabrics) const;

  const std::string& name() const { return name_; }
  const std::string& title() const { return title_; }
  const std::string& description() const { return description_; }
  const std::vector<Variant>& variants() const { return variants_; }  // at least one
  const report::PictureSettings& picture() const { return picture_; }

  // Returns the keys of a variant as TOML, those of its fabric and of `set` included, without the
  // scenario's title and description. Keys that are left out have their defaults.
  std::string settings(std::size_t variant) const;
  // Refuses variants whose settings together are too large for results to keep.
  Result<void> check_settings(std::span<const std::size_t> variants) const;
  // Returns the value of a variant's key such as "fabric.ecn.kmin", as TOML; empty: it has its
  // default.
  std::string setting(std::size_t variant, std::string_view key) const;
  // Returns the folder in which other files are looked for.
  const std::string& folder() const { return folder_; }

  // Builds a variant: its topology, routes and traffic. Without `may_choose_trains`, packets travel
  // one by one unless the scenario itself names host.train.
  Result<Setup> build(std::size_t variant, bool may_choose_trains = true) const;

 private:
  // The file is parsed once, for all variants and for every time that one of them is built.
  std::shared_ptr<const Document> document_;
  std::string file_;
  std::string folder_;
  std::string name_;
  std::string title_;
  std::string description_;
  std::vector<Variant> variants_;
  std::vector<Fabric> fabrics_;  // if not empty, they take the place of variants in the file
  report::PictureSettings picture_;
};

}  // namespace tulle::scenario
