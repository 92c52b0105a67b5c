#include "live/fabric/fabric_folder.h"

#include <filesystem>
#include <system_error>

namespace tulle::live {
namespace {

void remove(const std::string& path) {
  std::error_code ignored;  // nobody is harmed by a file that stays
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

std::string fabric_socket(const std::string& folder) { return folder + "/socket"; }

std::string manager_folder(const std::string& folder) { return folder + "/opensm"; }

ManagerFolder::ManagerFolder(const std::string& folder) : path_(manager_folder(folder)) {
  remove(path_);
}

ManagerFolder::~ManagerFolder() { remove(path_); }

}  // namespace tulle::live
