// The devices and ports that there are, and their properties.

#include <endian.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "os/cancellation.h"
#include "shim/enomem.h"
#include "shim/ibumad/ports.h"
#include "shim/identity.h"

namespace tulle::shim::umad {
namespace {

constexpr unsigned node_type_channel_adapter = 1;  // IBTA 14.2.5.3

template <std::size_t n>
void set_text(char (&to)[n], const std::string& text) {
  std::snprintf(to, n, "%s", text.c_str());
}

std::uint64_t half_of_first_gid(const live::DeviceInfo& device, std::size_t offset) {
  std::uint64_t half = 0;
  const auto first = std::find_if(device.gids.begin(), device.gids.end(),
                                  [](const live::GidEntry& entry) { return entry.in_use(); });
  if (first == device.gids.end()) return half;
  for (std::size_t i = 0; i < 8; ++i) half = half << 8 | first->gid.bytes[offset + i];
  return half;
}

// The port's GUID is the low half of its first GID, as the files show it.
Device roce_device(const live::DeviceInfo& info) {
  Device out;
  out.name = info.name;
  out.node_guid = info.node_guid;
  out.port_guid = half_of_first_gid(info, 8);
  out.gid_prefix = half_of_first_gid(info, 0);
  out.state = info.port_active ? port_state_active : port_state_down;
  out.physical_state = info.port_active ? port_phys_state_link_up : port_phys_state_disabled;
  out.capabilities = port_capabilities;
  out.gigabits_per_second = static_cast<std::uint32_t>(std::atoi(link_rate));
  out.link_layer = "Ethernet";
  out.pkeys = {default_pkey.value};
  out.roce = info;
  return out;
}

Device fabric_device(const live::HostPort& of_host) {
  const live::InfinibandPort& port = of_host.port;
  Device out;
  out.name = "tulle0";
  out.node_guid = of_host.node_guid;
  out.port_guid = port.port_guid;
  out.gid_prefix = port.gid_prefix;
  out.state = port.state;
  out.physical_state = port.physical_state;
  out.lid = port.lid;
  out.lmc = port.lmc;
  out.sm_lid = port.sm_lid;
  out.sm_sl = port.sm_sl;
  out.capabilities = port.capability_mask;
  out.gigabits_per_second = port.gigabits_per_second;
  out.link_layer = "InfiniBand";
  out.pkeys = port.pkeys;
  out.manager_file = of_host.manager_file;
  return out;
}

// Returns false if there is no memory.
bool describe_port(const Device& device, umad_port_t& out) {
  out = {};
  set_text(out.ca_name, device.name);
  out.portnum = only_port;
  out.base_lid = device.lid;
  out.lmc = device.lmc;
  out.sm_lid = device.sm_lid;
  out.sm_sl = device.sm_sl;
  out.state = device.state;
  out.phys_state = device.physical_state;
  out.rate = device.gigabits_per_second;
  out.capmask = htobe32(device.capabilities);
  out.gid_prefix = htobe64(device.gid_prefix);
  out.port_guid = htobe64(device.port_guid);
  set_text(out.link_layer, device.link_layer);
  out.pkeys = static_cast<std::uint16_t*>(std::calloc(device.pkeys.size(), sizeof *out.pkeys));
  if (out.pkeys == nullptr) return false;
  std::copy(device.pkeys.begin(), device.pkeys.end(), out.pkeys);
  out.pkeys_size = static_cast<unsigned>(device.pkeys.size());
  return true;
}

umad_device_node* merge(umad_device_node* a, umad_device_node* b) {
  umad_device_node* first = nullptr;
  umad_device_node** last = &first;
  while (a != nullptr && b != nullptr) {
    umad_device_node*& least = std::strcmp(a->ca_name, b->ca_name) <= 0 ? a : b;
    *last = least;
    last = &least->next;
    least = least->next;
  }
  *last = a != nullptr ? a : b;
  return first;
}

}  // namespace

bool Device::has_link() const { return state > port_state_down; }

void say_once(const Error& error) {
  static std::atomic<bool> said = false;
  if (!said.exchange(true)) std::fprintf(stderr, "tulle: %s\n", error.message.c_str());
}

int fail(int error) {
  errno = error;
  return -error;
}

Result<std::vector<Device>> find_devices() {
  std::vector<Device> out;
  const live::FabricPlace place = live::fabric_place();
  if (!place.socket.empty()) {
    auto port = live::describe_host(place);
    if (!port) return port.error();
    out.push_back(fabric_device(*port));
    return out;
  }
  auto list = live::devices();
  if (!list) return list.error();
  for (const live::DeviceInfo& info : *list) out.push_back(roce_device(info));
  return out;
}

std::vector<Device> devices() {
  auto list = find_devices();
  if (list) return std::move(*list);
  say_once(list.error());
  return {};
}

const Device* find_device(const std::vector<Device>& all, const char* name) {
  const auto found = std::find_if(all.begin(), all.end(), [name](const Device& device) {
    return name == nullptr || device.name == name;
  });
  return found == all.end() ? nullptr : &*found;
}

extern "C" {

int umad_init() { return 0; }
int umad_done() { return 0; }

int umad_get_cas_names(char cas[][UMAD_CA_NAME_LEN], int max) try {
  const NoCancellation no_cancellation;
  auto list = find_devices();
  if (!list) say_once(list.error());
  if (!list || cas == nullptr || max < 0) {
    errno = list ? EINVAL : ENODEV;
    return -1;
  }
  const int count = std::min(max, static_cast<int>(list->size()));
  for (int i = 0; i < count; ++i) set_text(cas[i], (*list)[i].name);
  return count;
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

// The first entry is that of port 0, which only switches have.
int umad_get_ca_portguids(const char* ca_name, __be64* portguids, int max) try {
  const NoCancellation no_cancellation;
  const auto all = devices();
  const Device* device = find_device(all, ca_name);
  if (device == nullptr) return fail(ENODEV);
  if (portguids == nullptr) return 0;
  if (max < only_port + 1) return fail(ENOMEM);
  portguids[0] = 0;
  portguids[only_port] = htobe64(device->port_guid);
  return only_port + 1;
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int umad_get_ca(const char* ca_name, umad_ca_t* ca) try {
  const NoCancellation no_cancellation;
  if (ca == nullptr) return fail(EINVAL);
  const auto all = devices();
  const Device* device = find_device(all, ca_name);
  if (device == nullptr) return fail(ENODEV);
  *ca = {};
  set_text(ca->ca_name, device->name);
  ca->node_type = node_type_channel_adapter;
  ca->numports = only_port;
  set_text(ca->fw_ver, firmware_version);
  set_text(ca->ca_type, board_id);
  std::snprintf(ca->hw_ver, sizeof ca->hw_ver, "0x%x", hardware_version);
  ca->node_guid = htobe64(device->node_guid);
  ca->system_guid = ca->node_guid;
  auto* port = static_cast<umad_port_t*>(std::calloc(1, sizeof(umad_port_t)));
  if (port == nullptr) return fail(ENOMEM);
  ca->ports[only_port] = port;
  if (describe_port(*device, *port)) return 0;
  umad_release_ca(ca);
  return fail(ENOMEM);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int umad_release_ca(umad_ca_t* ca) {
  const NoCancellation no_cancellation;
  if (ca == nullptr) return fail(ENODEV);
  for (umad_port_t*& port : ca->ports) {
    if (port == nullptr) continue;
    umad_release_port(port);
    std::free(port);
    port = nullptr;
  }
  return 0;
}

int umad_get_port(const char* ca_name, int portnum, umad_port_t* port) try {
  const NoCancellation no_cancellation;
  if (port == nullptr || !is_port(portnum)) return fail(EINVAL);
  const auto all = devices();
  const Device* device = find_device(all, ca_name);
  if (device == nullptr) return fail(ENODEV);
  return describe_port(*device, *port) ? 0 : fail(ENOMEM);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int umad_release_port(umad_port_t* port) {
  const NoCancellation no_cancellation;
  if (port == nullptr) return fail(ENODEV);
  std::free(port->pkeys);
  port->pkeys = nullptr;
  port->pkeys_size = 0;
  return 0;
}

// A subnet manager shows by holding this file open that it runs. A RoCE port's network has none.
int umad_get_issm_path(const char* ca_name, int portnum, char path[], int max) try {
  const NoCancellation no_cancellation;
  if (path == nullptr || max <= 0 || !is_port(portnum)) return fail(EINVAL);
  const auto all = devices();
  const Device* device = find_device(all, ca_name);
  if (device == nullptr) return fail(ENODEV);
  const std::string& file = device->manager_file;
  if (file.empty() || file.size() >= static_cast<std::size_t>(max)) return fail(EINVAL);
  std::snprintf(path, static_cast<std::size_t>(max), "%s", file.c_str());
  return 0;
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

// Returns null with errno 0 if there are none.
umad_device_node* umad_get_ca_device_list() try {
  const NoCancellation no_cancellation;
  auto list = find_devices();
  if (!list) {
    say_once(list.error());
    errno = ENODEV;
    return nullptr;
  }
  errno = 0;
  umad_device_node* first = nullptr;
  umad_device_node** last = &first;
  for (const Device& device : *list) {
    auto* node = static_cast<umad_device_node*>(std::calloc(1, sizeof(umad_device_node)));
    char* name = node != nullptr ? strdup(device.name.c_str()) : nullptr;
    if (name == nullptr) {
      std::free(node);
      umad_free_ca_device_list(first);
      errno = ENOMEM;
      return nullptr;
    }
    node->ca_name = name;
    *last = node;
    last = &node->next;
  }
  return first;
} catch (const std::bad_alloc&) {
  return without_memory<umad_device_node*, 0>();
}

void umad_free_ca_device_list(umad_device_node* head) {
  const NoCancellation no_cancellation;
  while (head != nullptr) {
    umad_device_node* next = head->next;
    std::free(const_cast<char*>(head->ca_name));
    std::free(head);
    head = next;
  }
}

// Sorts the list by name. `size` is its length, or 0 if that is not known.
int umad_sort_ca_device_list(umad_device_node** head, size_t size) {
  const NoCancellation no_cancellation;
  if (head == nullptr) return EINVAL;
  std::size_t length = 0;
  for (umad_device_node* node = *head; node != nullptr; node = node->next) ++length;
  if (size != 0 && size != length) return EINVAL;
  umad_device_node* sorted = nullptr;
  while (*head != nullptr) {
    umad_device_node* node = *head;
    *head = node->next;
    node->next = nullptr;
    sorted = merge(sorted, node);
  }
  *head = sorted;
  return 0;
}

}  // extern "C"

}  // namespace tulle::shim::umad
