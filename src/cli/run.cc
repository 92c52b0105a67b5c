#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <net/if.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/near_names.h"
#include "base/quoted.h"
#include "base/split.h"
#include "cli/commands.h"
#include "cli/layout.h"
#include "cli/own_files.h"
#include "fabric/faults.h"
#include "live/fabric/client.h"
#include "live/fabric/fabric_folder.h"
#include "live/fabric/server.h"
#include "live/process/device.h"
#include "live/security/key_file.h"
#include "live/settings.h"
#include "os/users.h"
#include "shim/exports/exports.h"
#include "shim/paths/old_trees.h"
#include "shim/paths/tree.h"

namespace tulle::cli {
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

// Puts a library behind those that are preloaded already: a sanitizer's runtime has to be first.
void preload(const fs::path& library) {
  const char* before = std::getenv("LD_PRELOAD");
  const bool is_empty = before == nullptr || *before == '\0';
  set("LD_PRELOAD", is_empty ? library.string() : std::string(before) + ":" + library.string());
}

// Returns a name for the network namespace that the devices belong to. Each namespace has separate
// addresses and a separate host agent, and may share /tmp with others.
std::string network_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/net", &status) == 0 ? std::to_string(status.st_ino) : std::string();
}

// Makes the files by which programs look for devices, for the preloaded library. A program that
// finds no devices says so itself.
void show_devices() {
  unsetenv("TULLE_SYSFS");  // another user's files would decide what the program sees
  auto devices = live::devices();
  if (!devices) return;
  auto own = own_folder();
  if (!own) return fail(own.error().message), void();
  shim::remove_old_trees(*own, trees_kept);
  const shim::TreesAtRest at_rest(*own);
  const live::Settings settings = live::read_settings();
  const live::FabricPlace place = live::fabric_place();
  const std::string place_name =
      place.socket.empty() ? network_namespace() : place.socket + " " + place.host;
  auto base = own_folder_for(
      settings.agent + " " + settings.like + " " + settings.device.name + " " +
      settings.device.interfaces + " " + std::to_string(static_cast<int>(settings.device.roce)) +
      std::to_string(static_cast<int>(settings.device.order)) + " " + place_name);
  if (!base) return fail(base.error().message), void();
  auto root = shim::make_tree(*base, *devices,
                              {.agent = place.socket.empty() ? settings.agent : std::string(),
                               .choice = settings.device,
                               .fabric = place});
  if (!root) return fail(root.error().message), void();
  set("TULLE_SYSFS", *root);
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
// function prints one line that says which library is newer.
void warn_of_newer_libraries(const fs::path& folder) {
  for (const char* name : our_libraries) {
    std::error_code error;
    const fs::path system = fs::canonical(system_folder() / name, error);
    if (error) continue;
    const auto missing = shim::exports_missing(folder / name, system);
    if (missing.empty()) continue;
    fail(
        fmt::format("warning: the system's {} is newer than this version of Tulle: programs "
                    "that need {}{} do not start",
                    system.filename().string(), missing.front(),
                    missing.size() > 1 ? fmt::format(" (or {} more)", missing.size() - 1) : ""));
  }
}

// Returns the file that a command's name means, or an empty path.
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
// know why. This function says so, or preloads our libraries where that leads the program to them.
// What the program starts, it cannot know.
void look_at(const fs::path& program, const fs::path& folder) {
  struct stat its {};
  if (program.empty() || stat(program.c_str(), &its) != 0) return;
  const shim::Linking linking = shim::linking_of(program);
  // Without new privileges, nothing is gained.
  const bool may_gain = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0;
  const bool has_capabilities =
      getuid() != 0 && getxattr(program.c_str(), "security.capability", nullptr, 0) > 0;
  const bool changes_user = (its.st_mode & S_ISUID) != 0 && its.st_uid != geteuid();
  const bool changes_group = (its.st_mode & S_ISGID) != 0 && its.st_gid != getegid();
  const std::string name = program.filename();
  const bool wants_device = std::ranges::any_of(our_libraries, [&](const char* each) {
    return std::ranges::find(linking.needed, each) != linking.needed.end();
  });
  const bool starts_others = name == "sudo" || name == "su" || name == "doas" || name == "pkexec";
  if (may_gain && (has_capabilities || changes_user || changes_group) &&
      (wants_device || starts_others)) {
    fail(fmt::format(
        "warning: {} gains privileges when it starts. The system then ignores the libraries "
        "of `tulle run`, and the program finds no Tulle device{}",
        program.string(),
        starts_others ? fmt::format(": try `{} tulle run -- PROGRAM`", name) : ""));
    return;
  }
  if (linking.is_program && !linking.is_dynamic) {
    fail(
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
      if (access((there + "/" + library).c_str(), F_OK) == 0) preload(folder / library);
    }
  }
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
const char* without_effect_on_fabric(const RunOptions& options) {
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
int enter_host(const RunOptions& options) {
  auto address = fabric_address(options.fabric);
  if (!address) return fail(address.error().message);
  const auto port = live::describe_host({*address, options.host});
  if (!port) return fail_at_fabric(port.error());
  const auto entered = live::enter_host_network({*address, options.host});
  if (!entered) return fail(entered.error().message);
  set_manager_folder(*address);
  set("TULLE_FABRIC", *address);
  set("TULLE_HOST", options.host);
  return 0;
}

// Returns 0, or the exit status after a line that says what is wrong in the options.
int check(const RunOptions& options) {
  const auto faults = fabric::parse_faults(options.faults);
  if (const auto* error = std::get_if<std::string>(&faults)) {
    fail(*error);
    return usage_status;
  }
  const bool is_on_fabric = !options.host.empty() || !live::fabric_place().host.empty();
  const char* vain = is_on_fabric ? without_effect_on_fabric(options) : nullptr;
  if (vain != nullptr) {
    fail(fmt::format("{} has no effect on a host of a software fabric", vain));
    return usage_status;
  }
  if (!options.secure.empty()) {
    const auto keys = live::read_key_file(options.secure);
    if (!keys) return refuse(keys.error().message);
  }
  if (const std::string absent = absent_interface(options.interfaces); !absent.empty()) {
    return refuse(absent);
  }
  return 0;
}

// Makes the program find Tulle's libraries. Returns 0, or the exit status.
int use_libraries(const RunOptions& options, const fs::path& folder) {
  std::error_code error;
  const auto missing = [](const fs::path& path) {
    return fail(fmt::format("cannot find {}; is the installation complete?", path.string()));
  };
  if (executable().empty()) {
    return fail("cannot find Tulle's libraries: /proc is not mounted");
  }
  if (!fs::exists(folder / verbs_library, error)) {
    return fail(fmt::format("cannot find Tulle's {} from {}; is the installation complete?",
                            verbs_library, executable().string()));
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
    prepend("LD_PRELOAD", advice.string());
    set("TULLE_SHARE_MEMORY", "on");
  }
  if (options.rsockets) {
    const fs::path rsockets = folder / rsockets_library;
    if (!fs::exists(rsockets, error)) return missing(rsockets);
    preload(rsockets);
  }
  return 0;
}

// The program's libraries read these variables (live/settings.h).
void set_settings(const RunOptions& options) {
  set("TULLE_EXECUTABLE", executable().string());
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

// Replaces this process by the program. Returns the exit status if that fails.
int become(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  const int number = errno;
  if (number == ENOENT) execv(program_of(arguments[0]).c_str(), pointers.data());
  fail(fmt::format("cannot run \"{}\": {}", arguments[0], std::strerror(number)));
  return number == ENOENT ? not_found_status : not_executable_status;
}

}  // namespace

int run(const RunOptions& options) {
  if (const int status = check(options); status != 0) return status;
  const fs::path folder = library_folder();
  if (const int status = use_libraries(options, folder); status != 0) return status;
  if (!options.host.empty()) {
    const int status = enter_host(options);
    if (status != 0) return status;
  }
  set_settings(options);
  if (!options.no_mpi_defaults) set_mpi_defaults();
  if (!options.no_mpi_defaults && !options.host.empty()) set_remote_shell(folder / "tulle-rsh");
  warn_of_newer_libraries(folder);
  look_at(program_of(options.command[0]), folder);
  show_devices();
  return become(options.command);
}

int fabric_shell(const RunOptions& options) {
  // A remote shell gets the words of its command line joined by spaces, and takes them apart again.
  RunOptions shell = options;
  shell.command = {"/bin/sh", "-c", fmt::format("{}", fmt::join(options.command, " "))};
  return run(shell);
}

}  // namespace tulle::cli
