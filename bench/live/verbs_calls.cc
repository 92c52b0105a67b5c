// Measures how long verbs calls take that move no data: queries, and the making and destroying of
// objects. A program waits for each of them, and no network is in the way.

#include <infiniband/verbs.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const char* what, int error) {
  std::fprintf(stderr, "verbs_calls: %s: %s\n", what, std::strerror(error));
  std::exit(1);
}

template <typename Object>
Object* must(const char* what, Object* object) {
  if (object == nullptr) die(what, errno);
  return object;
}

void must(const char* what, int error) {
  if (error != 0) die(what, error);
}

// Collects the microseconds of one call, and prints their median when it ends.
class Call {
 public:
  explicit Call(const char* name) : name_(name) {}

  template <typename Function>
  auto operator()(Function function) {
    const auto start = Clock::now();
    const auto result = function();
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    microseconds_.push_back(took.count());
    return result;
  }
  void print(bool is_last) {
    std::sort(microseconds_.begin(), microseconds_.end());
    std::printf("\"%s\": %.3f%s", name_, microseconds_[microseconds_.size() / 2],
                is_last ? "}\n" : ", ");
  }

 private:
  const char* name_;
  std::vector<double> microseconds_;
};

struct Device {
  ibv_context* context;
  ibv_pd* pd;
  ibv_cq* cq;
  ibv_qp* qp;
  ibv_gid gid;
};

ibv_qp_init_attr queue_pair_of(ibv_cq* cq, ibv_qp_type type) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = type;
  init.cap.max_send_wr = init.cap.max_recv_wr = 16;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  return init;
}

Device open() {
  ibv_device** devices = must("ibv_get_device_list", ibv_get_device_list(nullptr));
  Device device{};
  device.context =
      must("ibv_open_device", devices[0] == nullptr ? nullptr : ibv_open_device(*devices));
  ibv_free_device_list(devices);
  device.pd = must("ibv_alloc_pd", ibv_alloc_pd(device.context));
  device.cq = must("ibv_create_cq", ibv_create_cq(device.context, 16, nullptr, nullptr, 0));
  must("ibv_query_gid", ibv_query_gid(device.context, 1, 0, &device.gid));
  ibv_qp_init_attr init = queue_pair_of(device.cq, IBV_QPT_RC);
  device.qp = must("ibv_create_qp", ibv_create_qp(device.pd, &init));
  return device;
}

void measure_queries(const Device& device, int rounds) {
  std::array calls{Call("ibv_query_device"), Call("ibv_query_port"), Call("ibv_query_gid"),
                   Call("ibv_query_pkey"), Call("ibv_query_qp")};
  for (int i = 0; i < rounds; ++i) {
    ibv_device_attr attributes;
    ibv_port_attr port;
    ibv_gid gid;
    __be16 pkey = 0;
    ibv_qp_attr qp;
    ibv_qp_init_attr init;
    ibv_context* context = device.context;
    must("ibv_query_device", calls[0]([&] { return ibv_query_device(context, &attributes); }));
    must("ibv_query_port", calls[1]([&] { return ibv_query_port(context, 1, &port); }));
    must("ibv_query_gid", calls[2]([&] { return ibv_query_gid(context, 1, 0, &gid); }));
    must("ibv_query_pkey", calls[3]([&] { return ibv_query_pkey(context, 1, 0, &pkey); }));
    must("ibv_query_qp",
         calls[4]([&] { return ibv_query_qp(device.qp, &qp, IBV_QP_STATE, &init); }));
  }
  for (Call& call : calls) call.print(&call == &calls.back());
}

void measure_objects(const Device& device, int rounds) {
  std::array calls{Call("ibv_alloc_pd"),
                   Call("ibv_dealloc_pd"),
                   Call("ibv_create_cq"),
                   Call("ibv_destroy_cq"),
                   Call("ibv_create_srq"),
                   Call("ibv_destroy_srq"),
                   Call("ibv_create_qp (RC)"),
                   Call("ibv_destroy_qp (RC)"),
                   Call("ibv_create_qp (UD)"),
                   Call("ibv_destroy_qp (UD)"),
                   Call("ibv_create_ah"),
                   Call("ibv_destroy_ah"),
                   Call("ibv_create_comp_channel"),
                   Call("ibv_destroy_comp_channel")};
  std::size_t at = 0;
  const auto both = [&](auto make, auto destroy) {
    auto* object = must("making an object", calls[at]([&] { return make(); }));
    must("destroying an object", calls[at + 1]([&] { return destroy(object); }));
    at += 2;
  };
  for (int i = 0; i < rounds; ++i) {
    at = 0;
    both([&] { return ibv_alloc_pd(device.context); }, ibv_dealloc_pd);
    both([&] { return ibv_create_cq(device.context, 16, nullptr, nullptr, 0); }, ibv_destroy_cq);
    ibv_srq_init_attr srq{};
    srq.attr.max_wr = 16;
    srq.attr.max_sge = 1;
    both([&] { return ibv_create_srq(device.pd, &srq); }, ibv_destroy_srq);
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UD}) {
      ibv_qp_init_attr init = queue_pair_of(device.cq, type);
      both([&] { return ibv_create_qp(device.pd, &init); }, ibv_destroy_qp);
    }
    ibv_ah_attr to{};
    to.is_global = to.port_num = 1;
    to.grh.dgid = device.gid;
    to.grh.hop_limit = 64;
    both([&] { return ibv_create_ah(device.pd, &to); }, ibv_destroy_ah);
    both([&] { return ibv_create_comp_channel(device.context); }, ibv_destroy_comp_channel);
  }
  for (Call& call : calls) call.print(&call == &calls.back());
}

void measure_registration(const Device& device, int rounds) {
  constexpr std::size_t bytes = 4096;
  const auto memory = std::make_unique<char[]>(bytes);
  std::array calls{Call("ibv_reg_mr"), Call("ibv_dereg_mr")};
  for (int i = 0; i < rounds; ++i) {
    constexpr int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    ibv_mr* region =
        must("ibv_reg_mr",
             calls[0]([&] { return (ibv_reg_mr)(device.pd, memory.get(), bytes, access); }));
    must("ibv_dereg_mr", calls[1]([&] { return ibv_dereg_mr(region); }));
  }
  for (Call& call : calls) call.print(&call == &calls.back());
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app(
      "Measures verbs calls that move no data. Prints the median of each in microseconds, as "
      "JSON.");
  std::string which;
  app.add_option("which", which, "queries, objects or registration")
      ->required()
      ->check(CLI::IsMember({"queries", "objects", "registration"}));
  int rounds = 1000;
  app.add_option("--rounds", rounds, "calls of each (1000)")->check(CLI::Range(1, 1'000'000));
  CLI11_PARSE(app, argc, argv);
  const Device device = open();
  std::printf("{");
  if (which == "queries") measure_queries(device, rounds);
  if (which == "objects") measure_objects(device, rounds);
  if (which == "registration") measure_registration(device, rounds);
  ibv_destroy_qp(device.qp);
  ibv_destroy_cq(device.cq);
  ibv_dealloc_pd(device.pd);
  ibv_close_device(device.context);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "verbs_calls: %s\n", error.what());
  return 1;
}
