#include "os/own_folder.h"

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <utility>

#include "os/trusted_folder.h"

namespace tulle {

Result<OwnFolder> own_folder() {
  const char* named = secure_getenv("XDG_RUNTIME_DIR");
  const bool is_named = named != nullptr && *named == '/' && access(named, W_OK) == 0;
  std::string warning;
  std::string path;
  if (is_named) {
    auto runtime = trusted_folder(named);
    if (runtime) path = *runtime + "/tulle";
    if (!runtime) warning = "XDG_RUNTIME_DIR is not used: " + runtime.error().message;
  }
  // Another user may have taken the name in /tmp. Root has a folder in which nobody else makes any.
  if (path.empty() && geteuid() == 0 && access("/run", W_OK) == 0) path = "/run/tulle";
  if (path.empty()) path = "/tmp/tulle-" + std::to_string(geteuid());
  auto made = private_folder(path);
  if (!made) return made.error();
  return OwnFolder{std::move(*made), std::move(warning)};
}

Result<OwnFolder> own_folder_for(const std::string& name) {
  auto own = own_folder();
  if (!own) return own;
  std::string plain = name.empty() ? "default" : name;
  for (char& letter : plain) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  auto made = private_folder(own->path + "/" + plain);
  if (!made) return made.error();
  own->path = std::move(*made);
  return own;
}

}  // namespace tulle
