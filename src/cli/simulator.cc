#include "cli/simulator.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/fail.h"
#include "cli/layout.h"

namespace tulle::cli {
namespace {

// The name of the package that has the simulator; empty if Tulle was not installed as packages.
constexpr char package[] = TULLE_SIMULATOR_PACKAGE;

std::string missing(const std::string& command) {
  if (*package != 0) {
    return fmt::format(
        "tulle {} is in the package {}; install its file, which is in the same folder as "
        "tulle's: {}_*.deb",
        command, package, package);
  }
  return fmt::format("tulle {} needs {}, which is not there; install all of Tulle again", command,
                     simulator_program().string());
}

}  // namespace

int become_simulator(const std::vector<std::string>& arguments) {
  // A command line is the same in both programs.
  std::vector<std::string> words = {"tulle"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const std::string program = simulator_program().string();
  if (program.empty()) {
    fail("tulle-simulator is not started: another user can change it, or a folder above it");
    return not_executable_status;
  }
  execv(program.c_str(), pointers.data());
  const int number = errno;
  if (number == ENOENT) {
    fail(missing(arguments.front()));
    return not_found_status;
  }
  fail(fmt::format("cannot run {}: {}", program, std::strerror(number)));
  return not_executable_status;
}

}  // namespace tulle::cli
