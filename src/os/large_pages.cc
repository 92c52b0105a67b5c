#include "os/large_pages.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace tulle {

void take_large_pages() {
  constexpr char variable[] = "GLIBC_TUNABLES";
  if (getenv(variable) != nullptr) return;
  // The heap of a thread that is not the first grows by a few small pages at each call, unless it
  // asks for all of its 64 MB (malloc's HEAP_MAX_SIZE) at once. Memory outside of the heaps has
  // small pages, too: the threshold for that is the highest one that malloc takes.
  setenv(variable,
         "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=67108864:"
         "glibc.malloc.mmap_threshold=33554432",
         1);
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(in, argument, '\0');) arguments.push_back(argument);
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execv("/proc/self/exe", pointers.data());
  // If the program cannot start again, it continues as it is.
}

}  // namespace tulle
