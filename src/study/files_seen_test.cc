// What results depend on in the file system, and whether it is as it was.

#include "study/files_seen.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/folder_test.h"
#include "study/digest.h"
#include "study/scenario/trace_files.h"

namespace tulle::study {
namespace {

namespace fs = std::filesystem;
using json_t = nlohmann::ordered_json;

class FilesSeen : public testing::Test {
 protected:
  // Returns a record of what this finds.
  static json_t record_of(const std::function<void()>& find) {
    json_t record;
    observe_files(record);
    find();
    config::observe_files({});
    return record;
  }
  json_t record_of_trace(const std::string& name) const {
    return record_of([&] { (void)scenario::read_trace_files(folder.path(name)); });
  }
  static bool counts(const json_t& record) {
    return FilesNow().is_as(record, [] { return true; });
  }

  Folder folder;
};

TEST_F(FilesSeen, ATraceHasAllFilesOfItsRanks) {
  folder.write("tr/step.0.json", "0");
  folder.write("tr/step.1.json", "1");
  for (const char* name : {"tr", "tr/step", "tr/step.1.json"}) {
    const json_t record = record_of_trace(name);
    ASSERT_EQ(record["files"].size(), 2u) << name;
    EXPECT_TRUE(counts(record)) << name;
    folder.write("tr/notes", "of a person");
    EXPECT_TRUE(counts(record)) << name << ": no file of a trace";
    folder.write("tr/step.2.json", "");
    EXPECT_FALSE(counts(record)) << name << ": another rank";
    fs::remove(folder.path("tr/step.2.json"));
    EXPECT_TRUE(counts(record)) << name;
    fs::rename(folder.path("tr/step.1.json"), folder.path("tr/step.3.json"));
    EXPECT_FALSE(counts(record)) << name;
    fs::rename(folder.path("tr/step.3.json"), folder.path("tr/step.1.json"));
  }
}

TEST_F(FilesSeen, WhatWasAbsentMayAppear) {
  folder.write("a.0.json", "0");
  const json_t trace = record_of_trace("a");
  const json_t file = record_of([&] { (void)config::find_file(folder.path(), "b"); });
  EXPECT_TRUE(counts(trace));
  EXPECT_TRUE(counts(file));
  for (const auto& [record, name] : {std::pair(trace, "a"), std::pair(file, "b")}) {
    folder.write(name, "");
    EXPECT_FALSE(counts(record)) << name << ": an empty file is one";
    fs::remove(folder.path(name));
    fs::create_directory(folder.path(name));
    EXPECT_FALSE(counts(record)) << name << ": a folder";
    fs::remove(folder.path(name));
    EXPECT_TRUE(counts(record)) << name;
  }
}

TEST_F(FilesSeen, AnEmptyFileIsNoAbsentOne) {
  folder.write("empty", "");
  const json_t record = record_of([&] { (void)config::read_file(folder.path("empty")); });
  EXPECT_TRUE(counts(record));
  fs::remove(folder.path("empty"));
  EXPECT_FALSE(counts(record));
  fs::create_directory(folder.path("empty"));
  EXPECT_FALSE(counts(record));
}

TEST_F(FilesSeen, WhatChangesWhileItIsReadNeverCounts) {
  folder.write("f", "1");
  const json_t record = record_of([&] {
    (void)config::read_file(folder.path("f"));
    folder.write("f", "2");
    (void)config::read_file(folder.path("f"));
  });
  EXPECT_FALSE(counts(record));
  folder.write("f", "1");
  EXPECT_FALSE(counts(record));
}

// They had a digest of nothing for an absent file, and no names.
TEST_F(FilesSeen, OlderRecordsCountUnlessATraceMayHaveMoreFiles) {
  folder.write("links.csv", "1");
  json_t record;
  record["files"] = {{folder.path("links.csv"), digest_of("1")},
                     {folder.path("absent"), digest_of("")}};
  EXPECT_TRUE(counts(record));
  folder.write("absent", "2");
  EXPECT_FALSE(counts(record));
  fs::remove(folder.path("absent"));
  folder.write("step.0.json", "3");
  record["files"][folder.path("step.0.json")] = digest_of("3");
  EXPECT_FALSE(counts(record));
}

// Another user may have written a record.
TEST_F(FilesSeen, AnythingMayBeInARecord) {
  folder.write("f", "1");
  const json_t right = record_of([&] { (void)config::read_file(folder.path("f")); });
  ASSERT_TRUE(counts(right));
  for (const char* key : {"files", "absent", "listings"}) {
    for (const json_t& wrong : {json_t(7), json_t({7}), json_t({{"/", 7}}), json_t({json_t()})}) {
      json_t record = right;
      record[key] = wrong;
      EXPECT_FALSE(counts(record)) << record.dump();
    }
  }
  json_t record = right;
  for (int i = 0; i < 20'001; ++i) record["absent"].push_back(folder.path("nothing"));
  EXPECT_FALSE(counts(record)) << "it is too long";
  EXPECT_FALSE(FilesNow().is_as(right, [] { return false; })) << "it is to end";
}

}  // namespace
}  // namespace tulle::study
