// Tests the C API over a loopback device with registered memory that the program has unmapped,
// shortened or protected. Each request ends in a completion with an error, and the process lives.

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "verbs_fixture.h"

namespace tulle::shim {
namespace {

constexpr std::size_t page_bytes = 4096;

// Two pages of a file, registered. The second page can be made to go.
struct Going {
  explicit Going(ibv_pd* pd) : fd(memfd_create("region", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd, 2 * page_bytes), 0);
    place = static_cast<std::uint8_t*>(
        mmap(nullptr, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    EXPECT_NE(place, MAP_FAILED);
    region = ibv_reg_mr(pd, place, 2 * page_bytes, all_access);
    EXPECT_NE(region, nullptr);
  }
  ~Going() {
    EXPECT_EQ(ibv_dereg_mr(region), 0);
    munmap(place, 2 * page_bytes);
    close(fd);
  }
  Going(const Going&) = delete;
  Going& operator=(const Going&) = delete;

  void go(const std::string& way) const {
    std::uint8_t* const second = place + page_bytes;
    if (way == "unmapped") {
      ASSERT_EQ(munmap(second, page_bytes), 0);
    } else if (way == "truncated") {
      ASSERT_EQ(ftruncate(fd, page_bytes), 0);
    } else if (way == "protected") {
      ASSERT_EQ(mprotect(second, page_bytes, PROT_NONE), 0);
    } else {
      ASSERT_EQ(way, "readable");
      ASSERT_EQ(mprotect(second, page_bytes, PROT_READ), 0);
    }
  }

  // The last bytes of the first page, and the first bytes of the second.
  ibv_sge across(std::uint32_t bytes) const { return {address(bytes), bytes, region->lkey}; }
  std::uint64_t address(std::uint32_t bytes) const {
    return reinterpret_cast<std::uint64_t>(place) + page_bytes - bytes / 2;
  }

  int fd;
  std::uint8_t* place;
  ibv_mr* region;
};

class GoneMemory : public Verbs, public testing::WithParamInterface<std::string> {
 protected:
  bool is_readable() const { return GetParam() == "readable"; }
  void SetUp() override {
    Verbs::SetUp();
    create_pair(IBV_QPT_RC);
  }
};

TEST_P(GoneMemory, AWriteToItIsRefused) {
  const Going going(pd);
  going.go(GetParam());
  ibv_sge sge = piece(0, 512);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  wr.wr.rdma = {going.address(512), going.region->rkey};
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR);
}

TEST_P(GoneMemory, AReadOfItIsRefused) {
  const Going going(pd);
  going.go(GetParam());
  ibv_sge sge = piece(0, 512);
  ibv_send_wr wr = request(IBV_WR_RDMA_READ, &sge);
  wr.wr.rdma = {going.address(512), going.region->rkey};
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_RDMA_READ, is_readable() ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
}

TEST_P(GoneMemory, AnAtomicOnItIsRefused) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP()
      << "the thread sanitizer accesses atomics itself, and holds a lock meanwhile, which a "
         "fault leaves locked";
#endif
  for (const ibv_wr_opcode opcode : {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
    create_pair(IBV_QPT_RC);
    const Going going(pd);
    going.go(GetParam());
    ibv_sge sge = piece(0, 8);
    ibv_send_wr wr = request(opcode, &sge);
    wr.wr.atomic = {going.address(0), 1, 2, going.region->rkey};
    ASSERT_EQ(post(a, wr), 0);
    expect(7, IBV_WC_FETCH_ADD, IBV_WC_REM_ACCESS_ERR);
  }
}

TEST_P(GoneMemory, AReceiveIntoItFailsAtBothSides) {
  const Going going(pd);
  going.go(GetParam());
  ibv_sge to = going.across(512);
  ibv_recv_wr receive = {3, nullptr, &to, 1};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(b, &receive, &bad), 0);
  ibv_sge sge = piece(0, 512);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge);
  ASSERT_EQ(post(a, wr), 0);
  expect(3, IBV_WC_RECV, IBV_WC_LOC_PROT_ERR);
  expect(7, IBV_WC_SEND, IBV_WC_REM_OP_ERR);
}

TEST_P(GoneMemory, WhatReturnsToItFailsHere) {
  for (const bool is_read : {true, false}) {
    create_pair(IBV_QPT_RC);
    const Going going(pd);
    going.go(GetParam());
    ibv_sge sge = is_read ? going.across(512) : going.across(8);
    ibv_send_wr wr = request(is_read ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
    if (is_read) {
      wr.wr.rdma = {at(0), mr->rkey};
    } else {
      wr.wr.atomic = {at(0), 1, 2, mr->rkey};
    }
    ASSERT_EQ(post(a, wr), 0);
    expect(7, IBV_WC_RDMA_READ, IBV_WC_LOC_PROT_ERR);
  }
}

TEST_P(GoneMemory, WhatIsSentFromItFailsHere) {
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE}) {
    create_pair(IBV_QPT_RC);
    ASSERT_EQ(receive(b, 3, 4096, 512), 0);
    const Going going(pd);
    going.go(GetParam());
    ibv_sge sge = going.across(512);
    ibv_send_wr wr = request(opcode, &sge);
    wr.wr.rdma = {at(2048), mr->rkey};
    ASSERT_EQ(post(a, wr), 0);
    ibv_wc wc = next();
    if (wc.wr_id == 3) wc = next();
    EXPECT_EQ(wc.status, is_readable() ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, GoneMemory,
                         testing::Values("unmapped", "truncated", "protected", "readable"),
                         [](const auto& info) { return info.param; });

void pause_a_little() {
  for (int i = 0; i < 50; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Requests of all kinds while another thread takes the memory away and gives it back. Nothing may
// change outside of the region, and nobody dies. TULLE_TEST_ROUNDS asks for more rounds than CI has
// time for.
TEST_F(Verbs, MemoryGoesAndComesUnderTraffic) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer reports unmapping memory in use as a race";
#endif
  const char* asked = std::getenv("TULLE_TEST_ROUNDS");
  const long rounds = asked != nullptr ? std::atol(asked) : 20'000;
  constexpr long changes_min = 1'000;
  constexpr std::size_t bytes = 4 * page_bytes;
  const int fd = memfd_create("region", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, bytes), 0);
  auto* around = static_cast<std::uint8_t*>(mmap(
      nullptr, bytes + 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(around, MAP_FAILED);
  std::memset(around, 0x5A, bytes + 2 * page_bytes);
  std::uint8_t* const place = around + page_bytes;
  const auto give = [&] {
    ASSERT_EQ(mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0), place);
  };
  give();
  ibv_mr* region = ibv_reg_mr(pd, place, bytes, all_access);
  ASSERT_NE(region, nullptr);
  std::atomic<long> changes{0};
  std::jthread taker([&](const std::stop_token& stop) {
    std::minstd_rand random(1);
    while (!stop.stop_requested()) {
      switch (random() % 4) {
        case 0:
          ASSERT_EQ(mprotect(place, bytes, PROT_NONE), 0);
          break;
        case 1:
          ASSERT_EQ(mprotect(place, bytes, PROT_READ), 0);
          break;
        case 2:
          ASSERT_EQ(ftruncate(fd, page_bytes), 0);
          break;
        default:
          // Like munmap(), but nobody else in the process gets the addresses meanwhile.
          ASSERT_EQ(mmap(place, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                    place);
          break;
      }
      for (unsigned i = random() % 64; i > 0; --i) pause_a_little();
      ASSERT_EQ(ftruncate(fd, bytes), 0);
      give();
      for (unsigned i = random() % 64; i > 0; --i) pause_a_little();
      ++changes;
    }
  });

  // A packet whose bytes went while it was on its way comes again after the timeout.
  const auto wait = [&] {
    ibv_wc wc = {};
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (ibv_poll_cq(cq, 1, &wc) == 0 && std::chrono::steady_clock::now() < deadline) continue;
    return wc;
  };
  std::minstd_rand random(2);
  long errors = 0;
  // On a busy machine the other thread gets its turns late.
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  long round = 0;
  for (; round < rounds || (changes < changes_min && std::chrono::steady_clock::now() < latest);
       ++round) {
    if (a == nullptr) create_pair(IBV_QPT_RC);
    const auto length = static_cast<std::uint32_t>(1 + random() % 2000);
    const std::uint64_t there =
        reinterpret_cast<std::uint64_t>(place) + random() % (bytes - length) / 8 * 8;
    ibv_sge local = piece(0, length);
    ibv_sge remote = {there, length, region->lkey};
    ibv_send_wr wr = {};
    switch (random() % 6) {
      case 0:
        wr = request(IBV_WR_RDMA_WRITE, &local);
        wr.wr.rdma = {there, region->rkey};
        break;
      case 1:
        wr = request(IBV_WR_RDMA_READ, &local);
        wr.wr.rdma = {there, region->rkey};
        break;
      case 2:
        wr = request(IBV_WR_RDMA_WRITE, &remote);
        wr.wr.rdma = {at(2048), mr->rkey};
        break;
      case 3:
        wr = request(IBV_WR_RDMA_READ, &remote);
        wr.wr.rdma = {at(2048), mr->rkey};
        break;
      case 4:
        local.length = 8;
        wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &local);
        wr.wr.atomic = {there, 1, 0, region->rkey};
        break;
      default: {
        ibv_recv_wr receive = {3, nullptr, &remote, 1};
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_recv(b, &receive, &bad), 0);
        wr = request(IBV_WR_SEND, &local);
        break;
      }
    }
    ASSERT_EQ(post(a, wr), 0);
    ibv_wc wc = wait();
    if (wc.wr_id == 3) wc = wait();
    ASSERT_EQ(wc.wr_id, 7u) << "no completion";
    ASSERT_THAT(wc.status,
                testing::AnyOf(IBV_WC_SUCCESS, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_ACCESS_ERR,
                               IBV_WC_REM_OP_ERR, IBV_WC_RETRY_EXC_ERR));
    if (wc.status == IBV_WC_SUCCESS) continue;
    ++errors;
    for (ibv_qp* qp : qps) ASSERT_EQ(ibv_destroy_qp(qp), 0);
    qps.clear();
    a = b = nullptr;
    while (ibv_poll_cq(cq, 1, &wc) == 1) continue;
  }
  taker.request_stop();
  taker.join();
  EXPECT_GT(errors, 0);
  EXPECT_LT(errors, round);
  EXPECT_GE(changes, changes_min);
  for (std::size_t i = 0; i < page_bytes; ++i) {
    ASSERT_EQ(around[i], 0x5A);
    ASSERT_EQ(place[bytes + i], 0x5A);
  }
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  munmap(around, bytes + 2 * page_bytes);
  close(fd);
}

}  // namespace
}  // namespace tulle::shim
