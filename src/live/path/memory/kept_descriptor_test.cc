#include "live/path/memory/kept_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <optional>

namespace tulle::live {
namespace {

UniqueFd make_file() { return UniqueFd(memfd_create("kept_descriptor_test", MFD_CLOEXEC)); }
bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(KeptDescriptor, HasAHighNumberAndIsClosed) {
  UniqueFd low = make_file();
  const int number = low.get();
  int kept_number = -1;
  {
    const KeptDescriptor kept(std::move(low));
    kept_number = kept.get();
    EXPECT_GT(kept_number, 255);
    EXPECT_FALSE(is_open(number));
    EXPECT_TRUE(kept.is_intact());
    EXPECT_EQ(fcntl(kept_number, F_GETFD), FD_CLOEXEC);
  }
  EXPECT_FALSE(is_open(kept_number));
}

TEST(KeptDescriptor, AnotherFileUnderItsNumberIsLeftAlone) {
  std::optional<KeptDescriptor> kept(std::in_place, make_file());
  const UniqueFd other = make_file();
  ASSERT_EQ(dup2(other.get(), kept->get()), kept->get());
  const UniqueFd number(kept->get());
  EXPECT_FALSE(kept->is_intact());
  kept.reset();
  EXPECT_TRUE(is_open(number.get()));
}

TEST(KeptDescriptor, MayHaveBeenClosed) {
  KeptDescriptor kept(make_file());
  close(kept.get());
  EXPECT_FALSE(kept.is_intact());
  KeptDescriptor moved(std::move(kept));
  EXPECT_FALSE(moved.is_intact());
  EXPECT_FALSE(KeptDescriptor().is_intact());
}

}  // namespace
}  // namespace tulle::live
