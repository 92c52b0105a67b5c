// Tests the C API over a loopback device: memory of every kind that is not an ordinary region.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "verbs_fixture.h"

namespace tulle::shim {
namespace {

class Memory : public Verbs {
 protected:
  void transfer(ibv_wr_opcode opcode, ibv_sge sge, std::uint64_t remote, std::uint32_t rkey,
                ibv_wc_status status = IBV_WC_SUCCESS) {
    ibv_send_wr wr = request(opcode, &sge);
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    ASSERT_EQ(post(a, wr), 0);
    expect(7, opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE, status);
  }
  std::size_t most() {
    ibv_device_attr_ex attributes = {};
    EXPECT_EQ(ibv_query_device_ex(context, nullptr, &attributes), 0);
    return attributes.max_dm_size;
  }
};

constexpr unsigned device_access = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE |
                                   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

TEST_F(Memory, OfTheDeviceIsCopiedInWordsAndInBounds) {
  ibv_alloc_dm_attr attributes = {100, 3, 0};
  ibv_dm* dm = ibv_alloc_dm(context, &attributes);
  ASSERT_NE(dm, nullptr);
  std::array<std::uint8_t, 104> bytes{};
  EXPECT_EQ(ibv_memcpy_from_dm(bytes.data(), dm, 0, 100), 0);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 0), 104) << "it begins as zeros";
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 8, memory.data(), 12), 0);
  EXPECT_EQ(ibv_memcpy_from_dm(bytes.data(), dm, 8, 12), 0);
  EXPECT_EQ(std::memcmp(bytes.data(), memory.data(), 12), 0);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 2, memory.data(), 4), EINVAL);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 4, memory.data(), 3), EINVAL);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 96, memory.data(), 4), 0);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 96, memory.data(), 8), EFAULT);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 104, memory.data(), 0), EFAULT);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, ~std::uint64_t{3}, memory.data(), 8), EFAULT);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 0, nullptr, 4), EINVAL);
  EXPECT_EQ(ibv_memcpy_from_dm(bytes.data(), dm, 1, 4), EINVAL);
  EXPECT_EQ(ibv_memcpy_from_dm(nullptr, dm, 0, 4), EINVAL);
  EXPECT_EQ(ibv_memcpy_from_dm(bytes.data(), dm, 0, 104), EFAULT);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(Memory, OfTheDeviceIsLimited) {
  const std::size_t whole = most();
  ASSERT_GT(whole, 0u);
  for (const ibv_alloc_dm_attr wrong :
       {ibv_alloc_dm_attr{0, 0, 0}, ibv_alloc_dm_attr{64, 40, 0}, ibv_alloc_dm_attr{64, 0, 1},
        ibv_alloc_dm_attr{whole + 1, 0, 0}}) {
    ibv_alloc_dm_attr attributes = wrong;
    EXPECT_EQ(ibv_alloc_dm(context, &attributes), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
  ibv_alloc_dm_attr all = {whole, 0, 0};
  ibv_alloc_dm_attr word = {4, 0, 0};
  ibv_dm* dm = ibv_alloc_dm(context, &all);
  ASSERT_NE(dm, nullptr);
  EXPECT_EQ(ibv_alloc_dm(context, &word), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_free_dm(dm), 0);
  dm = ibv_alloc_dm(context, &word);
  ASSERT_NE(dm, nullptr);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(Memory, OfTheDeviceIsWrittenAndReadByPeers) {
  create_pair(IBV_QPT_RC);
  ibv_alloc_dm_attr attributes = {256, 0, 0};
  ibv_dm* dm = ibv_alloc_dm(context, &attributes);
  ASSERT_NE(dm, nullptr);
  EXPECT_EQ(ibv_reg_dm_mr(pd, dm, 0, 260, device_access), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_dm_mr(pd, dm, 256, 4, device_access), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_dm_mr(pd, dm, 0, 256, device_access & ~unsigned{IBV_ACCESS_ZERO_BASED}),
            nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_dm_mr(pd, dm, 0, 256, device_access | IBV_ACCESS_ON_DEMAND), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_mr* region = ibv_reg_dm_mr(pd, dm, 64, 128, device_access);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(ibv_free_dm(dm), EBUSY);
  // lands at 64 + 96 of the device memory
  transfer(IBV_WR_RDMA_WRITE, piece(16, 32), 96, region->rkey);
  std::array<std::uint8_t, 32> bytes{};
  ASSERT_EQ(ibv_memcpy_from_dm(bytes.data(), dm, 160, 32), 0);
  EXPECT_EQ(std::memcmp(bytes.data(), &memory[16], 32), 0);
  transfer(IBV_WR_RDMA_READ, piece(4096, 32), 96, region->rkey);
  EXPECT_TRUE(equal(4096, 16, 32));
  ibv_sge local = {96, 32, region->lkey};
  transfer(IBV_WR_RDMA_WRITE, local, at(5000), mr->rkey);
  EXPECT_TRUE(equal(5000, 16, 32));
  transfer(IBV_WR_RDMA_WRITE, piece(0, 33), 96, region->rkey, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(Memory, NullRegionGivesZerosAndTakesAnything) {
  create_pair(IBV_QPT_RC);
  ibv_mr* null = ibv_alloc_null_mr(pd);
  ASSERT_NE(null, nullptr);
  transfer(IBV_WR_RDMA_READ, {12345, 2000, null->lkey}, at(0), mr->rkey);
  transfer(IBV_WR_RDMA_WRITE, {12345, 2000, null->lkey}, at(4096), mr->rkey);
  EXPECT_EQ(std::count(&memory[4096], &memory[4096 + 2000], 0), 2000);
  EXPECT_EQ(memory[4096 + 2000], static_cast<std::uint8_t>(4096 + 2000)) << "and no more";
  EXPECT_EQ(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  transfer(IBV_WR_RDMA_WRITE, piece(0, 8), 0, null->lkey, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(null), 0);
}

constexpr int paged = all_access | IBV_ACCESS_ON_DEMAND;

TEST_F(Memory, PagedOnDemandMayComeAndGo) {
  create_pair(IBV_QPT_RC);
  ibv_device_attr_ex attributes = {};
  ASSERT_EQ(ibv_query_device_ex(context, nullptr, &attributes), 0);
  ASSERT_NE(attributes.odp_caps.general_caps & IBV_ODP_SUPPORT, 0u);
  constexpr std::size_t length = 1u << 16;
  void* const place = mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(place, MAP_FAILED);
  ASSERT_EQ(munmap(place, length), 0);
  ibv_mr* region = ibv_reg_mr(pd, place, length, paged);
  ASSERT_NE(region, nullptr) << "there need not be memory yet";
  const auto address = reinterpret_cast<std::uint64_t>(place);
  ASSERT_EQ(mmap(place, length, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
            place);
  transfer(IBV_WR_RDMA_WRITE, piece(16, 3000), address + 4000, region->rkey);
  EXPECT_EQ(std::memcmp(static_cast<char*>(place) + 4000, &memory[16], 3000), 0);
  transfer(IBV_WR_RDMA_WRITE, {address + 4000, 100, region->lkey}, at(5000), mr->rkey);
  EXPECT_TRUE(equal(5000, 16, 100));
  ASSERT_EQ(munmap(place, length), 0);
  transfer(IBV_WR_RDMA_WRITE, piece(0, 8), address, region->rkey, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
}

TEST_F(Memory, PagedOnDemandAndGoneFailsLocallyToo) {
  create_pair(IBV_QPT_RC);
  constexpr std::size_t length = 4096;
  void* const place = mmap(nullptr, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ibv_mr* region = ibv_reg_mr(pd, place, length, paged);
  ASSERT_NE(region, nullptr);
  const auto address = reinterpret_cast<std::uint64_t>(place);
  transfer(IBV_WR_RDMA_WRITE, {address, 64, region->lkey}, at(4096), mr->rkey);
  EXPECT_EQ(std::count(&memory[4096], &memory[4096 + 64], 0), 64);
  ASSERT_EQ(munmap(place, length), 0);
  transfer(IBV_WR_RDMA_WRITE, {address, 64, region->lkey}, at(4096), mr->rkey, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
}

// As the kernel does, which pins such pages for writing.
TEST_F(Memory, ThatIsReadOnlyIsNotRegisteredForWrites) {
  constexpr std::size_t page = 4'096;
  auto* const pages = static_cast<std::byte*>(
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(mprotect(pages + page, page, PROT_READ), 0);
  const auto errno_of = [&](void* address, std::size_t length, int access) {
    errno = 0;
    ibv_mr* const region = ibv_reg_mr(pd, address, length, access);
    const int error = errno;
    EXPECT_EQ(region == nullptr, error != 0);
    if (region != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(region), 0);
    }
    return error;
  };
  constexpr int writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  EXPECT_EQ(errno_of(pages, page, writes), 0);
  EXPECT_EQ(errno_of(pages, page + 1, writes), EFAULT);
  EXPECT_EQ(errno_of(pages + page + 1, 5, IBV_ACCESS_LOCAL_WRITE), EFAULT);
  EXPECT_EQ(errno_of(pages, 2 * page, 0), 0);
  EXPECT_EQ(errno_of(pages + page, 12, IBV_ACCESS_REMOTE_READ), 0);
  const std::byte all_bits{0xA5};
  pages[page - 1] = all_bits;
  EXPECT_EQ(errno_of(pages + page - 1, 1, writes), 0);
  EXPECT_EQ(pages[page - 1], all_bits);
  munmap(pages, 2 * page);
}

TEST_F(Memory, AllOfTheAddressSpaceIsOneRegion) {
  create_pair(IBV_QPT_RC);
  EXPECT_EQ(ibv_reg_mr(pd, nullptr, SIZE_MAX, all_access), nullptr) << "only on demand";
  EXPECT_EQ(ibv_reg_mr_iova2(pd, nullptr, SIZE_MAX, 4096, paged), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_mr(pd, memory.data(), SIZE_MAX, paged), nullptr) << "it would wrap";
  EXPECT_EQ(errno, EINVAL);
  ibv_mr* region = ibv_reg_mr(pd, nullptr, SIZE_MAX, paged);
  ASSERT_NE(region, nullptr);
  std::array<std::uint8_t, 512> elsewhere{};
  transfer(IBV_WR_RDMA_WRITE, {at(100), 512, region->lkey},
           reinterpret_cast<std::uint64_t>(elsewhere.data()), region->rkey);
  EXPECT_EQ(std::memcmp(elsewhere.data(), &memory[100], 512), 0);
  // No program has memory at this address.
  transfer(IBV_WR_RDMA_WRITE, piece(0, 8), 1u << 13, region->rkey, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
}

TEST_F(Memory, AdviceIsChecked) {
  constexpr std::size_t length = 1u << 20;
  void* const place =
      mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ibv_mr* region = ibv_reg_mr(pd, place, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  ibv_mr* readable = ibv_reg_mr(pd, place, length, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(region, nullptr);
  ASSERT_NE(readable, nullptr);
  const auto address = reinterpret_cast<std::uint64_t>(place);
  constexpr auto read = IBV_ADVISE_MR_ADVICE_PREFETCH;
  constexpr auto write = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  constexpr auto no_fault = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
  constexpr std::uint32_t flush = IBV_ADVISE_MR_FLAG_FLUSH;
  const auto advise = [&](ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge sge) {
    return ibv_advise_mr(pd, advice, flags, &sge, 1);
  };
  const ibv_sge good = {address, length, region->lkey};
  const auto resident = [&] {
    std::vector<unsigned char> pages(length / 4096);
    EXPECT_EQ(mincore(place, length, pages.data()), 0);
    return std::count_if(pages.begin(), pages.end(), [](auto page) { return (page & 1) != 0; });
  };
  EXPECT_EQ(advise(no_fault, flush, good), 0);
  EXPECT_EQ(resident(), 0);
  EXPECT_EQ(advise(write, flush, good), 0);
  EXPECT_EQ(resident(), static_cast<long>(length / 4096));
  EXPECT_EQ(advise(read, 0, good), 0);
  EXPECT_EQ(advise(read, 2, good), EINVAL);
  EXPECT_EQ(advise(static_cast<ibv_advise_mr_advice>(3), 0, good), EOPNOTSUPP);
  EXPECT_EQ(ibv_advise_mr(pd, read, 0, nullptr, 1), EINVAL);
  EXPECT_EQ(ibv_advise_mr(pd, read, 0, nullptr, 0), EINVAL);
  EXPECT_EQ(advise(read, 0, {address + 1, length, region->lkey}), EFAULT);
  EXPECT_EQ(advise(read, 0, {address, 8, region->lkey + 256}), EFAULT);
  EXPECT_EQ(advise(read, 0, {at(0), 8, mr->lkey}), EINVAL) << "not paged on demand";
  EXPECT_EQ(advise(write, 0, {address, 8, readable->lkey}), EPERM);
  EXPECT_EQ(advise(read, 0, {address, 8, readable->lkey}), 0);
  ibv_pd* other = ibv_alloc_pd(context);
  ibv_sge sge = good;
  EXPECT_EQ(ibv_advise_mr(other, read, 0, &sge, 1), EPERM);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  ASSERT_EQ(munmap(place, length), 0);
  EXPECT_EQ(advise(read, 0, good), 0) << "advice that nobody waits for does what it can";
  EXPECT_EQ(advise(read, flush, good), EFAULT);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(ibv_dereg_mr(readable), 0);
}

TEST_F(Memory, BuffersThatCanBeMappedAreRegistered) {
  create_pair(IBV_QPT_RC);
  const int fd = memfd_create("buffer", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 16384), 0);
  EXPECT_EQ(ibv_reg_dmabuf_mr(pd, 0, 16385, 0, fd, all_access), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, all_access), nullptr);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, fd, paged), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, fd, IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  constexpr std::uint64_t iova = 0x1000'0000;
  ibv_mr* region = ibv_reg_dmabuf_mr(pd, 5000, 8000, iova, fd, all_access);
  ASSERT_NE(region, nullptr);
  transfer(IBV_WR_RDMA_WRITE, piece(16, 1000), iova + 10, region->rkey);
  std::array<std::uint8_t, 1000> bytes{};
  ASSERT_EQ(pread(fd, bytes.data(), bytes.size(), 5010), 1000);
  EXPECT_EQ(std::memcmp(bytes.data(), &memory[16], bytes.size()), 0);
  transfer(IBV_WR_RDMA_WRITE, piece(0, 11), iova + 7990, region->rkey, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  close(fd);
}

}  // namespace
}  // namespace tulle::shim
