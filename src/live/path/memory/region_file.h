#pragma once

// Moves pages of a program's private memory to a memory file, so that other processes can map them,
// and back. The pages keep their addresses, and the program notices nothing.

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "live/path/memory/writer_hold.h"
#include "live/unique_fd.h"

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
  UniqueFd fd;
  std::uint64_t inode = 0;
  PageRange pages;  // the file has as many bytes, and pages.begin lies at its start
};

// Moves the pages, which nothing in mappings.h must keep from moving. The size of the file is
// sealed. Pages of zeros take no memory in it. Nobody may write to the pages meanwhile: threads are
// held back by `hold`, or, if it is null, the caller is the only thread. Signals of the calling
// thread are blocked for as long. If the system refuses halfway, the file has the pages that moved;
// an error means that none did.
Result<RegionFile> move_to_file(PageRange pages, WriterHold* hold);

// Makes the pages private again, as far as the file is still mapped there. Other threads may write
// to them meanwhile. What other processes write to the file after that reaches nobody, but for
// pages that had only zeros and that the program has not written to since. Returns false if nothing
// has changed, because the kernel cannot be asked what is mapped; the caller may try again.
[[nodiscard]] bool move_back(const RegionFile& file);

// Returns true if the file is mapped where its pages were. A program may have unmapped registered
// memory, and may have mapped other memory there since.
bool is_in_place(const RegionFile& file);

// Gives a forked child copies of the pages that it shares with its parent. The child has one
// thread. Where memory is short, pages that the child does not write to go on following the
// parent's.
void copy_for_child(const RegionFile& file);

}  // namespace tulle::live
