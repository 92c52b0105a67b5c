#include "live/security/key_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/folder_test.h"

namespace tulle::live {
namespace {

const std::string digits(64, 'a');

TEST(KeyFile, EachLineIsAKeyOrAComment) {
  auto keys = parse_keys("# of the cluster\n\n  " + digits + " \r\n" + std::string(64, '0'));
  ASSERT_TRUE(keys);
  ASSERT_EQ(keys->size(), 2u);
  EXPECT_EQ(keys->at(0)[31], std::byte{0xAA});
  EXPECT_EQ(keys->at(1)[0], std::byte{0});
}

TEST(KeyFile, AnErrorNamesTheLine) {
  for (const std::string& bad : {std::string(63, 'a'), std::string(65, 'a'), std::string(64, 'g'),
                                 "-" + std::string(63, '1'), fmt::format("{0} {0}", digits)}) {
    const auto keys = parse_keys(fmt::format("{}\n{}\n", digits, bad));
    ASSERT_FALSE(keys) << bad;
    EXPECT_TRUE(keys.error().message.starts_with("line 2: ")) << keys.error().message;
  }
  EXPECT_FALSE(parse_keys("# nothing\n"));
  std::string many;
  for (std::size_t i = 0; i <= keys_max; ++i) many += digits + "\n";
  EXPECT_FALSE(parse_keys(many));
}

TEST(KeyFile, AManagersKeyIsOneNumber) {
  for (const char* text : {"0x1b2c", "1B2C\n", "  0x1b2c \r\n"}) {
    auto key = parse_manager_key(text);
    ASSERT_TRUE(key) << text;
    EXPECT_EQ(*key, 0x1B2Cu);
  }
  EXPECT_EQ(*parse_manager_key("0xffffffffffffffff"), ~std::uint64_t{0});
  for (const char* text : {"", "0x", "0", "0x0", "-1", "0x-1", "1 2", "1\n2", "0x1ffffffffffffffff",
                           "0x12g", "0x0x1"}) {
    EXPECT_FALSE(parse_manager_key(text)) << text;
  }
}

TEST(KeyFile, OtherUsersMustHaveNoRights) {
  const Folder folder;
  const std::string path = folder.path("keys");
  std::ofstream(path) << digits << '\n';
  for (const mode_t mode : {0640u, 0604u, 0620u}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    const auto keys = read_key_file(path);
    ASSERT_FALSE(keys);
    EXPECT_NE(keys.error().message.find("chmod 600"), std::string::npos);
    EXPECT_FALSE(read_manager_key(path));
  }
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_TRUE(read_key_file(path));
}

TEST(KeyFile, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give a file away";
  const Folder folder;
  const std::string path = folder.path("keys");
  std::ofstream(path) << digits << '\n';
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_TRUE(read_key_file(path));
  ASSERT_EQ(chown(path.c_str(), 65'533, 65'533), 0);
  const auto keys = read_key_file(path);
  ASSERT_FALSE(keys);
  EXPECT_NE(keys.error().message.find("it belongs to user 65533"), std::string::npos)
      << keys.error().message;
}

TEST(KeyFile, WhatIsNoFileOfKeysIsRefused) {
  const Folder folder;
  EXPECT_FALSE(read_key_file(folder.path("absent")));
  EXPECT_FALSE(read_key_file(folder.path()));
  const std::string fifo = folder.path("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_FALSE(read_key_file(fifo)) << "and nobody waits for a writer";
  const std::string path = folder.path("long");
  std::ofstream(path) << std::string(key_file_bytes_max + 1, '#');
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_FALSE(read_key_file(path));
}

}  // namespace
}  // namespace tulle::live
