// Each process opens its devices once and leaves them open. Contexts that this library hands out
// stay valid as long as it is loaded, whatever becomes of the ids. A forked child opens separate
// devices: those of its parent have the parent's queue pair numbers and do not work in the child.

#include <algorithm>
#include <cstdlib>
#include <string>

#include "os/cancellation.h"
#include "shim/rdmacm/objects.h"
#include "shim/rsockets/sockets/socket.h"

namespace tulle::shim::rdmacm {
namespace {

struct OpenDevices {
  std::mutex mutex;
  std::list<Device> devices;
};

// Ids that a child has inherited name the devices of its parent, which the child leaves as they
// are.
OpenDevices& open_devices() { return rsockets::of_process<OpenDevices>(); }

int open(ibv_device* found, Device& out) {
  out.verbs = ibv_open_device(found);
  if (out.verbs == nullptr) return errno != 0 ? errno : ENODEV;
  if (const int error = ibv_query_device(out.verbs, &out.attributes); error != 0) {
    ibv_close_device(out.verbs);
    return error;
  }
  return 0;
}

// Opens all devices that are not open yet. The caller holds the registry's lock.
int open_all(OpenDevices& all) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr) return errno != 0 ? errno : ENODEV;
  for (int i = 0; i < count; ++i) {
    const bool known =
        std::any_of(all.devices.begin(), all.devices.end(),
                    [&](const Device& device) { return device.verbs->device == list[i]; });
    Device device;
    if (!known && open(list[i], device) == 0) all.devices.push_back(device);
  }
  ibv_free_device_list(list);
  return all.devices.empty() ? ENODEV : 0;
}

Device* find(OpenDevices& all, const std::string& name) {
  for (Device& device : all.devices) {
    if (name == ibv_get_device_name(device.verbs->device)) return &device;
  }
  return nullptr;
}

}  // namespace

std::uint8_t Device::initiator_depth_max() const {
  return static_cast<std::uint8_t>(std::clamp(attributes.max_qp_init_rd_atom, 0, 0xFF));
}

std::uint8_t Device::responder_resources_max() const {
  return static_cast<std::uint8_t>(std::clamp(attributes.max_qp_rd_atom, 0, 0xFF));
}

void Device::take_in_packets() const {
  ibv_wc none;
  if (empty != nullptr) (void)ibv_poll_cq(empty, 1, &none);
}

int find_device(const std::string& name, Device*& out) {
  OpenDevices& all = open_devices();
  const std::lock_guard guard(all.mutex);
  out = find(all, name);
  if (out == nullptr) {
    if (const int error = open_all(all); error != 0) return error;
    out = find(all, name);
    // The process's name for the host's device may differ from the host agent's.
    if (out == nullptr && all.devices.size() == 1) out = &all.devices.front();
  }
  if (out == nullptr) return ENODEV;
  if (out->empty == nullptr) out->empty = ibv_create_cq(out->verbs, 1, nullptr, nullptr, 0);
  if (out->pd == nullptr) out->pd = ibv_alloc_pd(out->verbs);
  return out->pd != nullptr ? 0 : errno;
}

int open_xrc_domain(Device& device) {
  const std::lock_guard guard(open_devices().mutex);
  if (device.xrcd != nullptr) return 0;
  ibv_xrcd_init_attr attributes = {};
  attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attributes.fd = -1;  // no file: the domain is this process's alone
  attributes.oflags = O_CREAT;
  device.xrcd = ibv_open_xrcd(device.verbs, &attributes);
  return device.xrcd != nullptr ? 0 : errno;
}

extern "C" {

ibv_context** rdma_get_devices(int* count) try {
  const NoCancellation no_cancellation;
  if (count != nullptr) *count = 0;
  OpenDevices& all = open_devices();
  const std::lock_guard guard(all.mutex);
  if (const int error = open_all(all); error != 0) {
    errno = error;
    return nullptr;
  }
  auto** list = static_cast<ibv_context**>(std::calloc(all.devices.size() + 1, sizeof(void*)));
  if (list == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  int at = 0;
  for (const Device& device : all.devices) list[at++] = device.verbs;
  if (count != nullptr) *count = at;
  return list;
} catch (const std::bad_alloc&) {
  return without_memory<ibv_context**, 0>();
}

void rdma_free_devices(ibv_context** list) { std::free(list); }

}  // extern "C"

}  // namespace tulle::shim::rdmacm
