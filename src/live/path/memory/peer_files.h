#pragma once

// The memory files of one local peer that this process has mapped, so that it reaches the peer's
// regions without system calls (live/path/memory/shared_regions.h).
//
// The peer lists its files in its table. This process trusts nothing that the table says of them:
// it maps only memory files whose size is sealed, and reaches no further than they are long.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "live/path/memory/peer_table.h"

namespace tulle::live {

class PeerFiles {
 public:
  // A peer with more files than this has some of them mapped anew each time. A process may have
  // 65,530 mappings, and 127 peers.
  static constexpr std::size_t files_max = 64;

  PeerFiles() = default;
  ~PeerFiles() { clear(); }
  PeerFiles(PeerFiles&& other) noexcept : files_(std::exchange(other.files_, {})) {}
  PeerFiles& operator=(PeerFiles&& other) noexcept {
    std::swap(files_, other.files_);
    return *this;
  }

  // Returns where bytes of the peer's address space are mapped in this process, or null if they are
  // not. `table` is the peer's, and `pid` its process.
  std::byte* find(const PeerTable& table, int pid, std::uint64_t address, std::uint64_t bytes);
  // Unmaps the files that the table no longer lists.
  void sweep(const PeerTable& table);
  void clear();
  // Called in a forked child, which has none of the mappings.
  void forget_in_child() { files_.clear(); }
  std::size_t size() const { return files_.size(); }

 private:
  struct File {
    std::size_t place = 0;  // in the peer's table
    std::uint64_t number = 0;
    std::uint64_t address = 0;  // where the file begins in the peer's address space
    std::uint64_t bytes = 0;
    std::byte* memory = nullptr;  // null: cannot be mapped
    std::uint64_t mapped_bytes = 0;
  };
  static bool has_bytes(const File& file, std::uint64_t address, std::uint64_t bytes);
  static bool is_listed(const File& file, const PeerTable& table);
  File* add(const PeerTable& table, int pid, std::uint64_t address, std::uint64_t bytes);
  bool has_room();
  static void map(File& file, int pid, int fd, std::uint64_t inode);
  static void unmap(const File& file);

  std::vector<File> files_;
  std::size_t last_ = 0;  // the file that was found last
  std::size_t next_ = 0;  // the file that makes room for another
};

}  // namespace tulle::live
