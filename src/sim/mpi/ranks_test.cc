// Tests the ranks with an MPI of one process (fake_mpi.c) in place of Open MPI's and MPICH's.

#include "sim/mpi/ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <stdexcept>
#include <string_view>

namespace tulle::mpi {
namespace {

namespace fs = std::filesystem;

class RanksTest : public testing::Test {
 protected:
  RanksTest() {
    char name[] = "/tmp/tulle-ranks-XXXXXX";
    folder_ = mkdtemp(name);
    for (const Library library : {Library::open_mpi, Library::mpich}) {
      fs::copy_file(TULLE_FAKE_MPI, file(library));
    }
    unsetenv("FAKE_MPI_ENDED");
    is_like(TULLE_MPI_VERSION, 1, 3);
  }
  ~RanksTest() override {
    unsetenv("FAKE_MPI");
    fs::remove_all(folder_);
  }

  fs::path file(Library library) const { return folder_ / file_of(library); }
  static void is_like(unsigned version, unsigned rank, unsigned size, unsigned any_thread = 1) {
    setenv("FAKE_MPI", fmt::format("{} {} {} {}", version, rank, size, any_thread).c_str(), 1);
  }
  Result<std::unique_ptr<Ranks>> join(Library library = Library::open_mpi) const {
    return Ranks::join(folder_.string(), {library, 1, 3, true});
  }
  void expect_refused(std::string_view why, Library library = Library::open_mpi) const {
    auto ranks = join(library);
    ASSERT_FALSE(ranks);
    EXPECT_NE(ranks.error().message.find(why), std::string::npos) << ranks.error().message;
    EXPECT_EQ(ranks.error().message.find('\n'), std::string::npos) << ranks.error().message;
  }
  std::unique_ptr<Ranks> joined() const {
    auto ranks = join();
    EXPECT_TRUE(ranks) << ranks.error().message;
    return std::move(*ranks);
  }

  fs::path folder_;
};

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST_F(RanksTest, KnowTheirNumberAndEndMpi) {
  std::unique_ptr<Ranks> ranks = joined();
  EXPECT_EQ(ranks->number(), 1u);
  EXPECT_EQ(ranks->count(), 3u);
  EXPECT_EQ(std::getenv("FAKE_MPI_ENDED"), nullptr);
  ranks.reset();
  EXPECT_NE(std::getenv("FAKE_MPI_ENDED"), nullptr);
}

TEST_F(RanksTest, EachMpiHasItsLibrary) {
  fs::remove(file(Library::open_mpi));
  EXPECT_TRUE(join(Library::mpich));
  expect_refused("Open MPI has started 3 ranks, but ");
  expect_refused("/libtulle_openmpi.so is missing: install Open MPI's headers");
  fs::remove(file(Library::mpich));
  expect_refused("MPICH has started 3 ranks, but ", Library::mpich);
  expect_refused("/libtulle_mpich.so is missing", Library::mpich);
}

TEST_F(RanksTest, ALibraryThatOthersMayHaveChangedIsNotLoaded) {
  const std::string path = file(Library::open_mpi).string();
  ASSERT_EQ(chmod(path.c_str(), 0646), 0);
  expect_refused("is not loaded, because other users may have changed it");
  ASSERT_EQ(chmod(path.c_str(), 0664), 0);
  EXPECT_TRUE(join()) << "the group is the user's own";
  fs::remove(path);
  fs::create_directory(path);
  expect_refused("is not loaded");
}

TEST_F(RanksTest, AnotherUsersLibraryIsNotLoaded) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  const std::string path = file(Library::open_mpi).string();
  ASSERT_EQ(chown(path.c_str(), 65'534, 0), 0);
  expect_refused("is not loaded, because other users may have changed it");
  ASSERT_EQ(chown(path.c_str(), 0, 65'534), 0);
  ASSERT_EQ(chmod(path.c_str(), 0664), 0);
  expect_refused("is not loaded, because other users may have changed it");
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_TRUE(join()) << "the group only reads";
  ASSERT_EQ(chown(folder_.c_str(), 65'534, 65'534), 0);
  ASSERT_EQ(chown(path.c_str(), 65'534, 65'534), 0);
  ASSERT_EQ(seteuid(65'534), 0);
  EXPECT_TRUE(join()) << "it is this user's own, and the program another's";
  ASSERT_EQ(seteuid(0), 0);
}

TEST_F(RanksTest, WhatIsNoLibraryOfThisVersionIsNamed) {
  std::ofstream(file(Library::open_mpi)) << "no library";
  expect_refused("cannot load ");
  is_like(TULLE_MPI_VERSION + 1, 1, 3);
  expect_refused("MPICH cannot be started: is ", Library::mpich);
  is_like(TULLE_MPI_VERSION, 1, 3, 0);
  expect_refused("MPICH was built without support of threads", Library::mpich);
}

TEST_F(RanksTest, AnotherMpirunThanTheEnvironmentsIsNamed) {
  is_like(TULLE_MPI_VERSION, 0, 1);
  expect_refused("Open MPI reports one rank here, but the environment says 3");
  is_like(TULLE_MPI_VERSION, 1, 4);
  expect_refused("Open MPI reports 4 ranks here, but the environment says 3");
  is_like(TULLE_MPI_VERSION, 2, 3);
  expect_refused("Open MPI reports 3 ranks here");
}

TEST_F(RanksTest, MessagesPassInPieces) {
  const std::unique_ptr<Ranks> ranks = joined();
  std::vector<sim::Pieces> to(3);
  to[0] = {bytes_of("a"), bytes_of("bc")};
  to[2] = {bytes_of(""), bytes_of("def")};
  std::vector<Bytes> from(3, Bytes(100, std::byte{1}));
  ranks->exchange_pieces(to, from);
  EXPECT_EQ(text_of(from[0]), "abc");
  EXPECT_EQ(text_of(from[1]), "");
  EXPECT_EQ(text_of(from[2]), "def");
}

TEST_F(RanksTest, AMessageThatIsTooLongIsRefusedInOneLine) {
  const std::unique_ptr<Ranks> ranks = joined();
  std::vector<sim::Pieces> to(3);
  to[1] = {bytes_of("h")};
  std::vector<Bytes> from(3);
  try {
    ranks->exchange_pieces(to, from);
    FAIL();
  } catch (const std::runtime_error& problem) {
    const std::string_view text = problem.what();
    EXPECT_TRUE(text.starts_with("cannot reach other ranks: no room")) << text;
    EXPECT_EQ(text.find('\n'), std::string_view::npos) << text;
    EXPECT_EQ(text.find('\x1b'), std::string_view::npos) << text;
  }
}

// The failure passes through the library, which is written in C, as it was.
TEST_F(RanksTest, AMessageForWhichThereIsNoMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has more address space than the limit";
#endif
  const std::unique_ptr<Ranks> ranks = joined();
  std::vector<sim::Pieces> to(3);
  to[1] = {bytes_of("m")};
  std::vector<Bytes> from(3);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit little{rlim_t{4} << 30, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
  EXPECT_THROW(ranks->exchange_pieces(to, from), std::bad_alloc);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
}

std::uint32_t told_milliseconds = 0;

TEST_F(RanksTest, SilenceIsWatchedInSeconds) {
  joined()->watch(7, [](const std::uint32_t* ranks, std::uint32_t count) {
    EXPECT_EQ(count, 1u);
    told_milliseconds = ranks[0];
  });
  EXPECT_EQ(told_milliseconds, 7'000u);
}

TEST_F(RanksTest, AnAbortEndsThisProcessAsWell) {
  EXPECT_EXIT(joined()->abort(5), testing::ExitedWithCode(5), "all ranks end with 5");
}

}  // namespace
}  // namespace tulle::mpi
