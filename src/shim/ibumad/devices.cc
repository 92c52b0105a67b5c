// The devices and ports that there are, and their properties.

#include <endian.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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

// Returns false if there is no memory.
bool describe_port(const live::DeviceInfo& device, umad_port_t& out) {
  out = {};
  set_text(out.ca_name, device.name);
  out.portnum = only_port;
  out.state = device.port_active ? port_state_active : port_state_down;
  out.phys_state = device.port_active ? port_phys_state_link_up : port_phys_state_disabled;
  out.rate = static_cast<unsigned>(std::atoi(link_rate));
  out.capmask = htobe32(port_capabilities);
  out.gid_prefix = htobe64(gid_prefix(device));
  out.port_guid = htobe64(port_guid(device));
  set_text(out.link_layer, "Ethernet");
  out.pkeys = static_cast<std::uint16_t*>(std::calloc(1, sizeof *out.pkeys));
  if (out.pkeys == nullptr) return false;
  out.pkeys[0] = default_pkey.value;
  out.pkeys_size = 1;
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

std::uint64_t port_guid(const live::DeviceInfo& device) { return half_of_first_gid(device, 8); }
std::uint64_t gid_prefix(const live::DeviceInfo& device) { return half_of_first_gid(device, 0); }

void say_once(const Error& error) {
  static std::atomic<bool> said = false;
  if (!said.exchange(true)) std::fprintf(stderr, "tulle: %s\n", error.message.c_str());
}

int fail(int error) {
  errno = error;
  return -error;
}

std::vector<live::DeviceInfo> devices() {
  auto list = live::devices();
  if (list) return std::move(*list);
  say_once(list.error());
  return {};
}

const live::DeviceInfo* find_device(const std::vector<live::DeviceInfo>& all, const char* name) {
  const auto found = std::find_if(all.begin(), all.end(), [name](const live::DeviceInfo& device) {
    return name == nullptr || device.name == name;
  });
  return found == all.end() ? nullptr : &*found;
}

extern "C" {

int umad_init() { return 0; }
int umad_done() { return 0; }

int umad_get_cas_names(char cas[][UMAD_CA_NAME_LEN], int max) try {
  auto list = live::devices();
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
  const auto all = devices();
  const live::DeviceInfo* device = find_device(all, ca_name);
  if (device == nullptr) return fail(ENODEV);
  if (portguids == nullptr) return 0;
  if (max < only_port + 1) return fail(ENOMEM);
  portguids[0] = 0;
  portguids[only_port] = htobe64(port_guid(*device));
  return only_port + 1;
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int umad_get_ca(const char* ca_name, umad_ca_t* ca) try {
  if (ca == nullptr) return fail(EINVAL);
  const auto all = devices();
  const live::DeviceInfo* device = find_device(all, ca_name);
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
  if (port == nullptr || !is_port(portnum)) return fail(EINVAL);
  const auto all = devices();
  const live::DeviceInfo* device = find_device(all, ca_name);
  if (device == nullptr) return fail(ENODEV);
  return describe_port(*device, *port) ? 0 : fail(ENOMEM);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int umad_release_port(umad_port_t* port) {
  if (port == nullptr) return fail(ENODEV);
  std::free(port->pkeys);
  port->pkeys = nullptr;
  port->pkeys_size = 0;
  return 0;
}

// A subnet manager shows by this device that it runs. A RoCE port's network has none.
int umad_get_issm_path(const char* ca_name, int portnum, char path[], int max) try {
  if (path == nullptr || max <= 0) return fail(EINVAL);
  const auto all = devices();
  if (find_device(all, ca_name) == nullptr) return fail(ENODEV);
  static_cast<void>(portnum);
  return fail(EINVAL);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

// Returns null with errno 0 if there are none.
umad_device_node* umad_get_ca_device_list() try {
  auto list = live::devices();
  if (!list) {
    say_once(list.error());
    errno = ENODEV;
    return nullptr;
  }
  errno = 0;
  umad_device_node* first = nullptr;
  umad_device_node** last = &first;
  for (const live::DeviceInfo& device : *list) {
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
  while (head != nullptr) {
    umad_device_node* next = head->next;
    std::free(const_cast<char*>(head->ca_name));
    std::free(head);
    head = next;
  }
}

// Sorts the list by name. `size` is its length, or 0 if that is not known.
int umad_sort_ca_device_list(umad_device_node** head, size_t size) {
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
