#pragma once

// What is in a fabric's folder: its socket, and the files of subnet managers on its hosts.

#include <string>

namespace tulle::live {

// Returns the path of the socket of a fabric's process. `folder` is the fabric's.
std::string fabric_socket(const std::string& folder);

// Returns the path of the folder in which subnet managers on its hosts keep their files. Programs
// that start a manager make it (shim/launch).
std::string manager_folder(const std::string& folder);

// Removes the managers' folder when a fabric begins and when it ends: what a manager learned of
// another fabric of this name is wrong for this one.
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
