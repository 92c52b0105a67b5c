#include "live/path/memory/shared_regions.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <new>
#include <span>

namespace tulle::live {
namespace {

// The pages that are shared now, for advise(), which takes no lock. A place is free while `end` is
// 0. Each is written under the lock of SharedRegions.
struct SharedPages {
  std::atomic<std::uint64_t> begin{0};
  std::atomic<std::uint64_t> end{0};
  std::atomic<std::uint64_t> inode{0};  // of the file
  std::atomic<int> fd{-1};
};
std::array<SharedPages, SharedRegions::files_max> shared_pages;
std::atomic<std::size_t> shared_places{0};  // no place behind these was ever taken

// Returns the place that it takes.
std::size_t publish(const RegionFile& file) {
  std::size_t place = 0;
  while (shared_pages[place].end.load() != 0) ++place;
  SharedPages& free = shared_pages[place];
  free.begin.store(file.pages.begin);
  free.inode.store(file.inode);
  free.fd.store(file.fd.get());
  free.end.store(file.pages.end);
  shared_places.store(std::max(shared_places.load(), place + 1));
  return place;
}

// Frees the memory of those of the shared pages that are `given`, which then are zeros. The program
// may have closed the descriptor, and may have another file under its number.
void give_up(const SharedPages& shared, PageRange given) {
  const std::uint64_t begin = shared.begin.load();
  const PageRange pages{std::max(begin, given.begin), std::min(shared.end.load(), given.end)};
  struct stat status {};
  const int fd = shared.fd.load();
  if (pages.begin >= pages.end || fstat(fd, &status) != 0) return;
  if (status.st_ino != shared.inode.load()) return;
  fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(pages.begin - begin),
            static_cast<off_t>(pages.bytes()));
}

// Returns true if this process has files enough, and descriptors are not scarce.
bool has_room(std::size_t files) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  return files < std::min<std::uint64_t>(SharedRegions::files_max, limit.rlim_cur / 4);
}

// Returns the number of this process's threads, or 0 if it is unknown. The folder has one link for
// each, and two of its own.
std::uint64_t threads() {
  struct stat status {};
  return stat("/proc/self/task", &status) == 0 && status.st_nlink > 2 ? status.st_nlink - 2 : 0;
}

// A child that is being debugged, or waits for memory, may take long. Its parent waits as long as
// the child reports progress this often.
constexpr int child_patience_milliseconds = 10'000;

}  // namespace

bool Coverage::overlaps(std::uint64_t begin, std::uint64_t end) const {
  if (is_all_) return true;
  auto entry = counts_.upper_bound(begin);
  if (entry != counts_.begin() && std::prev(entry)->second > 0) return true;
  for (; entry != counts_.end() && entry->first < end; ++entry) {
    if (entry->second > 0) return true;
  }
  return false;
}

void Coverage::change(std::uint64_t begin, std::uint64_t end, int by) {
  if (begin >= end || is_all_) return;
  const auto split = [this](std::uint64_t at) {
    auto entry = counts_.lower_bound(at);
    if (entry != counts_.end() && entry->first == at) return entry;
    const std::uint32_t count = entry == counts_.begin() ? 0 : std::prev(entry)->second;
    return counts_.emplace_hint(entry, at, count);
  };
  const auto last = split(end);
  auto entry = split(begin);
  for (auto at = entry; at != last; ++at) at->second += static_cast<std::uint32_t>(by);
  // Entries that say what the one before them says are left out.
  for (;;) {
    const std::uint32_t before = entry == counts_.begin() ? 0 : std::prev(entry)->second;
    const bool is_last = entry == last;
    entry = entry->second == before ? counts_.erase(entry) : std::next(entry);
    if (is_last) break;
  }
}

void SharedRegions::Hold::reset() {
  if (of_ == nullptr) return;
  const std::lock_guard lock(of_->mutex_);
  const auto file = of_->files_.find(begin_);
  if (file != of_->files_.end()) --file->second.registrations;  // a forked child has no files
  of_->drop(begin_);
}

SharedRegions::~SharedRegions() {
  for (auto& [begin, file] : files_) file.holds = 0;
  tidy();
}

SharedRegions& SharedRegions::of_process() {
  static SharedRegions* const only = new SharedRegions;
  return *only;
}

// The preloaded library passes on what it is told here (shim/advice).
bool SharedRegions::enable() {
  using Advise = bool(void*, std::size_t, int, int*);
  using Announce = void(Advise*);
  auto* const announce = reinterpret_cast<Announce*>(dlsym(RTLD_DEFAULT, "tulle_pass_advice_to"));
  if (announce == nullptr) return false;
  announce(&SharedRegions::advise);
  is_enabled_ = true;
  return true;
}

// Returns the file with the most of these pages, or null.
SharedRegions::File* SharedRegions::find(PageRange pages) {
  File* best = nullptr;
  std::uint64_t most = 0;
  auto at = files_.upper_bound(pages.begin);
  if (at != files_.begin()) --at;
  for (; at != files_.end() && at->first < pages.end; ++at) {
    const PageRange& its = at->second.file.pages;
    if (!its.overlaps(pages)) continue;
    const std::uint64_t common = std::min(its.end, pages.end) - std::max(its.begin, pages.begin);
    if (common > most) most = common, best = &at->second;
  }
  return best;
}

// The caller holds mutex_.
SharedRegions::Hold SharedRegions::hold(File& file) {
  ++file.holds;
  ++file.registrations;
  return {*this, file.file.pages.begin};
}

// Holds the file that has some of the pages, if it is still mapped there. The caller holds
// moving_mutex_, so that the file stays while the kernel is asked.
SharedRegions::Hold SharedRegions::hold_file_with(PageRange pages) {
  File* file = nullptr;
  {
    const std::lock_guard lock(mutex_);
    file = find(pages);
  }
  if (file == nullptr || !is_in_place(file->file)) return {};
  const std::lock_guard lock(mutex_);
  return hold(*file);
}

// While this lives, nobody exposes the pages.
class SharedRegions::Moving {
 public:
  Moving(SharedRegions& regions, PageRange pages) : regions_(regions) { set(pages); }
  ~Moving() { set({}); }
  Moving(const Moving&) = delete;
  Moving& operator=(const Moving&) = delete;

 private:
  void set(PageRange pages) {
    const std::lock_guard lock(regions_.mutex_);
    regions_.moving_ = pages;
  }
  SharedRegions& regions_;
};

// Returns what keeps the pages where they are, or nothing. The kernel is asked last, since that
// takes longest.
std::optional<SharedRegions::Unshared> SharedRegions::reason_to_stay(PageRange pages) {
  {
    const std::lock_guard lock(mutex_);
    if (find(pages) != nullptr || covered_.overlaps(pages.begin, pages.end)) {
      return Unshared::registered;
    }
    if (!has_room(files_.size())) return Unshared::room;
  }
  const Obstacle obstacle = obstacle_to_moving(pages.begin, pages.end);
  if (obstacle == Obstacle::devices_write) return Unshared::devices;
  if (obstacle != Obstacle::none) return Unshared::kind;
  return {};
}

SharedRegions::Hold SharedRegions::stays(Unshared reason) {
  ++unshared_[static_cast<std::size_t>(reason)];
  return {};
}

// The caller holds moving_mutex_.
SharedRegions::Hold SharedRegions::move(PageRange pages) {
  std::optional<WriterHold> writers;
  if (threads() != 1 + static_cast<std::uint64_t>(own_threads_.load())) {
    auto created = WriterHold::create();
    if (!created) return stays(Unshared::threads);
    writers.emplace(std::move(*created));
  }
  // Nothing may fail once the pages have moved.
  Files made;
  made.try_emplace(pages.begin);
  const Moving moving(*this, pages);
  if (const auto reason = reason_to_stay(pages)) return stays(*reason);
  auto file = move_to_file(pages, writers ? &*writers : nullptr);
  if (!file) return stays(Unshared::room);
  const std::lock_guard lock(mutex_);
  File& moved = made.begin()->second;
  moved.place = publish(*file);
  moved.file = std::move(*file);
  moved.number = ++numbers_;
  files_.merge(made);
  ++file_count_;
  file_bytes_ += pages.bytes();
  return hold(files_.at(pages.begin));
}

SharedRegions::Hold SharedRegions::share(const void* memory, std::uint64_t bytes) {
  if (!is_enabled()) return {};
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  constexpr std::uint64_t mask = region_page_bytes - 1;
  const PageRange pages{(begin + mask) & ~mask, (begin + bytes) & ~mask};
  if (pages.begin < begin || pages.begin >= pages.end) return {};
  const std::lock_guard moving(moving_mutex_);
  move_idle_back();
  Hold hold = hold_file_with(pages);
  return hold ? std::move(hold) : move(pages);
}

std::optional<SharedRegions::Shown> SharedRegions::expose(const void* owner,
                                                          const verbs::MemoryRegion& region) {
  if (!is_enabled()) return {};
  withdraw(region);  // another call replaces the earlier one
  Exposed exposed;
  exposed.owner = owner;
  exposed.begin = reinterpret_cast<std::uintptr_t>(region.memory);
  exposed.end = exposed.begin + region.length;
  std::unique_lock lock(mutex_);
  while (moving_.overlaps({exposed.begin, exposed.end})) {
    // Peers would write to pages that are being copied. Another thread registers the same memory.
    lock.unlock();
    moving_mutex_.lock();
    moving_mutex_.unlock();
    lock.lock();
  }
  File* file = find({exposed.begin, exposed.end});
  if (file != nullptr && file->registrations == 0) file = nullptr;  // it may be out of its place
  if (file != nullptr) exposed.file = file->file.pages.begin;
  try {
    exposed_.insert_or_assign(&region, exposed);
    covered_.add(exposed.begin, exposed.end);
  } catch (const std::bad_alloc&) {
    // What peers may write to is no longer known, so that nothing moves from now on.
    exposed_.erase(&region);
    covered_.cover_all();
    return {};
  }
  if (file == nullptr) return {};
  ++file->holds;
  const RegionFile& its = file->file;
  return Shown{file->place,       file->number, its.pages.begin,
               its.pages.bytes(), its.inode,    its.fd.get()};
}

std::optional<std::size_t> SharedRegions::place_of(const verbs::MemoryRegion& region) const {
  if (!is_enabled()) return {};
  const std::lock_guard lock(mutex_);
  const auto entry = exposed_.find(&region);
  if (entry == exposed_.end() || !entry->second.file) return {};
  return files_.at(*entry->second.file).place;
}

void SharedRegions::withdraw(const verbs::MemoryRegion& region) {
  if (!is_enabled()) return;
  const std::lock_guard lock(mutex_);
  const auto entry = exposed_.find(&region);
  if (entry == exposed_.end()) return;
  drop(entry->second);
  exposed_.erase(entry);
}

void SharedRegions::forget(const void* owner) {
  if (!is_enabled()) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(exposed_, [&](const auto& entry) {
    if (entry.second.owner != owner) return false;
    drop(entry.second);
    return true;
  });
}

void SharedRegions::drop(const Exposed& exposed) {
  covered_.remove(exposed.begin, exposed.end);
  if (exposed.file) drop(*exposed.file);
}

// The caller holds mutex_. A forked child has no files.
void SharedRegions::drop(std::uint64_t begin) {
  const auto file = files_.find(begin);
  if (file != files_.end() && file->second.holds > 0) --file->second.holds;
}

void SharedRegions::tidy() {
  if (!is_enabled()) return;
  const std::lock_guard moving(moving_mutex_);
  move_idle_back();
}

// The caller holds moving_mutex_.
void SharedRegions::move_idle_back() {
  Files idle;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = files_.begin(); at != files_.end();) {
      const auto next = std::next(at);
      if (at->second.holds == 0) idle.insert(files_.extract(at));
      at = next;
    }
  }
  for (auto at = idle.begin(); at != idle.end();) {
    const File& file = at->second;
    const auto next = std::next(at);
    if (move_back(file.file)) {
      shared_pages[file.place].end.store(0);
      --file_count_;
      file_bytes_ -= file.file.pages.bytes();
    } else {
      const std::lock_guard lock(mutex_);
      files_.insert(idle.extract(at));
    }
    at = next;
  }
}

// A file's pages keep their content when a process gives them up, so the file must give them up.
// The kernel refuses MADV_FREE for them, which allows what MADV_DONTNEED does.
bool SharedRegions::advise(void* memory, std::size_t bytes, int advice, int* result) {
  constexpr int dontneed_locked = 24;  // MADV_DONTNEED_LOCKED of Linux 5.18
  if (advice != MADV_DONTNEED && advice != MADV_FREE && advice != dontneed_locked) return false;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const PageRange given{begin, begin + bytes};
  bool has_shared = false;
  for (const SharedPages& shared : std::span(shared_pages).first(shared_places.load())) {
    if (!given.overlaps({shared.begin.load(), shared.end.load()})) continue;
    if (!std::exchange(has_shared, true)) {
      const int kind = advice == MADV_FREE ? MADV_DONTNEED : advice;
      *result = static_cast<int>(syscall(SYS_madvise, memory, bytes, kind));
      if (*result != 0) return true;
    }
    give_up(shared, given);
  }
  return has_shared;
}

SharedRegions::Counters SharedRegions::counters() const {
  Counters counters{file_count_, file_bytes_, {}};
  std::copy(unshared_.begin(), unshared_.end(), counters.unshared.begin());
  return counters;
}

// The child copies what it shares with its parent before either goes on, so that it finds what the
// parent had when it called fork(2).
void SharedRegions::before_fork() {
  moving_mutex_.lock();
  mutex_.lock();
  if (files_.empty()) return;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;  // then the parent goes on at once
  child_is_ready_.reset(ends[0]);
  child_tells_.reset(ends[1]);
}

void SharedRegions::after_fork_in_parent() {
  child_tells_.reset();
  if (child_is_ready_) await_child();
  child_is_ready_.reset();
  mutex_.unlock();
  moving_mutex_.unlock();
}

// Ends when the child has copied everything or is gone.
void SharedRegions::await_child() {
  for (char progress = 0; progress != 'e';) {
    pollfd ready{child_is_ready_.get(), POLLIN, 0};
    const int count = poll(&ready, 1, child_patience_milliseconds);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || read(child_is_ready_.get(), &progress, 1) <= 0) return;
  }
}

void SharedRegions::tell_parent() const {
  const char progress = files_.empty() ? 'e' : 'p';
  if (child_tells_) static_cast<void>(write(child_tells_.get(), &progress, 1));
}

// The child keeps the end that its parent reads until it has written the last time: a pipe that
// nobody reads would end it with a signal.
void SharedRegions::after_fork_in_child() {
  while (!files_.empty()) {
    copy_for_child(files_.begin()->second.file);
    files_.erase(files_.begin());
    tell_parent();
  }
  child_tells_.reset();
  child_is_ready_.reset();
  for (SharedPages& place : shared_pages) place.end.store(0);
  exposed_.clear();
  covered_ = {};
  own_threads_ = 0;
  file_count_ = file_bytes_ = 0;
  mutex_.unlock();
  moving_mutex_.unlock();
}

}  // namespace tulle::live
