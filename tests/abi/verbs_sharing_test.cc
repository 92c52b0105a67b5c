// Tests the C API over a loopback device: objects that contexts share, and domains over domains.

#include <unistd.h>

#include "shim/ibverbs/objects.h"
#include "verbs_fixture.h"

namespace tulle::shim {
namespace {

class Sharing : public Verbs {
 protected:
  void import() {
    const int fd = dup(context->cmd_fd);
    ASSERT_GE(fd, 0);
    other = ibv_import_device(fd);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(other->cmd_fd, fd);
    EXPECT_EQ(other->device, context->device);
  }
  ibv_context* other = nullptr;
};

TEST_F(Sharing, DescriptorsThatAreNotOursAreRefused) {
  EXPECT_EQ(ibv_import_device(-1), nullptr);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(ibv_import_device(0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Sharing, HandlesThatNameNothingAreRefused) {
  import();
  EXPECT_EQ(ibv_import_pd(other, 999), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(ibv_import_mr(pd, 999), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(ibv_import_dm(other, 999), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(ibv_import_pd(nullptr, 0), nullptr);
  EXPECT_EQ(ibv_close_device(other), 0);
}

// Handles have 32 bits, and a program may live for more objects.
TEST_F(Sharing, HandlesThatComeAgainAreNoLivingObjects) {
  import();
  Context::of(context).file->next_handle = pd->handle;
  ibv_pd* later = ibv_alloc_pd(context);
  ASSERT_NE(later, nullptr);
  EXPECT_NE(later->handle, pd->handle);
  Context::of(context).file->next_handle = mr->handle;
  ibv_mr* region = ibv_reg_mr(pd, mr->addr, mr->length, 0);
  ASSERT_NE(region, nullptr);
  EXPECT_NE(region->handle, mr->handle);
  ibv_pd* imported = ibv_import_pd(other, pd->handle);
  ASSERT_NE(imported, nullptr);
  ibv_unimport_pd(imported);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(ibv_dealloc_pd(later), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
}

TEST_F(Sharing, ImportedRegionServesQueuePairsOfTheImportedDomain) {
  import();
  ibv_pd* imported_pd = ibv_import_pd(other, pd->handle);
  ASSERT_NE(imported_pd, nullptr);
  EXPECT_EQ(imported_pd->context, other);
  EXPECT_EQ(imported_pd->handle, pd->handle);
  ibv_mr* imported = ibv_import_mr(imported_pd, mr->handle);
  ASSERT_NE(imported, nullptr);
  EXPECT_EQ(imported->lkey, mr->lkey);
  EXPECT_EQ(imported->rkey, mr->rkey);
  EXPECT_EQ(imported->length, mr->length);
  EXPECT_EQ(imported->addr, nullptr);
  // The queue pair belongs to the other context, and to the shared domain.
  ibv_cq* other_cq = ibv_create_cq(other, 8, nullptr, nullptr, 0);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = other_cq;
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* sender = ibv_create_qp(imported_pd, &init);
  ASSERT_NE(sender, nullptr);
  b = create(IBV_QPT_RC);
  connect(sender, b);
  connect(b, sender);
  ibv_sge sge = {at(16), 64, imported->lkey};
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  wr.wr.rdma = {at(4096), imported->rkey};
  ASSERT_EQ(post(sender, wr), 0);
  ibv_wc wc = {};
  for (int tries = 0; tries < 1000 && ibv_poll_cq(other_cq, 1, &wc) == 0; ++tries) {
  }
  EXPECT_EQ(wc.wr_id, 7u);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_TRUE(equal(16, 4096, 64));
  EXPECT_EQ(ibv_dealloc_pd(imported_pd), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(sender), 0);
  EXPECT_EQ(ibv_destroy_cq(other_cq), 0);
  ibv_unimport_mr(imported);
  ibv_unimport_pd(imported_pd);
  EXPECT_EQ(ibv_close_device(other), 0);
}

TEST_F(Sharing, DeregisteredByAnyGoneForAll) {
  import();
  ibv_pd* imported_pd = ibv_import_pd(other, pd->handle);
  ibv_mr* imported = ibv_import_mr(imported_pd, mr->handle);
  ASSERT_NE(imported, nullptr);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT)
      << "others hold it";
  ASSERT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_import_mr(imported_pd, imported->handle), nullptr);
  EXPECT_EQ(ibv_dereg_mr(imported), EINVAL);
  EXPECT_EQ(ibv_rereg_mr(imported, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  ibv_unimport_mr(imported);
  ibv_unimport_pd(imported_pd);
  EXPECT_EQ(ibv_close_device(other), 0);
  mr = ibv_reg_mr(pd, memory.data(), memory.size(), all_access);
  ASSERT_NE(mr, nullptr);
}

TEST_F(Sharing, ObjectsOutliveTheContextThatMadeThem) {
  ibv_device** devices = ibv_get_device_list(nullptr);
  ibv_context* first = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  ibv_context* second = ibv_import_device(dup(first->cmd_fd));
  ASSERT_NE(second, nullptr);
  ibv_pd* first_pd = ibv_alloc_pd(first);
  ibv_mr* first_mr = ibv_reg_mr(first_pd, memory.data(), 64, all_access);
  ibv_alloc_dm_attr attributes = {64, 0, 0};
  ibv_dm* first_dm = ibv_alloc_dm(first, &attributes);
  ASSERT_NE(first_dm, nullptr);
  ASSERT_EQ(ibv_memcpy_to_dm(first_dm, 0, memory.data(), 64), 0);
  ibv_pd* second_pd = ibv_import_pd(second, first_pd->handle);
  ibv_mr* second_mr = ibv_import_mr(second_pd, first_mr->handle);
  ibv_dm* second_dm = ibv_import_dm(second, first_dm->handle);
  ASSERT_NE(second_dm, nullptr);
  ASSERT_NE(second_mr, nullptr);
  EXPECT_EQ(ibv_close_device(first), 0);
  std::array<std::uint8_t, 64> bytes{};
  EXPECT_EQ(ibv_memcpy_from_dm(bytes.data(), second_dm, 0, 64), 0);
  EXPECT_EQ(std::memcmp(bytes.data(), memory.data(), 64), 0);
  ibv_unimport_dm(second_dm);
  EXPECT_EQ(ibv_dealloc_pd(second_pd), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(second_mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(second_pd), 0);
  EXPECT_EQ(ibv_close_device(second), 0);
}

// --- parent domains ---

struct Allocations {
  int given = 0;
  int taken_back = 0;
  std::vector<std::uint64_t> resources;
  ibv_pd* domain = nullptr;
  bool refuse = false;
  bool use_default = false;
};

void* allocate(ibv_pd* domain, void* context, std::size_t size, std::size_t alignment,
               std::uint64_t resource) {
  auto& seen = *static_cast<Allocations*>(context);
  if (seen.refuse) return nullptr;
  if (seen.use_default) return IBV_ALLOCATOR_USE_DEFAULT;
  ++seen.given;
  seen.domain = domain;
  seen.resources.push_back(resource);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
void take_back(ibv_pd*, void* context, void* memory, std::uint64_t) {
  ++static_cast<Allocations*>(context)->taken_back;
  std::free(memory);
}

class Domains : public Verbs {
 protected:
  ibv_pd* parent(ibv_td* td = nullptr, Allocations* allocations = nullptr) {
    ibv_parent_domain_init_attr attributes = {};
    attributes.pd = pd;
    attributes.td = td;
    if (allocations != nullptr) {
      attributes.comp_mask =
          IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
      attributes.alloc = allocate;
      attributes.free = take_back;
      attributes.pd_context = allocations;
    }
    return ibv_alloc_parent_domain(context, &attributes);
  }
};

TEST_F(Domains, ArePartsOfEachOther) {
  ibv_td_init_attr attributes = {};
  ibv_td* td = ibv_alloc_td(context, &attributes);
  ASSERT_NE(td, nullptr);
  ibv_pd* domain = parent(td);
  ASSERT_NE(domain, nullptr);
  EXPECT_EQ(domain->context, context);
  EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  // The parent domain is the protection domain: regions and queue pairs of either work together.
  ibv_mr* region = ibv_reg_mr(domain, memory.data(), 64, all_access);
  ASSERT_NE(region, nullptr);
  create_pair(IBV_QPT_RC);
  ibv_sge sge = {at(0), 64, region->lkey};
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  wr.wr.rdma = {at(4096), mr->rkey};
  ASSERT_EQ(post(a, wr), 0);
  expect(7, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(ibv_dealloc_pd(domain), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
}

TEST_F(Domains, ThatMakeNoSenseAreRefused) {
  ibv_parent_domain_init_attr attributes = {};
  EXPECT_EQ(ibv_alloc_parent_domain(context, &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attributes.pd = pd;
  attributes.comp_mask = 8;
  EXPECT_EQ(ibv_alloc_parent_domain(context, &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attributes.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  EXPECT_EQ(ibv_alloc_parent_domain(context, &attributes), nullptr) << "without functions";
  ibv_pd* domain = parent();
  ASSERT_NE(domain, nullptr);
  attributes = {};
  attributes.pd = domain;
  EXPECT_EQ(ibv_alloc_parent_domain(context, &attributes), nullptr) << "over a parent domain";
  ibv_td_init_attr unknown = {1};
  EXPECT_EQ(ibv_alloc_td(context, &unknown), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_cq_init_attr_ex cq_attributes = {};
  cq_attributes.cqe = 4;
  cq_attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  EXPECT_EQ(ibv_create_cq_ex(context, &cq_attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  cq_attributes.parent_domain = pd;
  EXPECT_EQ(ibv_create_cq_ex(context, &cq_attributes), nullptr) << "no parent domain";
  EXPECT_EQ(ibv_dealloc_pd(domain), 0);
}

TEST_F(Domains, HaveAllocatorsOfTheirOwn) {
  Allocations allocations;
  ibv_pd* domain = parent(nullptr, &allocations);
  ASSERT_NE(domain, nullptr);
  ibv_cq_init_attr_ex cq_attributes = {};
  cq_attributes.cqe = 8;
  cq_attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  cq_attributes.parent_domain = domain;
  ibv_cq_ex* own_cq = ibv_create_cq_ex(context, &cq_attributes);
  ASSERT_NE(own_cq, nullptr);
  ibv_srq_init_attr srq_attributes = {nullptr, {8, 1, 0}};
  ibv_srq* srq = ibv_create_srq(domain, &srq_attributes);
  ASSERT_NE(srq, nullptr);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(own_cq);
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(domain, &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(allocations.given, 3);
  EXPECT_EQ(allocations.domain, domain);
  EXPECT_EQ(allocations.resources, (std::vector<std::uint64_t>{2, 3, 1}));
  EXPECT_EQ(ibv_dealloc_pd(domain), EBUSY);
  EXPECT_EQ(allocations.taken_back, 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(own_cq)), 0);
  EXPECT_EQ(allocations.taken_back, 3);

  allocations.use_default = true;
  srq = ibv_create_srq(domain, &srq_attributes);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  allocations.use_default = false;
  allocations.refuse = true;
  EXPECT_EQ(ibv_create_srq(domain, &srq_attributes), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  allocations.refuse = false;
  init.cap.max_send_wr = 1u << 30;
  init.send_cq = init.recv_cq = cq;
  EXPECT_EQ(ibv_create_qp(domain, &init), nullptr);
  EXPECT_EQ(allocations.given, allocations.taken_back) << "what was not made gives it back";
  EXPECT_EQ(ibv_dealloc_pd(domain), 0);
}

TEST_F(Domains, GoWithTheirContext) {
  ibv_device** devices = ibv_get_device_list(nullptr);
  ibv_context* brief = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  ibv_td_init_attr none = {};
  for (int i = 0; i < 4; ++i) {
    ibv_parent_domain_init_attr attributes = {};
    attributes.pd = ibv_alloc_pd(brief);
    attributes.td = ibv_alloc_td(brief, &none);
    ibv_pd* domain = ibv_alloc_parent_domain(brief, &attributes);
    ASSERT_NE(domain, nullptr);
    ASSERT_NE(ibv_reg_mr(domain, memory.data(), 64, all_access), nullptr);
  }
  EXPECT_EQ(ibv_close_device(brief), 0);
}

// --- the clock ---

TEST_F(Verbs, CompletionsAreStamped) {
  ibv_device_attr_ex attributes = {};
  ASSERT_EQ(ibv_query_device_ex(context, nullptr, &attributes), 0);
  EXPECT_EQ(attributes.completion_timestamp_mask, ~std::uint64_t{0});
  EXPECT_EQ(attributes.hca_core_clock, 1'000'000u);
  const auto ticks = [&] {
    ibv_values_ex values = {};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    EXPECT_EQ(ibv_query_rt_values_ex(context, &values), 0);
    return static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
  };
  ibv_values_ex unknown = {};
  unknown.comp_mask = 6;
  EXPECT_EQ(ibv_query_rt_values_ex(context, &unknown), EINVAL);

  ibv_cq_init_attr_ex init = {};
  init.cqe = 8;
  init.wc_flags =
      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  ibv_cq_ex* stamped = ibv_create_cq_ex(context, &init);
  ASSERT_NE(stamped, nullptr);
  ibv_cq* const plain = cq;
  cq = ibv_cq_ex_to_cq(stamped);
  create_pair(IBV_QPT_RC);
  const std::uint64_t before = ticks();
  for (int i = 0; i < 2; ++i) {
    ibv_sge sge = piece(0, 8);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
    wr.wr.rdma = {at(4096), mr->rkey};
    ASSERT_EQ(post(a, wr), 0);
  }
  ibv_poll_cq_attr poll = {};
  int result = ibv_start_poll(stamped, &poll);
  for (int tries = 0; tries < 1000 && result == ENOENT; ++tries) {
    result = ibv_start_poll(stamped, &poll);
  }
  ASSERT_EQ(result, 0);
  const std::uint64_t first = ibv_wc_read_completion_ts(stamped);
  const std::uint64_t wall = ibv_wc_read_completion_wallclock_ns(stamped);
  ASSERT_EQ(ibv_next_poll(stamped), 0);
  const std::uint64_t second = ibv_wc_read_completion_ts(stamped);
  ibv_end_poll(stamped);
  EXPECT_LE(before, first);
  EXPECT_LE(first, second);
  EXPECT_LE(second, ticks());
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const auto now_nanoseconds = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000;
  EXPECT_NEAR(static_cast<double>(wall), static_cast<double>(now_nanoseconds), 60e9);
  for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
  qps.clear();
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  cq = plain;
}

}  // namespace
}  // namespace tulle::shim
