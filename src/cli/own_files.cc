#include "cli/own_files.h"

#include <utility>

#include "cli/fail.h"
#include "shim/paths/tree.h"

namespace tulle::cli {
namespace {

Result<std::string> said(Result<shim::OwnFolder> folder) {
  if (!folder) return folder.error();
  static bool is_said = false;
  if (!folder->warning.empty() && !std::exchange(is_said, true)) fail(folder->warning);
  return std::move(folder->path);
}

}  // namespace

Result<std::string> own_folder() { return said(shim::own_folder()); }

Result<std::string> own_folder_for(const std::string& name) { return said(shim::tree_base(name)); }

}  // namespace tulle::cli
