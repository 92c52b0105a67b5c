#pragma once

// The memory files of one local peer that this process has mapped, so that it reaches the peer's
// regions without system calls (live/path/memory/shared_regions.h).
//
// The peer lists its files in its table. This process trusts nothing that the table says of them:
// it maps only memory files of the same user whose size is sealed, and no further than they are
// long. What it maps of one peer is limited.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "live/path/memory/peer_table.h"

namespace tulle::live {

class PeerFiles {
 public:
  // Memory of further files is reached by system calls. A process may have 65,530 mappings, and 127
  // peers. Its address space has room for 128 TiB.
  static constexpr std::size_t files_max = 128;
  static constexpr std::uint64_t bytes_max = std::uint64_t{512} << 30;  // of all files

  PeerFiles() = default;
  ~PeerFiles() { clear(); }
  PeerFiles(PeerFiles&& other) noexcept : files_(std::exchange(other.files_, {})) {}
  PeerFiles& operator=(PeerFiles&& other) noexcept {
    std::swap(files_, other.files_);
    return *this;
  }

  // Returns where bytes of the file of this number are mapped in this process, or null if they are
  // not. The address is one of the peer's address space when the file's pages moved there. `table`
  // is the peer's, and `pid` its process.
  std::byte* find(const PeerTable& table, int pid, std::uint64_t number, std::uint64_t address,
                  std::uint64_t bytes);
  // Returns the same for bytes that are at this address in the peer's address space now.
  std::byte* find_now(const PeerTable& table, int pid, std::uint64_t address, std::uint64_t bytes);
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
  };
  static bool has_bytes(const File& file, std::uint64_t address, std::uint64_t bytes);
  static bool is_listed(const File& file, const PeerTable& table);
  template <typename IsIt>
  std::byte* find_file(const PeerTable& table, int pid, std::uint64_t address, IsIt&& is_it);
  template <typename IsIt>
  const File* add(const PeerTable& table, int pid, IsIt&& is_it);
  bool has_room(const File& file);
  static void map(File& file, int pid, int fd, std::uint64_t inode);
  static void unmap(const File& file);

  std::vector<File> files_;
  std::size_t last_ = 0;  // the file that was found last
};

}  // namespace tulle::live
