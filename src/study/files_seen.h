#pragma once

// What results depend on in the file system: the files that were read, those that were looked for
// and absent, and the names that were found in folders. It is stored with the results. They count
// for as long as the same scenario would find the same.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "study/config/files.h"

namespace tulle::study {

// Returns a path from the root, or the path itself if there is none.
std::string absolute_path(const std::string& path);

// From now on adds what this process finds to `record`, which must live as long: `files` with
// digests by path, `absent` with paths, and `listings` with digests of the names that were found.
void observe_files(nlohmann::ordered_json& record);

// The file system as it is now. Each file and folder is read once.
class FilesNow {
 public:
  // Returns true if all that a record has is as it was. Another user may have written the record:
  // what it costs is bounded, and `goes_on` ends it. Records of earlier versions have no listings.
  bool is_as(const nlohmann::ordered_json& record, const std::function<bool()>& goes_on);

 private:
  const std::string& digest_of_path(const std::string& path);
  const std::string& digest_of_listing(const config::Listing& listing);
  bool is_file_as(const std::string& path, const nlohmann::ordered_json& digest, bool is_older);
  bool is_listing_as(const nlohmann::ordered_json& entry);

  std::map<std::string, std::string> digests_;   // by path
  std::map<std::string, std::string> listings_;  // by folder, begin and end
  std::uintmax_t digested_bytes_ = 0;
  std::size_t entries_left_ = entries_max;

  // The folders of a few of the largest traces.
  static constexpr std::size_t entries_max = std::size_t{1} << 20;
};

}  // namespace tulle::study
