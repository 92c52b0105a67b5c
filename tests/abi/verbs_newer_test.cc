// Tests functions and slots of newer releases of rdma-core than the headers may declare.

#include "shim/ibverbs/newer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <limits>

#include "verbs_fixture.h"

namespace tulle::shim {
namespace {

using Newer = Verbs;

// Returns 0 if the headers do not say what the struct holds.
template <typename Struct>
consteval std::size_t declared_bytes() {
  if constexpr (requires { sizeof(Struct); }) {
    return sizeof(Struct);
  } else {
    return 0;
  }
}
static_assert(declared_bytes<ibv_mr_init_attr>() == 0 ||
              declared_bytes<ibv_mr_init_attr>() == sizeof(RegionRequest));

ibv_mr* ask(ibv_pd* pd, RegionRequest request) {
  errno = 0;
  return ibv_reg_mr_ex(pd, reinterpret_cast<ibv_mr_init_attr*>(&request));
}

TEST_F(Newer, RegionsAreRegisteredByWhatTheRequestNames) {
  constexpr auto by_address = region_field::address;
  RegionRequest request = {};
  request.length = memory.size();
  request.access = all_access;
  request.address = memory.data();
  request.fields = by_address;
  ibv_mr* region = ask(pd, request);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->addr, memory.data());
  EXPECT_EQ(region->length, memory.size());
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  request.iova = 0x1'0000'0000;
  request.fields = by_address | region_field::iova;
  region = ask(pd, request);
  ASSERT_NE(region, nullptr);
  create_pair(IBV_QPT_RC);
  ibv_sge from = piece(16, 32);
  ibv_send_wr wr = this->request(IBV_WR_RDMA_WRITE, &from);
  wr.wr.rdma.remote_addr = request.iova + 128;
  wr.wr.rdma.rkey = region->rkey;
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(std::memcmp(&memory[128], &memory[16], 32), 0);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
}

TEST_F(Newer, RegionsOfDmaBuffersNameDescriptorOffsetAndAddress) {
  const int fd = memfd_create("buffer", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 16384), 0);
  RegionRequest request = {};
  request.length = 8000;
  request.access = all_access;
  request.fd = fd;
  request.fd_offset = 4096;
  request.iova = 0x1000;
  constexpr auto by_fd = region_field::fd | region_field::fd_offset | region_field::iova;
  request.fields = by_fd;
  ibv_mr* region = ask(pd, request);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  for (const auto wrong : {by_fd | region_field::address, region_field::fd | region_field::iova,
                           region_field::fd | region_field::fd_offset}) {
    request.fields = wrong;
    EXPECT_EQ(ask(pd, request), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
  close(fd);
}

TEST_F(Newer, RequestsThatNameNothingOrTooMuchAreRefused) {
  RegionRequest request = {};
  request.length = memory.size();
  request.access = all_access;
  request.address = memory.data();
  EXPECT_EQ(ask(pd, request), nullptr);
  EXPECT_EQ(errno, EINVAL);
  request.fields = region_field::address | region_field::fd_offset;
  EXPECT_EQ(ask(pd, request), nullptr);
  EXPECT_EQ(errno, EINVAL);
  for (const auto unknown : {region_field::dma_handle, std::uint64_t{1} << 6}) {
    request.fields = region_field::address | unknown;
    EXPECT_EQ(ask(pd, request), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  EXPECT_EQ(ibv_reg_mr_ex(pd, nullptr), nullptr);
  EXPECT_EQ(ask(nullptr, request), nullptr);
}

TEST_F(Newer, BuffersAreRegisteredWithinTheirBounds) {
  ibv_buf* buffer = nullptr;
  auto* bytes = static_cast<std::byte*>(ibv_alloc_buf(pd, 10'000, &buffer));
  ASSERT_NE(bytes, nullptr);
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes) % page, 0u);
  std::memset(bytes, 1, 10'000);
  ibv_mr* region = ibv_reg_buf_mr(pd, buffer, bytes + 5'000, 5'000, all_access);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->addr, bytes + 5'000);
  EXPECT_EQ(ibv_dereg_mr(region), 0);

  constexpr std::size_t greatest = std::numeric_limits<std::size_t>::max();
  const auto is_refused = [&](ibv_pd* domain, ibv_buf* of, std::byte* at, std::size_t length) {
    errno = 0;
    return ibv_reg_buf_mr(domain, of, at, length, all_access) == nullptr && errno == EINVAL;
  };
  EXPECT_TRUE(is_refused(pd, buffer, bytes + 5'001, 5'000));
  EXPECT_TRUE(is_refused(pd, buffer, bytes - 1, 10));
  EXPECT_TRUE(is_refused(pd, buffer, bytes + 1, greatest));
  EXPECT_TRUE(is_refused(pd, buffer, bytes + 10'001, 0));
  EXPECT_TRUE(is_refused(pd, nullptr, bytes, 10));
  ibv_pd* other = ibv_alloc_pd(context);
  EXPECT_TRUE(is_refused(other, buffer, bytes, 10));
  EXPECT_EQ(ibv_dealloc_pd(other), 0);

  EXPECT_EQ(ibv_export_buf_dmabuf_fd(buffer), -1);
  EXPECT_EQ(errno, ENODATA);
  ibv_free_buf(buffer);
  ibv_free_buf(nullptr);
  EXPECT_EQ(ibv_alloc_buf(pd, 0, &buffer), nullptr);
  EXPECT_EQ(ibv_alloc_buf(nullptr, 1, &buffer), nullptr);
}

TEST_F(Newer, ParentDomainsMayAllowUnprotectedMemory) {
  ibv_parent_domain_init_attr attributes = {};
  attributes.pd = pd;
  attributes.comp_mask = parent_domain_allows_unprotected_memory;
  ibv_pd* parent = ibv_alloc_parent_domain(context, &attributes);
  ASSERT_NE(parent, nullptr);
  ibv_buf* buffer = nullptr;
  void* bytes = ibv_alloc_buf(parent, 4'096, &buffer);
  ibv_mr* region = ibv_reg_buf_mr(parent, buffer, bytes, 4'096, all_access);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  ibv_free_buf(buffer);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
}

TEST_F(Newer, ThePortsSpeedIsThatOfItsAttributes) {
  std::uint64_t speed = 0;
  EXPECT_EQ(ibv_query_port_speed(context, 1, &speed), 0);
  EXPECT_EQ(speed, 1'000u) << "four lanes of EDR";
  EXPECT_EQ(ibv_query_port_speed(context, 2, &speed), EINVAL);
  EXPECT_EQ(ibv_query_port_speed(context, 1, nullptr), EINVAL);
  EXPECT_EQ(ibv_query_port_speed(nullptr, 1, &speed), EINVAL);
}

TEST_F(Newer, NamesOfOperations) {
  EXPECT_STREQ(ibv_wr_opcode_str(IBV_WR_SEND), "send");
  EXPECT_STREQ(ibv_wr_opcode_str(static_cast<ibv_wr_opcode>(14)), "flush");
  EXPECT_STREQ(ibv_wr_opcode_str(static_cast<ibv_wr_opcode>(12)), "unknown");
  EXPECT_STREQ(ibv_event_type_str(static_cast<ibv_event_type>(20)), "Device link speed change");
}

TEST_F(Newer, FeaturesThatTheDeviceLacksAreRefused) {
  errno = 0;
  EXPECT_EQ(ibv_alloc_dmah(context, nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_dealloc_dmah(nullptr), EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(ibv_dm_export_dmabuf_fd(nullptr), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(ibv_create_comp_cntr(context, nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(_ibv_query_comp_cntr_caps(context, nullptr, 0), EOPNOTSUPP);
  EXPECT_EQ(ibv_destroy_comp_cntr(nullptr), EOPNOTSUPP);
  EXPECT_EQ(ibv_set_comp_cntr(nullptr, 0), EOPNOTSUPP);
  EXPECT_EQ(ibv_set_err_comp_cntr(nullptr, 0), EOPNOTSUPP);
  EXPECT_EQ(ibv_inc_comp_cntr(nullptr, 0), EOPNOTSUPP);
  EXPECT_EQ(ibv_inc_err_comp_cntr(nullptr, 0), EOPNOTSUPP);
  EXPECT_EQ(ibv_read_comp_cntr(nullptr, nullptr), EOPNOTSUPP);
  EXPECT_EQ(ibv_read_err_comp_cntr(nullptr, nullptr), EOPNOTSUPP);
  EXPECT_EQ(ibv_qp_attach_comp_cntr(nullptr, nullptr, nullptr), EOPNOTSUPP);
}

// A program that was built with newer headers calls the slot behind wr_atomic_write by its place.
TEST_F(Newer, TheBuilderOfFlushRefuses) {
  constexpr std::uint64_t with_flush = 1 << 11;
  errno = 0;
  EXPECT_EQ(create(IBV_QPT_RC, IBV_QP_EX_WITH_SEND | with_flush), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  create_pair(IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(a);
  ASSERT_NE(qp, nullptr);
  using Flush =
      void (*)(ibv_qp_ex*, std::uint32_t, std::uint64_t, std::size_t, std::uint8_t, std::uint8_t);
  Flush flush = nullptr;
  std::memcpy(&flush, &qp->wr_atomic_write + 1, sizeof flush);
  ibv_wr_start(qp);
  flush(qp, mr->rkey, 0, 64, 1, 0);
  EXPECT_EQ(ibv_wr_complete(qp), EOPNOTSUPP);
  ibv_sge sge = piece(0, 8);
  ibv_send_wr wr = request(static_cast<ibv_wr_opcode>(14), &sge);
  EXPECT_EQ(post(a, wr), EOPNOTSUPP);
}

// rdma-core 56's own tests give these rights to each reliable queue pair.
TEST_F(Newer, AQueuePairsRightsToFlushChangeNothing) {
  ibv_qp* qp = create(IBV_QPT_RC);
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ | 1 << 8 | 1 << 9;
  constexpr int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  ASSERT_EQ(ibv_modify_qp(qp, &attributes, mask), 0);
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(qp, &attributes, IBV_QP_ACCESS_FLAGS, &init), 0);
  EXPECT_EQ(attributes.qp_access_flags, static_cast<unsigned>(IBV_ACCESS_REMOTE_READ));
}

TEST_F(Newer, AccessForFlushIsRefused) {
  for (const int flush : {1 << 8, 1 << 9}) {
    EXPECT_EQ((ibv_reg_mr)(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | flush),
              nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
}

}  // namespace
}  // namespace tulle::shim
