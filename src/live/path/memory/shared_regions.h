#pragma once

// Registered memory that other processes of the same user may map (`tulle run --share-memory`).
// When the program registers private memory, those pages that are wholly within the region move to
// a memory file (live/path/memory/region_file.h). They move back when no region needs them any
// more.
//
// Memory stays where it is, and peers use system calls to reach it, if it is anything but ordinary
// private memory (live/path/memory/mappings.h); if the program has registered it before, since
// peers may be writing to it; if other threads cannot be suspended while it moves; and beyond a
// number of files.
//
// A program may unmap registered memory and map other memory there. The file then continues to
// serve the regions that were registered before, as an adapter continues with the pages that it
// knows, and serves no other.
//
// Memory that cannot move back, because a device or an asynchronous call may hold its pages by
// then, keeps its file until the program unmaps it.
//
// There is one object for all devices of a process. It has its own lock and is used with and
// without a device's.

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "live/path/memory/mappings.h"
#include "live/path/memory/region_file.h"
#include "os/unique_fd.h"
#include "rdma/verbs/memory.h"

namespace tulle::live {

// Counts for each address how many ranges cover it.
class Coverage {
 public:
  void add(std::uint64_t begin, std::uint64_t end) { change(begin, end, 1); }
  void remove(std::uint64_t begin, std::uint64_t end) { change(begin, end, -1); }
  // From now on all addresses are covered.
  void cover_all() { is_all_ = true; }
  // Returns true if some address of [begin, end) is covered.
  bool overlaps(std::uint64_t begin, std::uint64_t end) const;

 private:
  void change(std::uint64_t begin, std::uint64_t end, int by);
  // Each entry holds from its address up to the next entry.
  std::map<std::uint64_t, std::uint32_t> counts_;
  bool is_all_ = false;
};

class SharedRegions {
 public:
  // A file, as peers need to know it.
  struct Shown {
    std::size_t place = 0;      // below files_max; no other file has it at the same time
    std::uint64_t number = 0;   // differs for each file that this process makes
    std::uint64_t address = 0;  // where the file begins in this process's memory
    std::uint64_t bytes = 0;
    std::uint64_t inode = 0;
    int fd = -1;  // in this process
  };
  // Keeps pages in their file for as long as it lives.
  class Hold {
   public:
    Hold() = default;
    ~Hold() { reset(); }
    Hold(Hold&& other) noexcept : of_(std::exchange(other.of_, nullptr)), begin_(other.begin_) {}
    Hold& operator=(Hold&& other) noexcept {
      std::swap(of_, other.of_);
      std::swap(begin_, other.begin_);
      return *this;
    }
    explicit operator bool() const { return of_ != nullptr; }

   private:
    friend class SharedRegions;
    Hold(SharedRegions& of, std::uint64_t begin) : of_(&of), begin_(begin) {}
    void reset();
    SharedRegions* of_ = nullptr;
    std::uint64_t begin_ = 0;  // of the file's pages
  };

  // Each file takes a descriptor and a mapping. Programs may have 1,024 descriptors and 65,530
  // mappings unless the system is set otherwise.
  static constexpr std::size_t files_max = 512;

  SharedRegions() = default;
  ~SharedRegions();
  SharedRegions(const SharedRegions&) = delete;
  SharedRegions& operator=(const SharedRegions&) = delete;
  // Returns the object of this process, which is never destroyed.
  static SharedRegions& of_process();

  // Lets memory be shared from now on, if the program's calls of madvise(2) come to advise() first
  // (shim/advice). Returns false if they do not.
  bool enable();
  // Lets memory be shared in a program that gives up no pages.
  void enable_without_advice() { is_enabled_ = true; }
  bool is_enabled() const { return is_enabled_.load(); }
  // Tulle's own threads, which write to no memory before it is registered, are not suspended.
  void note_own_thread(int change) { own_threads_ += change; }

  // Moves pages of a range that the program is about to register, if that can be done. The caller
  // keeps the hold until the region is exposed. Holds no device's lock.
  Hold share(const void* memory, std::uint64_t bytes);
  // Called when a region becomes known to peers. Returns the file that holds some of it, which
  // stays until the region is withdrawn.
  std::optional<Shown> expose(const void* owner, const verbs::MemoryRegion& region);
  // Counts how often a file was found that is not where its pages were. The caller of expose() then
  // must ask is_displaced() of the files that it shows.
  std::uint64_t displacements() const { return displacements_.load(); }
  // Returns true if the file of this place has other bytes than this process finds at its address.
  bool is_displaced(std::size_t place) const;
  // Returns the place of the region's file.
  std::optional<std::size_t> place_of(const verbs::MemoryRegion& region) const;
  // Called when no peer can reach the region any more.
  void withdraw(const verbs::MemoryRegion& region);
  // Withdraws all regions of an owner.
  void forget(const void* owner);
  // Moves pages back that no region needs any more. Holds no device's lock.
  void tidy();

  // Does what madvise(2) should, also for pages that are shared. It calls `next`, which is the
  // kernel's call or another library's. Takes no lock, since an allocator may call it with its own.
  using Madvise = int(void* memory, std::size_t bytes, int advice);
  static int advise(void* memory, std::size_t bytes, int advice, Madvise* next);

  // Called around fork(2). A forked child has private copies of the pages, and shares nothing.
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

  // Says why a registered range of a page or more stayed where it was.
  enum class Unshared : std::uint8_t {
    kind,        // parts are not ordinary private memory, or the kernel cannot be asked
    devices,     // a device or an asynchronous call may hold pages of this process
    threads,     // other threads cannot be suspended while pages move
    registered,  // peers can reach some of it already, by another region
    room,        // files, descriptors or memory are scarce
  };
  static constexpr std::size_t unshared_kinds = 5;
  struct Counters {
    std::uint64_t files = 0;                               // now
    std::uint64_t bytes = 0;                               // in these files
    std::array<std::uint64_t, unshared_kinds> unshared{};  // registrations so far, by the reason
    std::uint64_t unshared_for(Unshared reason) const {
      return unshared[static_cast<std::size_t>(reason)];
    }
  };
  // Takes no lock. The values may be of different moments.
  Counters counters() const;

 private:
  struct File {
    RegionFile file;
    std::uint64_t number = 0;
    std::uint32_t holds = 0;
    std::uint32_t registrations = 0;  // under way, for which the file was found in its place
    std::size_t place = 0;            // in shared_pages
    bool is_displaced = false;        // other memory is mapped where some of its pages were
    bool is_stuck = false;            // it could not move back, and is not tried again
  };
  struct Exposed {
    const void* owner = nullptr;
    std::uint64_t begin = 0;  // of the region
    std::uint64_t end = 0;
    std::optional<std::uint64_t> file;  // the first page of the file that has some of it
  };
  using Files = std::map<std::uint64_t, File>;

  struct Others;  // threads that may write while pages move
  class Moving;
  File* find(PageRange pages);
  bool overlaps_file(PageRange pages) const;
  bool is_idle(const File& file) const;
  Hold hold(File& file);
  Hold hold_file_with(PageRange pages);
  void find_displaced(PageRange bytes);
  void move_idle_back();
  void release(Files::iterator at, const FileMappings& mappings, Others& others);
  std::optional<Unshared> reason_to_stay(PageRange pages, const Others& others);
  Hold stays(Unshared reason);
  Hold move(PageRange pages);
  void drop(std::uint64_t begin);
  void drop(const Exposed& exposed);
  void tell_parent() const;
  void await_child();

  // Moving takes long, and expose() must not wait for it with a device's lock. So a thread that
  // moves pages holds the first lock all the time, and takes the second only to read the rest.
  std::mutex moving_mutex_;
  mutable std::mutex mutex_;
  PageRange moving_;  // to a file, at this moment
  std::atomic<bool> is_enabled_{false};
  std::atomic<int> own_threads_{0};
  Files files_;  // by their first page; erasing one needs both locks
  std::unordered_map<const verbs::MemoryRegion*, Exposed> exposed_;
  Coverage covered_;  // by exposed regions
  std::uint64_t numbers_ = 0;
  std::atomic<std::uint64_t> displacements_{0};
  std::atomic<std::uint64_t> file_count_{0};
  std::atomic<std::uint64_t> file_bytes_{0};
  std::array<std::atomic<std::uint64_t>, unshared_kinds> unshared_{};
  UniqueFd child_is_ready_;  // while a fork is under way: the ends of a pipe
  UniqueFd child_tells_;
};

}  // namespace tulle::live
