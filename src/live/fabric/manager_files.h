#pragma once

// A subnet manager says that it runs at a port by holding a file open, as it does with a kernel's
// issm device. Here each host has an ordinary file for this, and the kernel tells of its opening
// and closing, also when the manager was killed.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "fabric/subnet.h"
#include "live/unique_fd.h"

namespace tulle::live {

class ManagerFiles {
 public:
  // The subnet must outlive this object. The folder belongs to this user alone.
  ManagerFiles(std::string folder, fabric::Subnet& subnet)
      : folder_(std::move(folder)), subnet_(subnet) {}
  ManagerFiles(const ManagerFiles&) = delete;
  ManagerFiles& operator=(const ManagerFiles&) = delete;
  ~ManagerFiles();

  // Makes the files.
  Result<void> open();
  // Returns the descriptor that is readable when a file was opened or closed.
  int descriptor() const { return events_.get(); }
  // Tells the subnet what has happened.
  void read(Time now);
  std::string path(std::uint32_t host) const;

 private:
  struct File {
    int watch = -1;
    std::uint32_t opened = 0;
  };

  std::string folder_;
  fabric::Subnet& subnet_;
  UniqueFd events_;
  std::vector<File> files_;  // by host
};

}  // namespace tulle::live
