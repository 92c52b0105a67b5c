#pragma once

// The memory files of local peers that this process has mapped, so that it reaches their regions
// without system calls (live/path/memory/shared_regions.h).
//
// A peer names a file by one of its descriptors. This process trusts neither the descriptor nor
// the numbers beside it: it maps nothing but memory files whose size is sealed, and reaches no
// further than they are long.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tulle::live {

class PeerFiles {
 public:
  // What a peer says of a file.
  struct Named {
    int pid = 0;
    int fd = -1;  // in that process
    std::uint64_t inode = 0;
    std::uint64_t number = 0;  // the peer has no other file of this number
    std::uint32_t key = 0;     // of a region in the file
  };

  // More files are not mapped: a process may have 65,530 mappings.
  static constexpr std::size_t files_max = 4'096;

  PeerFiles() = default;
  ~PeerFiles();
  PeerFiles(const PeerFiles&) = delete;
  PeerFiles& operator=(const PeerFiles&) = delete;

  // Returns where the bytes [at, at + bytes) of the file are mapped, or null if they cannot be. The
  // token names the peer (live/path/memory/local_peers.h).
  std::byte* find(std::uint32_t token, const Named& named, std::uint64_t at, std::uint64_t bytes);
  // Unmaps each file of which keep(token, key, number) returns false.
  using Keep = std::function<bool(std::uint32_t token, std::uint32_t key, std::uint64_t number)>;
  void sweep(const Keep& keep);
  // Called in a forked child, which has none of the mappings.
  void forget_in_child() { files_.clear(); }
  std::size_t size() const { return files_.size(); }

 private:
  struct File {
    std::uint32_t token = 0;
    std::uint32_t key = 0;
    std::uint64_t number = 0;
    std::byte* memory = nullptr;  // null: cannot be mapped
    std::uint64_t bytes = 0;
  };
  File* known(std::uint32_t token, std::uint64_t number);
  static void map(File& file, const Named& named);
  static void unmap(const File& file);

  std::vector<File> files_;
  std::size_t last_ = 0;  // the file that was found last
};

}  // namespace tulle::live
