#pragma once

// Moves pages of a program's private memory to a memory file, so that other processes can map them,
// and back. The pages keep their addresses, and the program notices nothing.
//
// Nothing here allocates memory or takes a lock while other threads are suspended, since one of
// those may hold the lock of the allocator.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "live/path/memory/kept_descriptor.h"
#include "live/path/memory/writer_hold.h"

namespace tulle::live {

inline constexpr std::size_t region_page_bytes = 4'096;  // on x86-64, which alone shares regions

// These are whole pages of this process.
struct PageRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // behind the last byte
  std::uint64_t bytes() const { return end - begin; }
  bool overlaps(const PageRange& other) const { return begin < other.end && other.begin < end; }
};

struct RegionFile {
  KeptDescriptor fd;
  // pages.begin is at the file's start. The file is longer than the pages, so that a program may
  // let its mapping grow (mremap(2)) and finds zeros there, as in private memory.
  PageRange pages;
};

// Where this process has mapped pages of a region's file, so that they are shared.
struct FileMapping {
  PageRange pages;
  std::uint64_t file_at = 0;
  std::uint64_t inode = 0;  // of the file
  int protection = 0;
};
struct FileMappings {
  std::vector<FileMapping> all;  // from lower addresses to higher ones
  // A device or an asynchronous call may write to the process's memory.
  bool devices_may_write = false;

  std::vector<FileMapping> of(const RegionFile& file) const;
  // Returns those that are where the pages were, or grew from there. Others are peers' views, if
  // this process is its own peer, or memory that the program has moved with mremap(2).
  std::vector<FileMapping> in_place(const RegionFile& file) const;
  // Returns true if the file is mapped where its pages were. A program may have unmapped registered
  // memory, and may have mapped other memory there since.
  bool has_in_place(const RegionFile& file) const;
};
// Returns nothing if the kernel cannot be asked.
std::optional<FileMappings> find_file_mappings();

// Makes an empty file for the pages. The size of the file is sealed.
Result<RegionFile> make_region_file(PageRange pages);

// Says who else may write to the pages while they move.
struct OtherThreads {
  bool exist = false;
  WriterHold* hold = nullptr;  // null: they cannot be suspended
};

// Moves the pages, which nothing in mappings.h must keep from moving, to their empty file. Pages of
// zeros take no memory in it. Other threads must be suspended. Signals of the calling thread are
// blocked meanwhile. If the system refuses halfway, file.pages becomes those that moved. Returns
// false if none did.
[[nodiscard]] bool move_to_file(RegionFile& file, OtherThreads others);

// Makes the pages private again that `mappings` lists, and frees their memory in the file. If
// threads exist that cannot be suspended, the pages become private copies of the file's where it
// has data; where it has none, what another process writes to the file later appears in pages that
// the program has not written to. Returns false if some pages are still shared.
[[nodiscard]] bool move_back(const RegionFile& file, std::span<const FileMapping> mappings,
                             OtherThreads others);

// Frees memory of pages that are nowhere mapped in this process any more.
void free_unmapped(const RegionFile& file, std::span<const FileMapping> mappings);

// Gives a forked child copies of the pages that it shares with its parent. The child has one
// thread. Where memory is short, pages that the child does not write to continue to follow the
// parent's. Calls `progress` every now and then.
void copy_for_child(const RegionFile& file, const std::function<void()>& progress);

}  // namespace tulle::live
