#include "fabric/attached_programs.h"

#include <gtest/gtest.h>

namespace tulle::fabric {
namespace {

constexpr AttachedProgram a{0, 1}, b{1, AttachedPrograms::slots_max};

TEST(AttachedProgramsTest, AProgramHasItsSlotAlone) {
  AttachedPrograms programs(2);
  programs.attach(a);
  programs.attach(b);
  EXPECT_TRUE(programs.has(a.host, a.slot));
  EXPECT_TRUE(programs.has(b.host, b.slot));
  for (const std::uint32_t slot : {0u, 2u, AttachedPrograms::slots_max + 1}) {
    EXPECT_FALSE(programs.has(0, slot));
  }
  programs.detach(a);
  EXPECT_FALSE(programs.has(a.host, a.slot));
}

TEST(AttachedProgramsTest, AReadyProgramIsNamedOnce) {
  AttachedPrograms programs(2);
  programs.attach(a);
  programs.attach(b);
  EXPECT_FALSE(programs.take_ready());
  programs.note_ready(a);
  programs.note_ready(a);
  EXPECT_EQ(programs.take_ready(), a);
  EXPECT_FALSE(programs.take_ready());
  programs.note_ready(a);
  programs.note_ready(b);
  programs.detach(b);
  EXPECT_EQ(programs.take_ready(), a) << "the other one has gone";
  EXPECT_FALSE(programs.take_ready());
}

}  // namespace
}  // namespace tulle::fabric
