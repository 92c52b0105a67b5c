#pragma once

// A subnet manager says that it runs at a port by holding a file open, as it does with a kernel's
// issm device. Here each host has an ordinary file for this, and the kernel tells of its opening
// and closing, also when the manager was killed. Equal events that follow each other are one, and
// events may be lost: only a lease says for certain that nobody has a file open (fcntl(2)).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "fabric/subnet.h"
#include "os/unique_fd.h"

namespace tulle::live {

class ManagerFiles {
 public:
  // Is told whether a host has a manager.
  using Tell = std::function<void(Time now, std::uint32_t host, bool is_manager)>;

  // The subnet must outlive this object. The folder belongs to this user alone.
  ManagerFiles(std::string folder, const fabric::Subnet& subnet, Tell tell)
      : folder_(std::move(folder)), subnet_(subnet), tell_(std::move(tell)) {}
  ManagerFiles(const ManagerFiles&) = delete;
  ManagerFiles& operator=(const ManagerFiles&) = delete;
  ~ManagerFiles();

  // Makes the files.
  Result<void> open();
  // Returns the descriptor that is readable when a file was opened or closed.
  int descriptor() const { return events_.get(); }
  // Tells what has changed. Some events may be left for the next call, and keep the descriptor
  // readable.
  void read(Time now);
  std::string path(std::uint32_t host) const;

 private:
  struct File {
    UniqueFd own;  // for leases
    int watch = -1;
    std::uint32_t opened = 0;  // at least: equal events are one
    bool has_closed = false;   // perhaps, since it was last looked at
    bool is_told = false;      // that the host has a manager
  };

  void take(std::span<const std::byte> events);
  void look(File& file) const;

  std::string folder_;
  const fabric::Subnet& subnet_;
  Tell tell_;
  UniqueFd events_;
  std::vector<File> files_;  // by host
  bool has_leases_ = false;  // the folder's file system and the kernel do
};

}  // namespace tulle::live
