#include "shim/launch/launch.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/near_names.h"
#include "base/quoted.h"
#include "base/split.h"
#include "live/fabric/client.h"
#include "live/fabric/fabric_folder.h"
#include "live/fabric/fabrics.h"
#include "live/process/device.h"
#include "live/security/key_file.h"
#include "live/settings.h"
#include "os/own_folder.h"
#include "os/users.h"
#include "shim/exports/exports.h"
#include "shim/paths/old_trees.h"
#include "shim/paths/tree.h"

namespace tulle::shim {
namespace {

namespace fs = std::filesystem;

constexpr char verbs_library[] = "libibverbs.so.1";
constexpr std::array our_libraries = {verbs_library, "librdmacm.so.1", "libibumad.so.3"};
constexpr char paths_library[] = "libtulle-paths.so";
constexpr char advice_library[] = "libtulle-advice.so";
constexpr char rsockets_library[] = "rsocket/librspreload.so";
constexpr std::size_t trees_kept = 32;  // of half a megabyte each
// Debian has infiniband-diags and opensm where an ordinary user's PATH does not lead.
constexpr char administrators_folders[] = "/usr/local/sbin:/usr/sbin:/sbin";

void set(const char* name, const std::string& value) {
  if (!value.empty()) setenv(name, value.c_str(), 1);
}

// MPI libraries would take their own shared memory on one host, and devices that they know. With
// these, they take Tulle's device. What the environment says already stays.
void set_mpi_defaults() {
  constexpr std::pair<const char*, const char*> defaults[] = {
      // UCX, which Open MPI and MPICH use: RDMA alone.
      {"UCX_TLS", "rc_verbs,ud_verbs,self"},
      // Open MPI tells UCX to share the device's rate among its ranks, and UCX would copy messages
      // up to a multiple of this in pieces (docs/performance.md).
      {"UCX_RNDV_THRESH", "32768"},
      // Debian's Open MPI leaves UCX out, and Open MPI takes it only for some vendors' devices.
      {"OMPI_MCA_pml", "ucx,ob1"},
      {"OMPI_MCA_osc", "ucx,rdma,sm"},
      {"OMPI_MCA_opal_common_ucx_devices", "any"},
      {"OMPI_MCA_opal_common_ucx_tls", "any"},
      // MPICH passes messages within a host by itself, unless it is told that none are within one.
      {"MPIR_CVAR_NOLOCAL", "1"}};
  for (const auto& [name, value] : defaults) setenv(name, value, 0);
}

// Puts an entry in front of those that a list in the environment has already.
void prepend(const char* name, const std::string& entry) {
  const char* before = std::getenv(name);
  const bool is_empty = before == nullptr || *before == '\0';
  setenv(name, is_empty ? entry.c_str() : (entry + ":" + before).c_str(), 1);
}

bool has_space(const fs::path& path) { return path.string().find(' ') != std::string::npos; }

// Returns how LD_PRELOAD names one of our libraries. A space ends an entry there; such a library is
// found by LD_LIBRARY_PATH, where our folder is the first.
std::string preloaded(const fs::path& library) {
  return has_space(library) ? library.filename().string() : library.string();
}

// Puts a library behind those that are preloaded already: a sanitizer's runtime has to be first.
void preload(const fs::path& library) {
  const char* before = std::getenv("LD_PRELOAD");
  const bool is_empty = before == nullptr || *before == '\0';
  set("LD_PRELOAD", (is_empty ? "" : std::string(before) + ":") + preloaded(library));
}

// Returns a name for the network namespace that the devices belong to. Each namespace has separate
// addresses and a separate host agent, and may share /tmp with others.
std::string network_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/net", &status) == 0 ? std::to_string(status.st_ino) : std::string();
}

// Makes the files by which programs look for devices, for the preloaded library. A program that
// finds no devices says so itself.
Result<void> show_devices(const Warn& warn) {
  unsetenv("TULLE_SYSFS");  // another user's files would decide what the program sees
  auto devices = live::devices();
  if (!devices) return {};
  auto own = own_folder();
  if (!own) return own.error();
  if (!own->warning.empty()) warn(own->warning);
  remove_old_trees(own->path, trees_kept);
  const TreesAtRest at_rest(own->path);
  const live::Settings settings = live::read_settings();
  const live::FabricPlace place = live::fabric_place();
  const std::string place_name =
      place.socket.empty() ? network_namespace() : place.socket + " " + place.host;
  auto base = own_folder_for(
      settings.agent + " " + settings.like + " " + settings.device.name + " " +
      settings.device.interfaces + " " + std::to_string(static_cast<int>(settings.device.roce)) +
      std::to_string(static_cast<int>(settings.device.order)) + " " + place_name);
  if (!base) return base.error();
  auto root = make_tree(base->path, *devices,
                        {.agent = place.socket.empty() ? settings.agent : std::string(),
                         .choice = settings.device,
                         .fabric = place});
  if (!root) return root.error();
  set("TULLE_SYSFS", *root);
  return {};
}

// Returns the folder of the system's libraries: that of the C library in this process. A test may
// name another folder.
fs::path system_folder() {
  if (const char* given = std::getenv("TULLE_SYSTEM_LIBRARIES"); given != nullptr) return given;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&std::getenv), &info) == 0) return {};
  return fs::path(info.dli_fname).parent_path();
}

// A program that was built for a newer rdma-core than this Tulle knows, and needs what is new in
// it, ends before its first instruction. The dynamic linker's message then names no cause. This
// function says in one line which library is newer.
void warn_of_newer_libraries(const fs::path& folder, const Warn& warn) {
  for (const char* name : our_libraries) {
    std::error_code error;
    const fs::path system = fs::canonical(system_folder() / name, error);
    if (error) continue;
    const auto missing = exports_missing(folder / name, system);
    if (missing.empty()) continue;
    warn(
        fmt::format("warning: the system's {} is newer than this version of Tulle: programs "
                    "that need {}{} do not start",
                    system.filename().string(), missing.front(),
                    missing.size() > 1 ? fmt::format(" (or {} more)", missing.size() - 1) : ""));
  }
}

// Returns true if the program runs with more rights than this process, as far as the system allows.
bool gains_privileges(const fs::path& program, const struct stat& its) {
  // Without new privileges, nothing is gained.
  if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 0) return false;
  const bool has_capabilities =
      getuid() != 0 && getxattr(program.c_str(), "security.capability", nullptr, 0) > 0;
  const bool changes_user = (its.st_mode & S_ISUID) != 0 && its.st_uid != geteuid();
  const bool changes_group = (its.st_mode & S_ISGID) != 0 && its.st_gid != getegid();
  return has_capabilities || changes_user || changes_group;
}

// MPI's launchers start their daemons on other hosts by a remote shell. On a fabric's host, this is
// ours, unless the environment names another.
void set_remote_shell(const fs::path& shell) {
  for (const char* name :
       {"OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC"}) {
    setenv(name, shell.c_str(), 0);
  }
}

// OpenSM keeps what it has learnt of a subnet in a folder. That of the machine is root's, and is
// that of another subnet. A fabric has its own, in its folder, where nobody else can have prepared
// one.
void set_manager_folder(const std::string& address) {
  const std::string folder = live::manager_folder(fs::path(address).parent_path());
  struct stat its {};
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return;
  const bool is_own = lstat(folder.c_str(), &its) == 0 && S_ISDIR(its.st_mode) &&
                      same_user(its.st_uid, geteuid()) && (its.st_mode & 0022) == 0;
  if (!is_own) return;  // the fabric is another user's
  setenv("OSM_CACHE_DIR", folder.c_str(), 0);
  if (access("/var/log", W_OK) != 0) setenv("OSM_TMP_DIR", folder.c_str(), 0);
}

// Returns an option that has no effect on a fabric's host, or nothing. All packets of such a
// program go through the fabric's switches, and no host agent serves it.
const char* without_effect_on_fabric(const LaunchOptions& options) {
  const live::Settings settings = live::read_settings();
  const std::pair<bool, const char*> all[] = {
      {!options.faults.empty(), "--faults"},        {!options.secure.empty(), "--secure"},
      {!settings.faults.empty(), "TULLE_FAULTS"},   {!settings.secure.empty(), "TULLE_SECURE"},
      {!options.interfaces.empty(), "--interface"}, {!options.roce.empty(), "--roce"},
      {!options.gid_order.empty(), "--gid-order"},  {!options.agent.empty(), "--agent"},
      {options.no_offload, "--no-offload"},         {options.no_direct, "--no-direct"},
      {options.share_memory, "--share-memory"}};
  for (const auto& [is_given, name] : all) {
    if (is_given) return name;
  }
  return nullptr;
}

// Returns a line about the first of these interfaces that this machine has not, or nothing.
std::string absent_interface(const std::string& interfaces) {
  if (if_nametoindex(interfaces.c_str()) != 0) return {};  // a name may have a comma
  for (const std::string_view name : split(interfaces, ',')) {
    if (if_nametoindex(std::string(name).c_str()) != 0) continue;
    std::vector<std::string> there;
    struct if_nameindex* const all = if_nameindex();
    for (const auto* each = all; each != nullptr && each->if_index != 0; ++each) {
      there.emplace_back(each->if_name);
    }
    if (all != nullptr) if_freenameindex(all);
    return fmt::format("there is no network interface {}{}", tulle::quoted(name),
                       did_you_mean(std::string(name), there, "`ip link` lists them"));
  }
  return {};
}

// Makes the program one of a host of a software fabric.
Result<void> enter_host(const LaunchOptions& options, const Warn& warn) {
  auto address = live::fabric_address(options.fabric, warn);
  if (!address) return address.error();
  const auto port = live::describe_host({*address, options.host});
  // The fabric does not know the host.
  if (!port && port.error().error_number == EINVAL) return as_misuse(port.error());
  if (!port) return port.error();
  if (auto entered = live::enter_host_network({*address, options.host}); !entered) return entered;
  set_manager_folder(*address);
  set("TULLE_FABRIC", *address);
  set("TULLE_HOST", options.host);
  return {};
}

// Makes the program find Tulle's libraries.
Result<void> use_libraries(const LaunchOptions& options, const Installation& installation) {
  const fs::path& folder = installation.libraries;
  std::error_code error;
  const auto missing = [](const fs::path& path) {
    return Error{fmt::format("cannot find {}; is the installation complete?", path.string())};
  };
  if (installation.executable.empty()) {
    return Error{"cannot find Tulle's libraries: /proc is not mounted"};
  }
  if (!fs::exists(folder / verbs_library, error)) {
    return Error{fmt::format("cannot find Tulle's {} from {}; is the installation complete?",
                             verbs_library, installation.executable.string())};
  }
  // ld.so(8): these end an entry of LD_LIBRARY_PATH, or begin a name that is replaced. The rest of
  // such a path would be looked for in the current folder, which may be anybody's.
  if (folder.string().find_first_of(":;$") != std::string::npos) {
    return as_misuse(Error{fmt::format(
        "Tulle cannot run from {}: the dynamic linker takes a path with \":\", \";\" or \"$\" for "
        "another; move the installation",
        folder.string())});
  }
  prepend("LD_LIBRARY_PATH", folder.string());
  const fs::path paths = folder / paths_library;
  if (fs::exists(paths, error)) preload(paths);
  // A program that GCC built with AddressSanitizer ends at once if anything is preloaded, unless it
  // is told not to look. Its runtime's functions still come before the C library's.
  prepend("ASAN_OPTIONS", "verify_asan_link_order=0");
  const fs::path advice = folder / advice_library;
  if (options.share_memory || live::read_settings().share_memory) {
    if (!fs::exists(advice, error)) return missing(advice);
    prepend("LD_PRELOAD", preloaded(advice));
    set("TULLE_SHARE_MEMORY", "on");
  }
  if (options.rsockets) {
    const fs::path rsockets = folder / rsockets_library;
    if (!fs::exists(rsockets, error)) return missing(rsockets);
    if (has_space(rsockets)) prepend("LD_LIBRARY_PATH", rsockets.parent_path().string());
    preload(rsockets);
  }
  return {};
}

// The program's libraries read these variables (live/settings.h).
void set_settings(const LaunchOptions& options, const fs::path& executable) {
  set("TULLE_EXECUTABLE", executable.string());
  set("TULLE_LIKE", options.like);
  set("TULLE_GID_ORDER", options.gid_order);
  set("TULLE_DEVICE", options.device);
  set("TULLE_INTERFACE", options.interfaces);
  set("TULLE_FAULTS", options.faults);
  // A host agent that is started for the program runs in another folder.
  if (!options.secure.empty()) set("TULLE_SECURE", fs::absolute(options.secure).string());
  set("TULLE_AGENT", options.agent);
  if (options.explain) set("TULLE_EXPLAIN", "1");
  if (options.strict) set("TULLE_STRICT", "1");
  if (options.no_offload) set("TULLE_OFFLOAD", "off");
  if (options.no_direct) set("TULLE_DIRECT", "off");
  set("TULLE_RECOVERY", options.recovery);
  set("TULLE_ROCE", options.roce);
  set("TULLE_BUSY_POLL", options.busy_poll);
}

}  // namespace

Result<void> check_launch(const LaunchOptions& options) {
  const bool is_on_fabric = !options.host.empty() || !live::fabric_place().host.empty();
  const char* vain = is_on_fabric ? without_effect_on_fabric(options) : nullptr;
  if (vain != nullptr) {
    return as_misuse({fmt::format("{} has no effect on a host of a software fabric", vain)});
  }
  if (!options.secure.empty()) {
    const auto keys = live::read_key_file(options.secure);
    if (!keys) return as_misuse(keys.error());
  }
  const std::string absent = absent_interface(options.interfaces);
  if (!absent.empty()) return as_misuse({absent});
  return {};
}

Result<void> prepare_launch(const LaunchOptions& options, const Installation& installation,
                            const Warn& warn) {
  const fs::path& folder = installation.libraries;
  if (auto used = use_libraries(options, installation); !used) return used;
  if (!options.host.empty()) {
    if (auto entered = enter_host(options, warn); !entered) return entered;
  }
  set_settings(options, installation.executable);
  if (!options.no_mpi_defaults) set_mpi_defaults();
  if (!options.no_mpi_defaults && !options.host.empty()) set_remote_shell(folder / "tulle-rsh");
  warn_of_newer_libraries(folder, warn);
  std::vector<fs::path> preloads;
  for (const std::string& line : warnings_of(program_of(options.command[0]), folder, preloads)) {
    warn(line);
  }
  for (const fs::path& library : preloads) preload(library);
  // The program may need no device.
  if (auto shown = show_devices(warn); !shown) warn(shown.error().message);
  return {};
}

Error become(std::vector<std::string> command) {
  std::vector<char*> pointers;
  pointers.reserve(command.size() + 1);
  for (std::string& argument : command) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  const int number = errno;
  if (number == ENOENT) execv(program_of(command[0]).c_str(), pointers.data());
  return {fmt::format("cannot run \"{}\": {}", command[0], std::strerror(number)), number};
}

fs::path program_of(const std::string& command) {
  if (command.find('/') != std::string::npos) return command;
  const char* list = std::getenv("PATH");
  std::string folders = list != nullptr ? list : "";
  folders += (folders.empty() ? "" : ":") + std::string(administrators_folders);
  for (const std::string_view folder : split(folders, ':')) {
    fs::path file = fs::path(folder.empty() ? "." : folder) / command;
    std::error_code error;
    if (access(file.c_str(), X_OK) == 0 && fs::is_regular_file(file, error)) return file;
  }
  return {};
}

// A program that the dynamic linker does not lead to our libraries sees no device, and does not
// know why. What the program starts, this function cannot know.
std::vector<std::string> warnings_of(const fs::path& program, const fs::path& libraries,
                                     std::vector<fs::path>& preloads) {
  struct stat its {};
  if (program.empty() || stat(program.c_str(), &its) != 0) return {};
  const Linking linking = linking_of(program);
  const std::string name = program.filename();
  const bool wants_device = std::ranges::any_of(our_libraries, [&](const char* each) {
    return std::ranges::find(linking.needed, each) != linking.needed.end();
  });
  const bool starts_others = name == "sudo" || name == "su" || name == "doas" || name == "pkexec";
  if ((wants_device || starts_others) && gains_privileges(program, its)) {
    return {fmt::format(
        "warning: {} gains privileges when it starts. The system then ignores the libraries "
        "of `tulle run`, and the program finds no Tulle device{}",
        program.string(),
        starts_others ? fmt::format(": try `{} tulle run -- PROGRAM`", name) : "")};
  }
  std::vector<std::string> warnings;
  if (linking.is_program && !linking.is_dynamic) {
    warnings.push_back(
        fmt::format("warning: {} is statically linked, and finds no Tulle device: link it to "
                    "libibverbs as a shared library",
                    program.string()));
  }
  // These folders come before LD_LIBRARY_PATH, but a library that is loaded is not looked for.
  for (const std::string_view each : split(linking.rpath, ':')) {
    for (const char* library : our_libraries) {
      std::string there = std::string(each);
      if (const auto at = there.find("$ORIGIN"); at != std::string::npos) {
        there.replace(at, 7, program.parent_path().string());
      }
      if (access((there + "/" + library).c_str(), F_OK) == 0) {
        preloads.push_back(libraries / library);
      }
    }
  }
  return warnings;
}

}  // namespace tulle::shim
