// Objects that several contexts of a process share. A context is imported by the command descriptor
// of the first one; protection domains, regions and device memory are imported by their handles. A
// descriptor that came from another process is refused, because keys and queues belong to one
// process, as its memory does.

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <string>
#include <utility>

#include "os/cancellation.h"
#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

constexpr char descriptor_name[] = "tulle-commands";

// Command descriptors, by the files that they are open on, however often they were duplicated.
using FileId = std::pair<dev_t, ino_t>;
struct OpenFiles {
  std::mutex mutex;
  std::map<FileId, std::weak_ptr<CommandFile>> files;
};
OpenFiles& open_files() {
  static auto* instance = new OpenFiles;
  return *instance;
}

bool identify(int fd, FileId& out) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return false;
  out = {status.st_dev, status.st_ino};
  return true;
}

// Returns true if the descriptor is another process's. Its file has our name; the caller knows that
// it is not among ours.
bool is_foreign(int fd) {
  char target[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(link.c_str(), target, sizeof target - 1);
  return length > 0 && std::string(target).find(descriptor_name) != std::string::npos;
}

std::shared_ptr<CommandFile> find_file(int fd) {
  FileId id;
  if (!identify(fd, id)) return fail(EBADF);
  OpenFiles& all = open_files();
  const std::lock_guard guard(all.mutex);
  const auto found = all.files.find(id);
  auto file = found != all.files.end() ? found->second.lock() : nullptr;
  if (file == nullptr) return fail(is_foreign(fd) ? EOPNOTSUPP : EINVAL);
  return file;
}

}  // namespace

SharedMr::~SharedMr() {
  if (mapping != nullptr) munmap(mapping, mapping_bytes);
}

bool open_command_file(Context& context, Device& device) {
  OpenFiles& all = open_files();
  context.file = std::make_shared<CommandFile>();
  context.file->device = &device;
  // Programs mark the descriptor close-on-exec or put it in a select; this one allows that.
  const int fd = memfd_create(descriptor_name, MFD_CLOEXEC);
  FileId id;
  if (fd < 0 || !identify(fd, id)) return false;
  context.context.cmd_fd = fd;
  const std::lock_guard guard(all.mutex);
  std::erase_if(all.files, [](const auto& entry) { return entry.second.expired(); });
  all.files[id] = context.file;
  return true;
}

Pd* add_pd(Context& context, std::unique_ptr<Pd> pd, std::uint32_t handle) {
  pd->context = &context.context;
  pd->handle = handle;
  auto& holders = pd->shared->holders;
  holders.push_back(pd.get());
  const OnThrow undo([&] {
    std::erase(holders, pd.get());
    if (holders.empty()) context.file->pds.erase(handle);
  });
  context.file->pds[handle] = pd->shared;
  context.pds.insert(pd.get());
  return pd.release();
}

void drop(Context& context, Pd& pd) {
  context.pds.erase(&pd);
  if (pd.base != nullptr) --pd.base->parents;
  if (pd.td != nullptr) --pd.td->parents;
  std::erase(pd.shared->holders, &pd);
  if (!pd.shared->holders.empty()) return;
  context.file->pds.erase(pd.handle);
  if (pd.base == nullptr) (void)to_errno(context.adapter().objects().destroy(pd.pd));
}

Mr* add_mr(Context& context, std::unique_ptr<Mr> mr, std::uint32_t handle) {
  mr->context = &context.context;
  mr->handle = handle;
  mr->lkey = mr->region->lkey().value;
  mr->rkey = mr->region->rkey().value;
  auto& holders = mr->shared->holders;
  holders.push_back(mr.get());
  const OnThrow undo([&] {
    std::erase(holders, mr.get());
    if (holders.empty()) context.file->mrs.erase(handle);
  });
  context.file->mrs[handle] = mr->shared;
  context.mrs.insert(mr.get());
  return mr.release();
}

void leave(Context& context, Mr& mr) {
  context.mrs.erase(&mr);
  std::erase(mr.shared->holders, &mr);
  if (mr.shared->holders.empty()) context.file->mrs.erase(mr.handle);
}

int drop(Context& context, Mr& mr, OtherHolders others) {
  auto& holders = mr.shared->holders;
  const bool is_last = holders.size() == 1 || others == OtherHolders::lose_it;
  const bool ends_region = is_last && mr.region != nullptr;
  if (ends_region) {
    const int error = to_errno(context.adapter().objects().destroy(mr.region));
    if (error != 0) return error;
    for (Mr* holder : holders) {
      if (holder != &mr) holder->region = nullptr;
    }
    holders = {&mr};
    if (mr.shared->device_memory != nullptr) --mr.shared->device_memory->regions;
  }
  leave(context, mr);
  return 0;
}

extern "C" {

// The context takes the descriptor over, and closes it.
ibv_context* ibv_import_device(int cmd_fd) try {
  const NoCancellation no_cancellation;
  auto file = find_file(cmd_fd);
  if (file == nullptr) return nullptr;
  Context* context = make_context(*file->device);
  if (context == nullptr) return nullptr;
  context->file = std::move(file);
  context->context.cmd_fd = cmd_fd;
  return &context->context;
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

ibv_pd* ibv_import_pd(ibv_context* ibv, std::uint32_t handle) try {
  const NoCancellation no_cancellation;
  if (ibv == nullptr) return fail(EINVAL);
  Context& context = Context::of(ibv);
  auto pd = std::make_unique<Pd>();
  const auto guard = context.lock();
  const auto found = context.file->pds.find(handle);
  if (found == context.file->pds.end()) return fail(ENOENT);
  const Pd& other = *found->second->holders.front();
  if (other.base != nullptr) return fail(EINVAL);  // a parent domain is one process's alone
  pd->pd = other.pd;
  pd->shared = other.shared;
  return add_pd(context, std::move(pd), handle);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

void ibv_unimport_pd(ibv_pd* ibv) {
  const NoCancellation no_cancellation;
  if (ibv == nullptr) return;
  Pd& pd = Pd::of(ibv);
  Context& context = Context::of(pd.context);
  {
    const auto guard = context.lock();
    drop(context, pd);
  }
  delete &pd;
}

// The region's address is unknown: the importer may see the memory elsewhere, or not at all.
ibv_mr* ibv_import_mr(ibv_pd* ibv_pd, std::uint32_t handle) try {
  const NoCancellation no_cancellation;
  if (ibv_pd == nullptr) return fail(EINVAL);
  Context& context = Context::of(ibv_pd->context);
  auto mr = std::make_unique<Mr>();
  const auto guard = context.lock();
  const auto found = context.file->mrs.find(handle);
  if (found == context.file->mrs.end()) return fail(ENOENT);
  const Mr& other = *found->second->holders.front();
  mr->pd = ibv_pd;
  mr->length = other.length;
  mr->region = other.region;
  mr->shared = other.shared;
  return add_mr(context, std::move(mr), handle);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

void ibv_unimport_mr(ibv_mr* ibv) {
  const NoCancellation no_cancellation;
  if (ibv == nullptr) return;
  Mr& mr = Mr::of(ibv);
  Context& context = Context::of(mr.context);
  {
    const auto guard = context.lock();
    // A region that a peer may still write to stays until the device closes, as in ibv_dereg_mr.
    if (drop(context, mr, OtherHolders::keep_it) != 0) return;
  }
  delete &mr;
}

}  // extern "C"

}  // namespace tulle::shim
