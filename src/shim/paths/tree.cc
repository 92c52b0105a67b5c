#include "shim/paths/tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "live/message/port_attributes.h"
#include "live/message/protocol.h"
#include "shim/identity.h"

namespace tulle::shim {
namespace {

namespace fs = std::filesystem;

// Writes the files of a tree. Keeps the first error, which make_tree() returns.
class Writer {
 public:
  explicit Writer(fs::path root) : root_(std::move(root)) {}

  const Error* error() const { return failed_ ? &error_ : nullptr; }

  void folder(const fs::path& path) {
    std::error_code code;
    fs::create_directories(root_ / path, code);
    if (code) fail("cannot make the folder", root_ / path, code.value());
  }

  // Writes an attribute as a kernel shows it: one line.
  void file(const fs::path& path, const std::string& value) {
    folder(path.parent_path());
    const fs::path fresh = fresh_name(path);
    const std::string line = value + "\n";
    const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0444);
    const bool written =
        fd >= 0 && write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
    const int error = errno;
    if (fd >= 0) close(fd);
    if (!written) return fail("cannot write", fresh, error);
    replace(fresh, path);
  }

  void link(const fs::path& path, const std::string& target) {
    folder(path.parent_path());
    const fs::path fresh = fresh_name(path);
    unlink(fresh.c_str());
    if (symlink(target.c_str(), fresh.c_str()) != 0)
      return fail("cannot make the link", fresh, errno);
    replace(fresh, path);
  }

  // Removes what an earlier tree had in the folder: another network namespace may have had a device
  // of the same number.
  void empty_folder(const fs::path& path) {
    folder(path);
    std::error_code code;
    for (const auto& entry : fs::directory_iterator(root_ / path, code))
      unlink(entry.path().c_str());
  }

  void remove(const fs::path& path) { unlink((root_ / path).c_str()); }

 private:
  // Returns the name under which a file is made. It is in the tree's root, since programs list the
  // folders below.
  fs::path fresh_name(const fs::path& path) const {
    std::string name = path.string();
    std::ranges::replace(name, '/', '_');
    return root_ / ("." + name + "." + std::to_string(getpid()));
  }

  void replace(const fs::path& fresh, const fs::path& path) {
    if (rename(fresh.c_str(), (root_ / path).c_str()) == 0) return;
    const int error = errno;
    unlink(fresh.c_str());
    fail("cannot replace", root_ / path, error);
  }

  void fail(const char* what, const fs::path& path, int error) {
    if (failed_) return;
    failed_ = true;
    error_ = {std::string(what) + " " + path.string() + ": " + std::strerror(error), error};
  }

  fs::path root_;
  bool failed_ = false;
  Error error_;
};

std::string guid_text(std::uint64_t guid) {
  char text[24];
  std::snprintf(text, sizeof text, "%04x:%04x:%04x:%04x", static_cast<unsigned>(guid >> 48),
                static_cast<unsigned>(guid >> 32 & 0xFFFF),
                static_cast<unsigned>(guid >> 16 & 0xFFFF), static_cast<unsigned>(guid & 0xFFFF));
  return text;
}

std::string hexadecimal(std::uint32_t value, int digits) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%0*x", digits, value);
  return text;
}

// The file of one of a port's counters. Files in `counters` have the names that a kernel gives the
// counters of IBTA 16.1.3.5 and 16.1.4.11 (include/rdma/ib_pma.h). Files in `hw_counters` are some
// of those that Linux's drivers show there (mlx5's names). A file without `names` always shows 0,
// because nothing is ever counted for it.
struct CounterFile {
  const char* path;
  unsigned divisor;                     // data is counted in words of four bytes
  std::vector<std::string_view> names;  // live's counters that are added up
};

const std::vector<CounterFile>& counter_files() {
  static const auto* files = new std::vector<CounterFile>{
      {"counters/port_xmit_data", 4, {"bytes_sent"}},
      {"counters/port_rcv_data", 4, {"bytes_received"}},
      {"counters/port_xmit_packets", 1, {"packets_sent"}},
      {"counters/port_rcv_packets", 1, {"packets_received"}},
      {"counters/port_rcv_errors",
       1,
       {"received_truncated", "received_unknown_opcode", "received_bad_version",
        "received_bad_icrc", "unsealed_drops"}},
      {"counters/port_xmit_discards", 1, {"send_errors"}},
      {"counters/symbol_error", 1, {}},
      {"counters/link_error_recovery", 1, {}},
      {"counters/link_downed", 1, {}},
      {"counters/port_rcv_remote_physical_errors", 1, {}},
      {"counters/port_rcv_switch_relay_errors", 1, {}},
      {"counters/port_xmit_constraint_errors", 1, {}},
      {"counters/port_rcv_constraint_errors", 1, {}},
      {"counters/local_link_integrity_errors", 1, {}},
      {"counters/excessive_buffer_overrun_errors", 1, {}},
      {"counters/VL15_dropped", 1, {}},
      {"hw_counters/duplicate_request", 1, {"duplicate_requests"}},
      {"hw_counters/implied_nak_seq_err", 1, {"implied_naks"}},
      {"hw_counters/local_ack_timeout_err", 1, {"ack_timeouts"}},
      {"hw_counters/packet_seq_err", 1, {"sequence_naks_received"}},
      {"hw_counters/rnr_nak_retry_err", 1, {"rnr_naks_received"}},
      {"hw_counters/rp_cnp_handled", 1, {"congestion_notifications"}},
      {"hw_counters/rx_icrc_encapsulated", 1, {"received_bad_icrc"}},
  };
  return *files;
}

std::string hexadecimal(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(byte));
    text += digits;
  }
  return text;
}

// Recipes tell the preloaded library how to obtain a file's text (recipes.c).
constexpr std::size_t recipe_bytes = 4'096;       // as long as a kernel says that attributes are
constexpr std::size_t request_bytes_max = 1'536;  // limit for the request in a recipe

std::string padded(std::string recipe) {
  TULLE_CHECK(recipe.size() < recipe_bytes);
  recipe.resize(recipe_bytes - 1, '\n');
  return recipe;
}

// Returns the recipe for a counter's value. The answer, an AgentStatus, ends with the counters.
std::string counter_recipe(const CounterFile& file, const std::string& agent) {
  live::Hello hello;
  hello.purpose = live::Purpose::status;
  std::string text = "tulle counter\n" +
                     std::to_string(static_cast<unsigned>(live::AgentStatus::kind)) + " " +
                     std::to_string(file.divisor);
  for (const std::string_view name : file.names) {
    const auto found = std::find(live::counter_names.begin(), live::counter_names.end(), name);
    TULLE_CHECK(found != live::counter_names.end());
    text += " " + std::to_string(live::counter_names.end() - found);
  }
  text += "\n" + hexadecimal(live::encode(hello)) + "\n" + agent + "\n";
  return padded(text);
}

std::vector<std::byte> agent_request(const live::DeviceInfo& device, const TreeOptions& options,
                                     const std::string& file) {
  live::Hello hello;
  hello.purpose = live::Purpose::attribute;
  hello.device = options.choice;
  hello.device.name = device.name;
  hello.file = file;
  return live::encode(hello);
}

std::vector<std::byte> fabric_request(const live::FabricPlace& place, const std::string& file) {
  live::FabricHello hello;
  hello.purpose = live::FabricPurpose::attribute;
  hello.host = place.host;
  hello.file = file;
  return live::encoded(hello);
}

// Writes the counters of a host's port, which the fabric's process knows. Nothing is ever counted
// for the other files.
void write_fabric_counters(Writer& tree, const fs::path& port, const live::FabricPlace& place) {
  live::FabricHello hello;
  hello.purpose = live::FabricPurpose::counters;
  hello.host = place.host;
  const std::string begin =
      "tulle counter\n" + std::to_string(static_cast<unsigned>(live::PortCounters::kind)) + " 1 ";
  const std::string end = "\n" + hexadecimal(live::encoded(hello)) + "\n" + place.socket + "\n";
  const auto& names = live::port_counter_names;
  for (const CounterFile& file : counter_files()) {
    const std::string name = fs::path(file.path).filename();
    const auto* found = std::find(names.begin(), names.end(), name);
    std::string text = "0";
    if (found != names.end()) {
      text = begin;
      text += std::to_string(names.end() - found);
      text += end;
      text = padded(std::move(text));
    }
    tree.file(port / file.path, text);
  }
}

// Writes an attribute that changes while the device is in use, as a recipe. The host agent knows
// the attribute's text, or says that there is none. The recipe also holds the present text, which
// is used without a host agent; an empty line there means that there is none.
void write_changing(Writer& tree, const fs::path& port, const std::string& file,
                    const live::DeviceInfo& device, const TreeOptions& options) {
  const std::optional<std::string> now = live::port_attribute(device, file);
  const bool is_on_fabric = !options.fabric.socket.empty();
  const std::vector<std::byte> request =
      is_on_fabric ? fabric_request(options.fabric, file) : agent_request(device, options, file);
  const std::string& address = is_on_fabric ? options.fabric.socket : options.agent;
  if (address.empty() || request.size() > request_bytes_max) {
    if (now) return tree.file(port / file, *now);
    return tree.remove(port / file);
  }
  const std::string kind = std::to_string(static_cast<unsigned>(live::Attribute::kind));
  tree.file(port / file, padded("tulle attribute\n" + kind + "\n" + hexadecimal(request) + "\n" +
                                address + "\n" + now.value_or("") + "\n"));
}

void write_counters(Writer& tree, const fs::path& port, const std::string& agent) {
  for (const CounterFile& file : counter_files()) {
    tree.file(port / file.path, file.names.empty() ? "0" : counter_recipe(file, agent));
  }
}

void write_port(Writer& tree, const fs::path& port, const live::DeviceInfo& device,
                const TreeOptions& options) {
  write_changing(tree, port, "state", device, options);
  write_changing(tree, port, "phys_state", device, options);
  for (std::size_t i = 0; i < gid_table_length(device.gids.size()); ++i) {
    const std::string index = std::to_string(i);
    for (const char* folder : {"gids/", "gid_attrs/types/", "gid_attrs/ndevs/"}) {
      write_changing(tree, port, folder + index, device, options);
    }
  }
  if (device.infiniband) {
    tree.file(port / "link_layer", "InfiniBand");
    for (const std::string_view file : live::infiniband_attributes) {
      write_changing(tree, port, std::string(file), device, options);
    }
    for (std::size_t i = 0; i < device.infiniband->pkeys.size(); ++i) {
      write_changing(tree, port, "pkeys/" + std::to_string(i), device, options);
    }
    return;
  }
  tree.file(port / "rate", link_rate);
  tree.file(port / "link_layer", "Ethernet");
  tree.file(port / "lid", "0x0");
  tree.file(port / "lid_mask_count", "0");
  tree.file(port / "sm_lid", "0x0");
  tree.file(port / "sm_sl", "0");
  tree.file(port / "cap_mask", hexadecimal(port_capabilities, 8));
  tree.file(port / "pkeys/0", "0xffff");
}

// Writes what a bus shows of the device, below its class directory. The folder of its driver is
// where the preloaded library answers too.
void write_parent(Writer& tree, const fs::path& parent, const live::DeviceInfo& device) {
  tree.file(parent / "numa_node", "-1");
  const live::Likeness* const like = live::Device::likeness();
  tree.file(parent / "vendor", hexadecimal(like != nullptr ? like->vendor_id : vendor_id, 4));
  tree.file(parent / "device",
            hexadecimal(like != nullptr ? like->vendor_part_id : vendor_part_id, 4));
  tree.folder(fs::path("sys/bus/tulle/drivers") / driver_name);
  tree.link(parent / "driver", std::string("../../../../bus/tulle/drivers/") + driver_name);
  tree.empty_folder(parent / "net");
  for (const live::GidEntry& entry : device.gids) {
    if (!entry.in_use() || entry.interface.empty()) continue;
    tree.link(parent / "net" / entry.interface, "/sys/class/net/" + entry.interface);
  }
}

void write_device(Writer& tree, const live::DeviceInfo& device, std::size_t index,
                  const TreeOptions& options) {
  const fs::path folder = fs::path("sys/class/infiniband") / device.name;
  tree.file(folder / "node_type", "1: CA");
  tree.file(folder / "node_guid", guid_text(device.node_guid));
  tree.file(folder / "sys_image_guid", guid_text(device.node_guid));
  tree.file(folder / "node_desc", device.name);
  tree.file(folder / "fw_ver", firmware_version);
  tree.file(folder / "hca_type", board_id);
  tree.file(folder / "board_id", board_id);
  tree.file(folder / "hw_rev", hexadecimal(hardware_version, 1));
  write_port(tree, folder / "ports/1", device, options);
  if (!options.fabric.socket.empty()) {
    write_fabric_counters(tree, folder / "ports/1", options.fabric);
  }
  if (!options.agent.empty()) write_counters(tree, folder / "ports/1", options.agent);
  write_parent(tree, folder / "device", device);

  const std::string node = "uverbs" + std::to_string(index);
  const fs::path verbs = fs::path("sys/class/infiniband_verbs") / node;
  tree.file(verbs / "ibdev", device.name);
  tree.file(verbs / "abi_version", std::to_string(verbs_abi_version));
  tree.file(verbs / "dev", "231:" + std::to_string(192 + index));
  tree.link(verbs / "device", "../../infiniband/" + device.name + "/device");
  // This link gives a character device that anyone may open, and making it takes no privilege.
  tree.link(fs::path("dev/infiniband") / node, "/dev/null");
}

}  // namespace

Result<std::string> make_tree(const std::string& base, std::span<const live::DeviceInfo> devices,
                              const TreeOptions& options) {
  std::error_code code;
  const fs::path root = fs::absolute(base, code) / "sysfs";
  if (code) return Error{"cannot resolve the path " + base + ": " + code.message(), code.value()};
  for (const live::DeviceInfo& device : devices) {
    if (!live::is_device_name(device.name)) {
      return Error{"a device has a name that no file may have", EINVAL};
    }
  }
  Writer tree(root);
  tree.folder("sys/class/infiniband");
  tree.folder("dev/infiniband");
  tree.file("sys/class/infiniband_verbs/abi_version", "6");
  for (std::size_t i = 0; i < devices.size(); ++i) write_device(tree, devices[i], i, options);
  if (options.connection_manager) {
    tree.file("sys/class/misc/rdma_cm/abi_version", "4");
    tree.link("dev/infiniband/rdma_cm", "/dev/null");
  }
  if (const Error* error = tree.error()) return *error;
  return root.string();
}

}  // namespace tulle::shim
