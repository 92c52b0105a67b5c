#include "rdma/verbs/memory.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <memory>
#include <set>
#include <vector>

namespace tulle::verbs {
namespace {

constexpr std::uint64_t iova = 0x7000'0000'0000;
constexpr std::uint64_t bytes = 4'096;
constexpr auto all = AccessFlags::from_bits(1 | 2 | 4 | 8 | 16);
using Verdict = KeyTable::Verdict;

class Memory : public testing::Test {
 protected:
  Memory() {
    init(region_, pd_);
    init(foreign_, other_pd_);
    window_.pd = &pd_;
    window_.type = WindowType::type2;
    keys_.add(window_);
    type1_.pd = &pd_;
    keys_.add(type1_);
  }

  void init(MemoryRegion& region, ProtectionDomain& pd) {
    region.pd = &pd;
    region.memory = memory_.data();
    region.length = bytes;
    region.iova = iova;
    region.access = all;
    keys_.add(region);
  }

  Verdict local(std::uint64_t address, std::uint64_t count, bool write = true) {
    return keys_.local(region_.lkey(), pd_, address, count, write).verdict;
  }
  Verdict remote(RemoteKey key, std::uint64_t address, std::uint64_t count,
                 AccessFlags needed = Access::remote_write, QpNumber qp = QpNumber(1)) {
    return keys_.remote(key, pd_, qp, address, count, needed).verdict;
  }
  WindowBinding binding(const MemoryWindow& window) {
    WindowBinding binding;
    binding.region = &region_;
    binding.address = iova + 1'024;
    binding.length = 512;
    binding.access = AccessFlags(Access::remote_write) | Access::remote_read;
    binding.new_key = RemoteKey{window.key ^ 0x55};
    return binding;
  }

  ProtectionDomain pd_, other_pd_;
  KeyTable keys_{RandomSource{7}};
  std::array<std::byte, bytes> memory_{};
  MemoryRegion region_, foreign_;
  MemoryWindow window_, type1_;
};

TEST_F(Memory, BoundsAreExact) {
  EXPECT_EQ(local(iova, bytes), Verdict::ok);
  EXPECT_EQ(local(iova + bytes - 1, 1), Verdict::ok);
  EXPECT_EQ(local(iova + bytes, 0), Verdict::ok);
  EXPECT_EQ(local(iova - 1, 1), Verdict::denied);
  EXPECT_EQ(local(iova, bytes + 1), Verdict::denied);
  EXPECT_EQ(local(iova + bytes, 1), Verdict::denied);
  EXPECT_EQ(local(iova + bytes - 1, 2), Verdict::denied);
}

TEST_F(Memory, SumsThatWrapAreDenied) {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t address :
       {iova, iova + 1, iova + bytes, most, most - 7, std::uint64_t{0}}) {
    for (const std::uint64_t count : {most, most - iova, most - iova + 2, most / 2 + 1}) {
      EXPECT_EQ(local(address, count), Verdict::denied) << address << " " << count;
      EXPECT_EQ(remote(region_.rkey(), address, count), Verdict::denied) << address << " " << count;
    }
  }
}

TEST_F(Memory, ARegionMayEndWithTheAddressSpace) {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  region_.iova = most - bytes + 1;
  const auto both = [&](std::uint64_t address, std::uint64_t count) {
    const Verdict verdict = local(address, count);
    EXPECT_EQ(remote(region_.rkey(), address, count), verdict);
    return verdict;
  };
  EXPECT_EQ(both(region_.iova, bytes), Verdict::ok);
  EXPECT_EQ(both(region_.iova, 8), Verdict::ok) << "its beginning";
  EXPECT_EQ(both(region_.iova + 100, 8), Verdict::ok);
  EXPECT_EQ(both(most, 1), Verdict::ok) << "its last byte";
  EXPECT_EQ(both(most, 2), Verdict::denied);
  EXPECT_EQ(both(most - 7, 9), Verdict::denied);
  EXPECT_EQ(both(region_.iova - 1, 8), Verdict::denied);
  EXPECT_EQ(both(0, 8), Verdict::denied) << "what follows is the beginning of the address space";
  // The same holds for a window at its end.
  WindowBinding end = binding(window_);
  end.address = most - 511;
  ASSERT_TRUE(keys_.bind(window_, pd_, QpNumber(1), end));
  EXPECT_EQ(remote(window_.rkey(), most - 511, 8), Verdict::ok);
  EXPECT_EQ(remote(window_.rkey(), most - 511, 512), Verdict::ok);
  EXPECT_EQ(remote(window_.rkey(), most - 7, 9), Verdict::denied);
  EXPECT_EQ(remote(window_.rkey(), most - 512, 8), Verdict::denied);
}

TEST_F(Memory, GivesTheAddressItself) {
  EXPECT_EQ(keys_.local(region_.lkey(), pd_, iova + 5, 1, false).memory, memory_.data() + 5);
  EXPECT_EQ(keys_.remote(region_.rkey(), pd_, QpNumber(1), iova + 6, 1, Access::remote_read).memory,
            memory_.data() + 6);
  // A ghost has a length and no bytes.
  region_.memory = nullptr;
  const auto grant = keys_.local(region_.lkey(), pd_, iova, 1, true);
  EXPECT_EQ(grant.verdict, Verdict::ok);
  EXPECT_EQ(grant.memory, nullptr);
}

TEST_F(Memory, EachRightIsNeeded) {
  for (const Access right : {Access::remote_write, Access::remote_read, Access::remote_atomic}) {
    region_.access = all.without(right);
    EXPECT_EQ(remote(region_.rkey(), iova, 8, right), Verdict::denied);
    region_.access = right;
    EXPECT_EQ(remote(region_.rkey(), iova, 8, right), Verdict::ok);
  }
  region_.access = all.without(Access::local_write);
  EXPECT_EQ(local(iova, 1, true), Verdict::denied);
  EXPECT_EQ(local(iova, 1, false), Verdict::ok);
}

TEST_F(Memory, AnotherDomainOrKeyIsDenied) {
  EXPECT_EQ(remote(foreign_.rkey(), iova, 1), Verdict::denied);
  EXPECT_EQ(keys_.local(foreign_.lkey(), pd_, iova, 1, false).verdict, Verdict::denied);
  for (std::uint32_t bit = 0; bit < 32; ++bit) {
    const std::uint32_t wrong = region_.key ^ (1u << bit);
    EXPECT_EQ(remote(RemoteKey{wrong}, iova, 1), Verdict::denied) << bit;
    EXPECT_EQ(keys_.local(LocalKey{wrong}, pd_, iova, 1, false).verdict, Verdict::denied) << bit;
  }
}

// IBTA 9.7.4.1.5.
TEST_F(Memory, NoBytesNeedNoKey) {
  const auto grant = keys_.remote(RemoteKey{0xDEAD'BEEF}, pd_, QpNumber(1), 0, 0, all);
  EXPECT_EQ(grant.verdict, Verdict::ok);
  EXPECT_EQ(grant.memory, nullptr);
}

TEST_F(Memory, KeysAreUniqueAndARemovedOneIsGone) {
  std::set<std::uint32_t> indices;
  std::vector<std::unique_ptr<MemoryRegion>> regions;
  for (int i = 0; i < 2'000; ++i) {
    regions.push_back(std::make_unique<MemoryRegion>());
    init(*regions.back(), pd_);
    EXPECT_TRUE(indices.insert(regions.back()->key >> 8).second);
  }
  const std::uint32_t old = regions[0]->key;
  keys_.renew(*regions[0]);
  EXPECT_NE(regions[0]->key >> 8, old >> 8);
  EXPECT_EQ(remote(RemoteKey{old}, iova, 1), Verdict::denied);
  EXPECT_EQ(remote(regions[0]->rkey(), iova, 1), Verdict::ok);
  for (auto& region : regions) keys_.remove(*region);
  for (auto& region : regions) EXPECT_EQ(remote(region->rkey(), iova, 1), Verdict::denied);
  EXPECT_EQ(remote(region_.rkey(), iova, 1), Verdict::ok);
}

// --- windows ---

TEST_F(Memory, PlacesOutliveKeys) {
  const auto of_region = keys_.place_of(region_.rkey(), iova + 7);
  EXPECT_EQ(of_region.key, region_.lkey());
  EXPECT_EQ(of_region.address, iova + 7);
  WindowBinding bound = binding(window_);
  bound.access |= Access::zero_based;
  ASSERT_TRUE(keys_.bind(window_, pd_, QpNumber(1), bound));
  const auto of_window = keys_.place_of(window_.rkey(), 3);
  EXPECT_EQ(of_window.key, region_.lkey());
  EXPECT_EQ(of_window.address, bound.address + 3);
}

TEST_F(Memory, WindowType2OpensJustItsPartToItsQueuePair) {
  const WindowBinding what = binding(window_);
  const RemoteKey unbound = window_.rkey();
  EXPECT_EQ(remote(unbound, iova + 1'024, 1), Verdict::denied);
  ASSERT_TRUE(keys_.bind(window_, pd_, QpNumber(1), what));
  EXPECT_EQ(window_.rkey(), what.new_key);
  EXPECT_EQ(region_.bound_windows, 1u);
  EXPECT_EQ(remote(unbound, iova + 1'024, 1), Verdict::denied) << "the old key";
  EXPECT_EQ(remote(what.new_key, iova + 1'024, 512), Verdict::ok);
  EXPECT_EQ(remote(what.new_key, iova + 1'023, 1), Verdict::denied);
  EXPECT_EQ(remote(what.new_key, iova + 1'024, 513), Verdict::denied);
  EXPECT_EQ(remote(what.new_key, iova + 1'536, 1), Verdict::denied);
  EXPECT_EQ(remote(what.new_key, iova + 1'024, 1, Access::remote_atomic), Verdict::denied);
  EXPECT_EQ(remote(what.new_key, iova + 1'024, 1, Access::remote_read, QpNumber(2)),
            Verdict::denied);
  // A window's key is not a local key.
  EXPECT_EQ(keys_.local(LocalKey{window_.key}, pd_, iova + 1'024, 1, false).verdict,
            Verdict::denied);
  const auto grant =
      keys_.remote(what.new_key, pd_, QpNumber(1), iova + 1'030, 4, Access::remote_read);
  EXPECT_EQ(grant.memory, memory_.data() + 1'030);
}

TEST_F(Memory, ZeroBasedWindowCountsFromItsFirstByte) {
  WindowBinding what = binding(window_);
  what.access |= Access::zero_based;
  ASSERT_TRUE(keys_.bind(window_, pd_, QpNumber(1), what));
  const auto grant = keys_.remote(what.new_key, pd_, QpNumber(1), 3, 509, Access::remote_read);
  EXPECT_EQ(grant.memory, memory_.data() + 1'027);
  EXPECT_EQ(remote(what.new_key, 3, 510), Verdict::denied);
  EXPECT_EQ(remote(what.new_key, iova + 1'024, 1), Verdict::denied);
}

TEST_F(Memory, SaysWhyItDenied) {
  using Refusal = KeyTable::Refusal;
  const auto why = [this](RemoteKey key, QpNumber qp = QpNumber(1)) {
    return keys_.why_denied(key, pd_, qp, Access::remote_write);
  };
  EXPECT_EQ(why(RemoteKey(region_.key ^ 1)), Refusal::unknown_key);
  EXPECT_EQ(why(foreign_.rkey()), Refusal::foreign);
  EXPECT_EQ(why(region_.rkey()), Refusal::out_of_bounds) << "all else is right";
  region_.access = Access::remote_read;
  EXPECT_EQ(why(region_.rkey()), Refusal::not_permitted);
  region_.access = all;
  EXPECT_EQ(why(window_.rkey()), Refusal::unknown_key) << "it is not bound";
  ASSERT_TRUE(keys_.bind(window_, pd_, QpNumber(1), binding(window_)));
  EXPECT_EQ(why(window_.rkey()), Refusal::out_of_bounds);
  EXPECT_EQ(why(window_.rkey(), QpNumber(2)), Refusal::foreign);
}

TEST_F(Memory, WindowType2IsBoundOnceUntilInvalidated) {
  WindowBinding what = binding(window_);
  ASSERT_TRUE(keys_.bind(window_, pd_, QpNumber(1), what));
  EXPECT_FALSE(keys_.bind(window_, pd_, QpNumber(1), what));
  EXPECT_FALSE(keys_.invalidate(what.new_key, pd_, QpNumber(2))) << "another queue pair";
  EXPECT_FALSE(keys_.invalidate(what.new_key, other_pd_, QpNumber(1))) << "another domain";
  EXPECT_FALSE(keys_.invalidate(RemoteKey{what.new_key.value ^ 1}, pd_, QpNumber(1)));
  EXPECT_TRUE(keys_.invalidate(what.new_key, pd_, QpNumber(1)));
  EXPECT_EQ(region_.bound_windows, 0u);
  EXPECT_EQ(remote(what.new_key, iova + 1'024, 1), Verdict::denied);
  EXPECT_FALSE(keys_.invalidate(what.new_key, pd_, QpNumber(1))) << "twice";
  what.new_key = RemoteKey{window_.key + 1};
  EXPECT_TRUE(keys_.bind(window_, pd_, QpNumber(3), what));
  EXPECT_EQ(remote(what.new_key, iova + 1'024, 1, Access::remote_write, QpNumber(3)), Verdict::ok);
}

TEST_F(Memory, TheCallerChoosesOnlyTheLowByteOfAKey) {
  const std::uint32_t before = window_.key;
  WindowBinding what = binding(window_);
  what.new_key = RemoteKey{~before};
  ASSERT_TRUE(keys_.bind(window_, pd_, QpNumber(1), what));
  EXPECT_EQ(window_.key, (before & 0xFFFF'FF00) | (~before & 0xFF));
  EXPECT_EQ(remote(window_.rkey(), iova + 1'024, 1), Verdict::ok);
  EXPECT_EQ(remote(what.new_key, iova + 1'024, 1), Verdict::denied);
}

TEST_F(Memory, WhatBindRefuses) {
  const auto refused = [this](auto change) {
    WindowBinding what = binding(window_);
    change(what);
    return !keys_.bind(window_, pd_, QpNumber(1), what) && window_.region == nullptr;
  };
  EXPECT_TRUE(refused([](WindowBinding& b) { b.region = nullptr; }));
  EXPECT_TRUE(refused([this](WindowBinding& b) { b.region = &foreign_; }));
  EXPECT_TRUE(refused([](WindowBinding& b) { b.length = 0; }));
  EXPECT_TRUE(refused([](WindowBinding& b) { b.length = bytes; }));
  EXPECT_TRUE(refused([](WindowBinding& b) { b.address = iova - 1; }));
  EXPECT_TRUE(refused([](WindowBinding& b) { b.length = ~0ull - 16; }));
  region_.access = all.without(Access::bind_window);
  EXPECT_TRUE(refused([](WindowBinding&) {}));
  // IBTA 10.6.7.2.2: a window with remote write access needs a region with local write access.
  region_.access = all.without(Access::local_write);
  EXPECT_TRUE(refused([](WindowBinding&) {}));
  EXPECT_TRUE(refused([](WindowBinding& b) { b.access = Access::remote_atomic; }));
  EXPECT_FALSE(refused([](WindowBinding& b) { b.access = Access::remote_read; }));
}

TEST_F(Memory, WindowType1HasANewKeyWithEachBind) {
  WindowBinding what = binding(type1_);
  ASSERT_TRUE(keys_.bind(type1_, pd_, QpNumber(1), what));
  const RemoteKey first = type1_.rkey();
  EXPECT_EQ(remote(first, iova + 1'024, 1, Access::remote_write, QpNumber(9)), Verdict::ok)
      << "any queue pair of the domain";
  what.address = iova;
  ASSERT_TRUE(keys_.bind(type1_, pd_, QpNumber(1), what));
  EXPECT_EQ(region_.bound_windows, 1u);
  EXPECT_EQ(remote(first, iova + 1'024, 1), Verdict::denied);
  EXPECT_EQ(remote(type1_.rkey(), iova, 1), Verdict::ok);
  EXPECT_FALSE(keys_.invalidate(type1_.rkey(), pd_, QpNumber(1))) << "type 2's";
  const RemoteKey second = type1_.rkey();
  what.length = 0;
  ASSERT_TRUE(keys_.bind(type1_, pd_, QpNumber(1), what));
  EXPECT_EQ(remote(second, iova, 1), Verdict::denied);
  EXPECT_EQ(region_.bound_windows, 0u);
}

// IBTA 10.6.7.2.3: the key that the caller was told when it posted the bind holds.
TEST_F(Memory, WindowType1HasTheKeyThatWasToldOrAFreshOne) {
  WindowBinding what = binding(type1_);
  ASSERT_TRUE(keys_.bind(type1_, pd_, QpNumber(1), what));
  EXPECT_EQ(type1_.rkey(), what.new_key);
  what.new_key = RemoteKey{type1_.key ^ 0x1'00};  // another index is not the caller's to choose
  const std::uint32_t before = type1_.key;
  ASSERT_TRUE(keys_.bind(type1_, pd_, QpNumber(1), what));
  EXPECT_NE(type1_.rkey(), what.new_key);
  EXPECT_NE(type1_.key >> 8, before >> 8);
  what.length = 0;  // unbinds
  what.new_key = RemoteKey{type1_.key ^ 0x33};
  ASSERT_TRUE(keys_.bind(type1_, pd_, QpNumber(1), what));
  EXPECT_EQ(type1_.rkey(), what.new_key);
  EXPECT_EQ(type1_.region, nullptr);
}

TEST_F(Memory, AWindowReachesNoFartherThanItsRegion) {
  ASSERT_TRUE(keys_.bind(window_, pd_, QpNumber(1), binding(window_)));
  region_.length = 1'024 + 100;
  EXPECT_EQ(remote(window_.rkey(), iova + 1'024, 100), Verdict::ok);
  EXPECT_EQ(remote(window_.rkey(), iova + 1'024, 101), Verdict::denied);
}

TEST_F(Memory, OnlyTheKeyOfARegionFindsARegion) {
  EXPECT_EQ(keys_.find_region(region_.lkey()), &region_);
  EXPECT_EQ(keys_.find_region(LocalKey{region_.key ^ 1}), nullptr);
  EXPECT_EQ(keys_.find_region(LocalKey{window_.key}), nullptr);
  keys_.remove(region_);
  EXPECT_EQ(keys_.find_region(region_.lkey()), nullptr);
}

TEST_F(Memory, ARegionIsNotInvalidatedByAPeer) {
  EXPECT_FALSE(keys_.invalidate(region_.rkey(), pd_, QpNumber(1)));
  EXPECT_EQ(remote(region_.rkey(), iova, 1), Verdict::ok);
}

TEST_F(Memory, NullRegionReadsAsZerosAndLosesWhatIsWritten) {
  std::vector<std::byte> block(2 * null_bytes_max);
  MemoryRegion null;
  null.pd = &pd_;
  null.memory = block.data();
  null.length = ~std::uint64_t{0};
  null.access = AccessFlags(Access::local_write) | Access::null;
  keys_.add(null);
  for (const std::uint64_t address : {std::uint64_t{0}, iova, ~std::uint64_t{0} - bytes}) {
    const auto read = keys_.local(null.lkey(), pd_, address, bytes, false);
    const auto write = keys_.local(null.lkey(), pd_, address, bytes, true);
    ASSERT_EQ(read.verdict, Verdict::ok);
    ASSERT_EQ(write.verdict, Verdict::ok);
    EXPECT_EQ(read.memory, block.data());
    EXPECT_EQ(write.memory, block.data() + null_bytes_max);
  }
  EXPECT_EQ(keys_.local(null.lkey(), pd_, 0, null_bytes_max, true).verdict, Verdict::ok);
  EXPECT_EQ(keys_.local(null.lkey(), pd_, 0, null_bytes_max + 1, true).verdict, Verdict::denied);
  EXPECT_EQ(keys_.local(null.lkey(), other_pd_, 0, 1, false).verdict, Verdict::denied);
  EXPECT_EQ(remote(null.rkey(), 0, 1), Verdict::denied);
  EXPECT_EQ(remote(null.rkey(), 0, 1, Access::remote_read), Verdict::denied);
}

// Pages that are present or not, and the last question about them.
class Pages : public MemoryPages {
 public:
  bool bring(std::byte* memory, std::uint64_t bytes, bool write) const override {
    asked = {memory, bytes, write};
    ++times;
    return present;
  }
  bool can_read(const std::byte* memory, std::uint64_t bytes) const override {
    return bring(const_cast<std::byte*>(memory), bytes, false);
  }
  struct Asked {
    std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
    bool write = false;
  };
  bool present = true;
  mutable Asked asked;
  mutable int times = 0;
};

TEST_F(Memory, PagesAreAskedForWhereARegionIsPagedOnDemand) {
  Pages pages;
  keys_.set_pages(&pages);
  EXPECT_EQ(local(iova, 8, true), Verdict::ok);
  EXPECT_EQ(pages.times, 0) << "nothing is asked before an ordinary region is written";
  region_.access |= Access::on_demand;
  EXPECT_EQ(local(iova + 8, 16, false), Verdict::ok);
  EXPECT_EQ(pages.asked.memory, memory_.data() + 8);
  EXPECT_EQ(pages.asked.bytes, 16u);
  EXPECT_FALSE(pages.asked.write);
  EXPECT_EQ(remote(region_.rkey(), iova, 8, Access::remote_read), Verdict::ok);
  EXPECT_FALSE(pages.asked.write);
  for (const Access needed : {Access::remote_write, Access::remote_atomic}) {
    EXPECT_EQ(remote(region_.rkey(), iova, 8, needed), Verdict::ok);
    EXPECT_TRUE(pages.asked.write);
  }
  ASSERT_TRUE(keys_.bind(window_, pd_, QpNumber(1), binding(window_)));
  pages.times = 0;
  EXPECT_EQ(remote(window_.rkey(), iova + 1'024, 8), Verdict::ok);
  EXPECT_EQ(pages.times, 1);
  EXPECT_EQ(pages.asked.memory, memory_.data() + 1'024);

  pages.present = false;
  EXPECT_EQ(local(iova, 8), Verdict::denied);
  EXPECT_EQ(remote(region_.rkey(), iova, 8), Verdict::denied);
  EXPECT_EQ(remote(window_.rkey(), iova + 1'024, 8), Verdict::denied);
  EXPECT_EQ(local(iova, 0), Verdict::ok) << "no bytes, no pages";
}

TEST_F(Memory, PagesAreNotAskedForWithAKeyAlone) {
  Pages pages;
  pages.present = false;
  keys_.set_pages(&pages);
  region_.access |= Access::on_demand;
  region_.length = 1u << 20;  // no byte of it is touched here
  EXPECT_EQ(local(iova, null_bytes_max + 1), Verdict::ok);
  EXPECT_EQ(pages.times, 0);
  EXPECT_EQ(local(iova, null_bytes_max), Verdict::denied);
}

}  // namespace
}  // namespace tulle::verbs
