#pragma once

// The folder in which subnet managers on a fabric's hosts keep their files. Programs that start a
// manager make it (cli/run.cc).

#include <string>

namespace tulle::live {

// Returns its path. `folder` is the fabric's own.
std::string manager_folder(const std::string& folder);

// Removes the folder when a fabric begins and when it ends: what a manager learned of another
// fabric of this name is wrong for this one.
class ManagerFolder {
 public:
  explicit ManagerFolder(const std::string& folder);
  ~ManagerFolder();
  ManagerFolder(const ManagerFolder&) = delete;
  ManagerFolder& operator=(const ManagerFolder&) = delete;

 private:
  std::string path_;
};

}  // namespace tulle::live
