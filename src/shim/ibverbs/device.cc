// Finds devices. A device that was listed once stays for the life of the process: programs keep
// using the pointer after they have freed the list, as long as they have the device open.

#include <endian.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "os/cancellation.h"
#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/known.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

// Takes the place of a provider's operations: it is readable, and like no provider's.
struct ProviderOperations {
  const char* name;
  const void* rest[15];
};
constexpr ProviderOperations no_provider = {"tulle", {}};

struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<Device>> devices;
};
// Never destroyed, because other threads may list devices while the process ends.
Registry& registry() {
  // In a forked child nobody holds the mutex, whichever thread of the parent's did.
  static auto* instance = [] {
    pthread_atfork(nullptr, nullptr, [] { new (&registry().mutex) std::mutex; });
    return new Registry;
  }();
  return *instance;
}

void set_name(char* out, std::size_t capacity, const std::string& text) {
  std::snprintf(out, capacity, "%s", text.c_str());
}

std::unique_ptr<Device> make_device(const live::DeviceInfo& info, int index) {
  static_assert(sizeof(ibv_device) % alignof(void*) == 0, "the hidden tail follows at once");
  auto device = std::make_unique<Device>();
  device->node_type = IBV_NODE_CA;
  device->transport_type = IBV_TRANSPORT_IB;
  const std::string node = "uverbs" + std::to_string(index);
  set_name(device->name, sizeof device->name, info.name);
  set_name(device->dev_name, sizeof device->dev_name, node);
  set_name(device->dev_path, sizeof device->dev_path, "/sys/class/infiniband_verbs/" + node);
  set_name(device->ibdev_path, sizeof device->ibdev_path, "/sys/class/infiniband/" + info.name);
  device->operations = &no_provider;
  device->index = index;
  return device;
}

// The caller holds the registry's lock.
Device& find_or_add(Registry& all, const live::DeviceInfo& info) {
  for (const auto& device : all.devices) {
    if (device->info.name == info.name) {
      device->info = info;
      return *device;
    }
  }
  all.devices.push_back(make_device(info, static_cast<int>(all.devices.size())));
  all.devices.back()->info = info;
  return *all.devices.back();
}

// Programs print an errno at best, and "function not implemented" tells nobody what to do. This
// line says why the first call failed.
void say_once(const Error& error) {
  static std::atomic<bool> said = false;
  if (!said.exchange(true)) std::fprintf(stderr, "tulle: %s\n", error.message.c_str());
}

}  // namespace

Context* make_context(Device& device) {
  auto opened = live::Device::open(device.name, handle_event);
  if (!opened) {
    say_once(opened.error());
    return fail(opened.error().error_number != 0 ? opened.error().error_number : ENODEV);
  }
  auto events = live::EventChannel::create();
  if (!events) {
    say_once(events.error());
    return fail(events.error().error_number != 0 ? events.error().error_number : EMFILE);
  }
  auto context = std::make_unique<Context>();
  context->live = std::move(*opened);
  context->is_infiniband = context->live->info().infiniband.has_value();
  context->is_strict = live::Device::is_strict();
  context->like = live::Device::likeness();
  context->events = std::move(*events);
  refuse_all(*context);
  serve_queries(*context);
  serve_memory(*context);
  serve_device_memory(*context);
  serve_paging(*context);
  serve_domains(*context);
  serve_clock(*context);
  serve_completions(*context);
  serve_queue_pairs(*context);
  serve_receives(*context);
  serve_work(*context);
  serve_extended_connections(*context);
  serve_work_queues(*context);
  serve_flows(*context);
  serve_tags(*context);
  context->sz = sizeof(verbs_context);
  ibv_context& base = context->context;
  base.device = &device;
  base.cmd_fd = -1;
  base.async_fd = context->events->fd();
  base.num_comp_vectors = 1;
  pthread_mutex_init(&base.mutex, nullptr);
  base.abi_compat = __VERBS_ABI_IS_EXTENDED;
  add_for_events(*context);
  know(*context);
  return context.release();
}

extern "C" {

ibv_device** ibv_get_device_list(int* device_count) try {
  const NoCancellation no_cancellation;
  if (device_count != nullptr) *device_count = 0;
  auto found = live::devices();
  if (!found) {
    say_once(found.error());
    return fail(found.error().error_number != 0 ? found.error().error_number : ENOSYS);
  }
  auto** list = static_cast<ibv_device**>(std::calloc(found->size() + 1, sizeof(void*)));
  if (list == nullptr) return fail(ENOMEM);
  Registry& all = registry();
  const std::lock_guard guard(all.mutex);
  int count = 0;
  for (const live::DeviceInfo& info : *found) list[count++] = &find_or_add(all, info);
  if (device_count != nullptr) *device_count = count;
  return list;
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

void ibv_free_device_list(ibv_device** list) { std::free(list); }

const char* ibv_get_device_name(ibv_device* device) {
  const NoCancellation no_cancellation;
  return device != nullptr ? device->name : fail(EINVAL);
}

int ibv_get_device_index(ibv_device* device) {
  const NoCancellation no_cancellation;
  return device != nullptr ? Device::of(device).index : fail_with_minus_one(EINVAL);
}

__be64 ibv_get_device_guid(ibv_device* device) {
  const NoCancellation no_cancellation;
  if (device == nullptr) return 0;
  Registry& all = registry();
  const std::lock_guard guard(all.mutex);
  return htobe64(Device::of(device).info.node_guid);
}

ibv_context* ibv_open_device(ibv_device* device) try {
  const NoCancellation no_cancellation;
  if (device == nullptr) return fail(EINVAL);
  Context* context = make_context(Device::of(device));
  if (context == nullptr) return nullptr;
  const OnThrow undo([&] { ibv_close_device(&context->context); });
  if (open_command_file(*context, Device::of(device))) return &context->context;
  const int error = errno;
  ibv_close_device(&context->context);
  return fail(error);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}
// --- files of the class directory, for programs that read them through this library ---

const char* ibv_get_sysfs_path() { return "/sys"; }

int ibv_read_sysfs_file(const char* directory, const char* file, char* buffer,
                        std::size_t size) try {
  const NoCancellation no_cancellation;
  if (directory == nullptr || file == nullptr || buffer == nullptr || size == 0) {
    return fail_with_minus_one(EINVAL);
  }
  const std::string path = std::string(directory) + "/" + file;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t bytes = read(fd, buffer, size);
  const int error = errno;
  close(fd);
  if (bytes < 0) return fail_with_minus_one(error);
  auto length = static_cast<std::size_t>(bytes);
  if (length > 0 && buffer[length - 1] == '\n') --length;
  if (length == size) return fail_with_minus_one(ERANGE);
  buffer[length] = '\0';
  return static_cast<int>(length);
} catch (const std::bad_alloc&) {
  return fail_with_minus_one(ENOMEM);
}

// --- fork ---
// Registered memory is never handed to a device that writes behind the kernel's back, so that a
// fork needs no care.

int ibv_fork_init() { return 0; }
ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
int ibv_dontfork_range(void*, std::size_t) { return 0; }
int ibv_dofork_range(void*, std::size_t) { return 0; }

}  // extern "C"

}  // namespace tulle::shim
