#include "live/capture/capture.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/folder_test.h"
#include "live/fabric/client.h"
#include "live/fabric/fabric_folder.h"
#include "live/fabric/fabrics.h"

namespace tulle::live {
namespace {

namespace fs = std::filesystem;

TEST(CaptureOutput, OnlyItsUserReadsIt) {
  const Folder folder;
  folder.write("old", "something longer");
  fs::permissions(folder.path("old"), fs::perms::all);
  for (const char* name : {"old", "new"}) {
    auto out = open_capture_file(folder.path(name));
    ASSERT_TRUE(out) << out.error().message;
    struct stat its {};
    ASSERT_EQ(fstat(out->get(), &its), 0);
    EXPECT_EQ(its.st_mode & 0777, 0600u);
    EXPECT_EQ(its.st_size, 0);
  }
  auto nowhere = open_capture_file(folder.path("none/file"));
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().message,
            "cannot write " + folder.path("none/file") + ": No such file or directory");
}

TEST(CaptureOutput, AnotherUsersLinkIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make another user's link";
  const Folder folder;
  fs::create_symlink("there", folder.path("link"));
  ASSERT_EQ(lchown(folder.path("link").c_str(), 1234, 1234), 0);
  auto out = open_capture_file(folder.path("link"));
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().error_number, EPERM);
}

// It would be waited for without end.
TEST(CaptureOutput, AFifoNeedsAReader) {
  const Folder folder;
  const std::string path = folder.path("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  auto refused = open_capture_file(path);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "cannot write " + path + ": nobody reads from this FIFO; start its reader first");
  const UniqueFd reader(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);
  auto out = open_capture_file(path);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(fcntl(out->get(), F_GETFL) & O_NONBLOCK, 0) << "a slow reader is waited for";
}

// A fabric's subnet manager sends management datagrams as soon as the fabric is up.
TEST(CaptureTest, LinksOfAFabricAreWrittenUntilItIsStopped) {
  const Folder folder;
  FabricOptions fabric;
  fabric.topology = usual_topology();
  fabric.folder = folder.path();
  fabric.has_manager = true;
  auto started = start_fabric(fabric);
  ASSERT_TRUE(started && started->status == 0);
  CaptureOptions options;
  options.fabric = fabric_socket(fabric.folder);
  options.output = folder.path("packets");
  options.ring_bytes = 1 << 20;
  options.duration_seconds = 0.05;
  {
    auto out = open_capture_file(options.output);
    ASSERT_TRUE(out);
    auto captured = capture(options, out->get(), -1);
    ASSERT_TRUE(captured) << captured.error().message;
    EXPECT_FALSE(captured->is_stopped);
    EXPECT_EQ(captured->missing, 0u);
  }
  constexpr std::array<unsigned char, 4> section_header = {0x0A, 0x0D, 0x0D, 0x0A};
  const std::string bytes = folder.read("packets");
  ASSERT_GE(bytes.size(), section_header.size());
  EXPECT_EQ(std::memcmp(bytes.data(), section_header.data(), section_header.size()), 0);
  options.duration_seconds.reset();
  std::array<int, 2> stop{};
  ASSERT_EQ(pipe(stop.data()), 0);
  ASSERT_EQ(write(stop[1], "x", 1), 1);
  auto out = open_capture_file(options.output);
  auto captured = capture(options, out->get(), stop[0]);
  ASSERT_TRUE(captured);
  EXPECT_TRUE(captured->is_stopped);
  for (const int end : stop) close(end);
  FabricHello end;
  end.purpose = FabricPurpose::stop;
  EXPECT_TRUE(command_fabric(options.fabric, end));
  EXPECT_FALSE(capture(options, out->get(), -1)) << "the fabric is down";
}

}  // namespace
}  // namespace tulle::live
