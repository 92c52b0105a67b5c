#include "study/files_seen.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <vector>

#include "study/digest.h"
#include "study/scenario/trace_files.h"

namespace tulle::study {
namespace {

namespace fs = std::filesystem;
using json_t = nlohmann::ordered_json;

// A scenario and what it names are some files. Traces of many ranks are the most.
constexpr std::size_t files_max = 20'000;
// A few of the largest traces.
constexpr std::uintmax_t digested_bytes_max = std::uintmax_t{16} << 30;

// What counts as the digest of a path that has no file. No digest is one of these words.
constexpr std::string_view nothing = "absent";
constexpr std::string_view no_file = "no file";
constexpr std::string_view too_long = "too long";
// A file was read twice, and had changed in between.
constexpr std::string_view unstable = "changed";

std::string digest_of_names(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all.append(name).push_back('\0');
  return digest_of(all);
}

void note(json_t& known, const std::string& digest) {
  known = known.is_null() || known == digest ? digest : std::string(unstable);
}

void add_once(json_t& all, json_t entry) {
  if (std::find(all.begin(), all.end(), entry) == all.end()) all.push_back(std::move(entry));
}

// Returns a text of a record, or an empty one.
std::string text_in(const json_t& entry, const char* key) {
  const auto found = entry.find(key);
  return found != entry.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::string absolute_path(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  return error ? path : whole.lexically_normal().string();
}

void observe_files(json_t& record) {
  record["files"] = json_t::object();
  record["absent"] = json_t::array();
  record["listings"] = json_t::array();
  config::FileObserver observer;
  observer.read = [&record](const std::string& path, const std::string& text) {
    note(record["files"][absolute_path(path)], digest_of(text));
  };
  observer.absent = [&record](const std::string& path) {
    const std::string whole = absolute_path(path);
    add_once(record["absent"], whole);
  };
  observer.listed = [&record](const config::Listing& listing,
                              const std::vector<std::string>& names) {
    // One that has changed meanwhile is there twice, and cannot be as both.
    add_once(record["listings"],
             {{"folder", absolute_path(listing.folder.empty() ? "." : listing.folder)},
              {"begins", listing.begins},
              {"ends", listing.ends},
              {"names", digest_of_names(names)}});
  };
  config::observe_files(std::move(observer));
}

// Several paths may lead to one file, which is read once; after so many bytes, none is.
const std::string& FilesNow::digest_of_path(const std::string& path) {
  std::string& now = digests_[path];
  if (!now.empty()) return now;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::is_regular_file(status)) return now = fs::exists(status) ? no_file : nothing;
  const fs::path whole = fs::canonical(path, error);
  std::string& of_file = digests_[error ? path : whole.string()];
  if (of_file.empty()) {
    const std::uintmax_t bytes = fs::file_size(path, error);
    const bool fits = !error && digested_bytes_ + bytes <= digested_bytes_max;
    digested_bytes_ += fits ? bytes : 0;
    of_file = fits ? digest_of_file(path) : std::string(too_long);
  }
  if (&of_file != &now) now = of_file;
  return now;
}

const std::string& FilesNow::digest_of_listing(const config::Listing& listing) {
  std::string& now = listings_[listing.folder + '\0' + listing.begins + '\0' + listing.ends];
  if (!now.empty()) return now;
  const auto names = config::list_names(listing, entries_left_);
  return now = names ? digest_of_names(*names) : std::string(too_long);
}

bool FilesNow::is_file_as(const std::string& path, const json_t& digest, bool is_older) {
  const std::string& now = digest_of_path(path);
  if (!is_older) return digest == now;
  // A file that was absent had the digest of an empty one, and a trace may have had any number of
  // files of ranks.
  return (digest == now || (digest == digest_of("") && now == nothing)) &&
         !scenario::is_of_ranks(path);
}

bool FilesNow::is_listing_as(const json_t& entry) {
  if (!entry.is_object()) return false;
  const config::Listing listing{text_in(entry, "folder"), text_in(entry, "begins"),
                                text_in(entry, "ends")};
  return text_in(entry, "names") == digest_of_listing(listing);
}

bool FilesNow::is_as(const json_t& record, const std::function<bool()>& goes_on) {
  static const json_t none = json_t::array();
  const auto part = [&](const char* key) -> const json_t& {
    const auto found = record.find(key);
    return found == record.end() ? none : *found;
  };
  const json_t& files = part("files");
  const json_t& absent = part("absent");
  const json_t& listings = part("listings");
  if (!files.is_object() || !absent.is_array() || !listings.is_array()) return false;
  if (files.size() + absent.size() + listings.size() > files_max) return false;
  const bool is_older = !record.contains("listings");
  for (const auto& [path, digest] : files.items()) {
    if (!goes_on() || !is_file_as(path, digest, is_older)) return false;
  }
  const auto is_absent = [&](const json_t& path) {
    return path.is_string() && digest_of_path(path.get<std::string>()) == nothing;
  };
  for (const json_t& path : absent) {
    if (!goes_on() || !is_absent(path)) return false;
  }
  return std::all_of(listings.begin(), listings.end(),
                     [&](const json_t& entry) { return goes_on() && is_listing_as(entry); });
}

}  // namespace tulle::study
