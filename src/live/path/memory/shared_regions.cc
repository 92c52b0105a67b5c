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
#include <vector>

#include "base/write_best_effort.h"

namespace tulle::live {
namespace {

// The pages that are shared now, for advise(), which takes no lock. A place is free while `end` is
// 0. Each is written under the lock of SharedRegions.
struct SharedPages {
  std::atomic<std::uint64_t> begin{0};
  std::atomic<std::uint64_t> end{0};
  std::atomic<int> fd{-1};
  std::atomic<dev_t> device{0};  // of the file
  std::atomic<std::uint64_t> inode{0};
  std::atomic<bool> moves{false};  // to the file or back, at this moment

  bool overlaps(PageRange pages) const { return pages.overlaps({begin.load(), end.load()}); }
};
std::array<SharedPages, SharedRegions::files_max> shared_pages;
std::atomic<std::size_t> shared_places{0};  // no place behind these was ever taken
std::atomic<std::uint32_t> advisers{0};     // calls of advise() that are under way
thread_local std::uint32_t own_advice = 0;  // of these, the calling thread's

void enter_advice() { ++own_advice, ++advisers; }
void leave_advice() { --advisers, --own_advice; }

std::span<SharedPages> places_of_files() {
  return std::span(shared_pages).first(shared_places.load());
}

// Takes a free place for pages that are about to move, and returns it.
std::size_t publish(const RegionFile& file) {
  std::size_t place = 0;
  while (shared_pages[place].end.load() != 0) ++place;
  SharedPages& free = shared_pages[place];
  free.moves.store(true);
  free.begin.store(file.pages.begin);
  free.fd.store(file.fd.get());
  free.device.store(file.fd.device());
  free.inode.store(file.fd.inode());
  free.end.store(file.pages.end);
  shared_places.store(std::max(shared_places.load(), place + 1));
  return place;
}

void pause_shortly() {
  const timespec pause{0, 50'000};
  nanosleep(&pause, nullptr);
}

// Returns when each other thread's call of advise() that was under way has ended. Those that come
// later see what the caller has written to shared_pages before. A thread that is stopped may stay
// in its call: returns false then.
bool wait_for_advisers() {
  constexpr int pauses_max = 20'000;  // about a second
  for (int pauses = 0; advisers.load() != own_advice; ++pauses) {
    if (pauses == pauses_max) return false;
    pause_shortly();
  }
  return true;
}

// Frees the memory of those of the shared pages that are `given`, which then are zeros. The program
// may have closed the descriptor, and may have another file under its number.
void give_up(const SharedPages& shared, PageRange given) {
  const std::uint64_t begin = shared.begin.load();
  const PageRange pages{std::max(begin, given.begin), std::min(shared.end.load(), given.end)};
  const int fd = shared.fd.load();
  if (pages.begin >= pages.end) return;
  if (!is_open_on(fd, shared.device.load(), shared.inode.load())) return;
  fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(pages.begin - begin),
            static_cast<off_t>(pages.bytes()));
}

// The kernel takes whole pages.
PageRange pages_of_advice(std::uint64_t begin, std::uint64_t bytes) {
  constexpr std::uint64_t mask = region_page_bytes - 1;
  const std::uint64_t rounded = bytes + std::min(~bytes, mask);
  const std::uint64_t end = begin + (rounded & ~mask);
  return {begin, std::max(begin, end)};
}

// Returns true if this process may have one more file, and descriptors are not scarce.
bool has_room(std::size_t files) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  return files < std::min<std::uint64_t>(SharedRegions::files_max, limit.rlim_cur / 4);
}

// Returns the number of this process's threads, or 0 if it is unknown. The folder has one link for
// each, and two for itself.
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
  exposed_.clear();
  covered_ = {};
  for (auto& [begin, file] : files_) file.holds = 0;
  tidy();
}

SharedRegions& SharedRegions::of_process() {
  static SharedRegions* const only = new SharedRegions;
  return *only;
}

// The preloaded library passes on what it is told here (shim/advice).
bool SharedRegions::enable() {
  using Advise = int(void*, std::size_t, int, Madvise*);
  using Announce = void(Advise*);
  auto* const announce = reinterpret_cast<Announce*>(dlsym(RTLD_DEFAULT, "tulle_pass_advice_to"));
  if (announce == nullptr) return false;
  announce(&SharedRegions::advise);
  is_enabled_ = true;
  return true;
}

// Returns the file with the most of these pages that is in its place, or null.
SharedRegions::File* SharedRegions::find(PageRange pages) {
  File* best = nullptr;
  std::uint64_t most = 0;
  auto at = files_.upper_bound(pages.begin);
  if (at != files_.begin()) --at;
  for (; at != files_.end() && at->first < pages.end; ++at) {
    const PageRange& its = at->second.file.pages;
    if (!its.overlaps(pages) || at->second.is_displaced) continue;
    const std::uint64_t common = std::min(its.end, pages.end) - std::max(its.begin, pages.begin);
    if (common > most) most = common, best = &at->second;
  }
  return best;
}

bool SharedRegions::overlaps_file(PageRange pages) const {
  return std::ranges::any_of(
      files_, [&](const auto& entry) { return entry.second.file.pages.overlaps(pages); });
}

// Returns true if no region has any of the file's pages. The caller holds mutex_.
bool SharedRegions::is_idle(const File& file) const {
  const PageRange& pages = file.file.pages;
  return file.holds == 0 && !covered_.overlaps(pages.begin, pages.end);
}

// The caller holds mutex_.
SharedRegions::Hold SharedRegions::hold(File& file) {
  ++file.holds;
  ++file.registrations;
  file.is_stuck = false;
  return {*this, file.file.pages.begin};
}

// Holds the file that has some of the pages. The caller holds moving_mutex_ and has called
// find_displaced().
SharedRegions::Hold SharedRegions::hold_file_with(PageRange pages) {
  const std::lock_guard lock(mutex_);
  File* const file = find(pages);
  return file != nullptr ? hold(*file) : Hold();
}

// Asks the kernel whether the files with some of these bytes are still mapped there. The caller
// holds moving_mutex_, so that the files stay meanwhile.
void SharedRegions::find_displaced(PageRange bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (!overlaps_file(bytes)) return;
  }
  const auto mappings = find_file_mappings();
  const std::lock_guard lock(mutex_);
  for (auto& [begin, file] : files_) {
    if (file.is_displaced || !file.file.pages.overlaps(bytes)) continue;
    if (mappings && mappings->has_in_place(file.file)) continue;
    file.is_displaced = true;
    ++displacements_;
  }
}

bool SharedRegions::is_displaced(std::size_t place) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(files_, [&](const auto& entry) {
    return entry.second.place == place && entry.second.is_displaced;
  });
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

struct SharedRegions::Others {
  bool exist = false;
  std::optional<WriterHold> hold;  // absent: they cannot be suspended

  explicit Others(int own_threads)
      : exist(threads() != 1 + static_cast<std::uint64_t>(own_threads)) {
    if (!exist) return;
    auto created = WriterHold::create();
    if (created) hold.emplace(std::move(*created));
  }
  OtherThreads view() { return {exist, hold ? &*hold : nullptr}; }
};

// Returns what keeps the pages where they are, or nothing. The kernel is asked last, since that
// takes longest.
std::optional<SharedRegions::Unshared> SharedRegions::reason_to_stay(PageRange pages,
                                                                     const Others& others) {
  if (others.exist && !others.hold) return Unshared::threads;
  {
    const std::lock_guard lock(mutex_);
    if (overlaps_file(pages) || covered_.overlaps(pages.begin, pages.end)) {
      return Unshared::registered;
    }
    if (!has_room(files_.size())) return Unshared::room;
  }
  if (descriptors_hold_pages(others.exist)) return Unshared::devices;
  switch (obstacle_to_moving(pages.begin, pages.end)) {
    case Obstacle::none:
      return {};
    case Obstacle::devices_write:
      return Unshared::devices;
    case Obstacle::too_many:
      return Unshared::room;
    default:
      return Unshared::kind;
  }
}

SharedRegions::Hold SharedRegions::stays(Unshared reason) {
  ++unshared_[static_cast<std::size_t>(reason)];
  return {};
}

// The caller holds moving_mutex_.
SharedRegions::Hold SharedRegions::move(PageRange pages) {
  Others others(own_threads_.load());
  const Moving moving(*this, pages);
  if (const auto reason = reason_to_stay(pages, others)) return stays(*reason);
  auto file = make_region_file(pages);
  if (!file) return stays(Unshared::room);
  // Nothing may fail once the pages have moved.
  Files made;
  File& moved = made.try_emplace(pages.begin).first->second;
  moved.place = publish(*file);
  SharedPages& shared = shared_pages[moved.place];
  const bool has_moved = wait_for_advisers() && move_to_file(*file, others.view());
  shared.end.store(has_moved ? file->pages.end : 0);
  shared.moves.store(false);
  if (!has_moved) return stays(Unshared::room);
  moved.file = std::move(*file);
  const std::lock_guard lock(mutex_);
  moved.number = ++numbers_;
  ++file_count_;
  file_bytes_ += moved.file.pages.bytes();
  files_.merge(made);
  return hold(moved);
}

SharedRegions::Hold SharedRegions::share(const void* memory, std::uint64_t bytes) {
  if (!is_enabled()) return {};
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  constexpr std::uint64_t mask = region_page_bytes - 1;
  const PageRange pages{(begin + mask) & ~mask, (begin + bytes) & ~mask};
  const std::lock_guard moving(moving_mutex_);
  find_displaced({begin, begin + bytes});
  if (pages.begin < begin || pages.begin >= pages.end) return {};
  move_idle_back();
  Hold hold = hold_file_with(pages);
  return hold ? std::move(hold) : move(pages);
}

std::optional<SharedRegions::Shown> SharedRegions::expose(const void* owner,
                                                          const verbs::MemoryRegion& region) {
  if (!is_enabled()) return {};
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
  // A file that no registration has looked at may be out of its place, unless the region had it.
  const auto before = exposed_.find(&region);
  const bool had_it =
      file != nullptr && before != exposed_.end() && before->second.file == file->file.pages.begin;
  if (file != nullptr && file->registrations == 0 && !had_it) file = nullptr;
  if (file != nullptr) {
    exposed.file = file->file.pages.begin;
    ++file->holds;
  }
  if (before != exposed_.end()) drop(before->second);  // this call replaces the earlier one
  try {
    exposed_.insert_or_assign(&region, exposed);
    covered_.add(exposed.begin, exposed.end);
  } catch (const std::bad_alloc&) {
    // Nothing moves from now on, since it is no longer known where peers may write.
    exposed_.erase(&region);
    covered_.cover_all();
    return {};
  }
  if (file == nullptr) return {};
  const RegionFile& its = file->file;
  return Shown{file->place,       file->number,   its.pages.begin,
               its.pages.bytes(), its.fd.inode(), its.fd.get()};
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
void SharedRegions::move_idle_back() try {
  std::vector<Files::iterator> idle;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = files_.begin(); at != files_.end(); ++at) {
      if (is_idle(at->second)) idle.push_back(at);
    }
  }
  if (idle.empty()) return;
  const auto mappings = find_file_mappings();
  if (!mappings) return;
  Others others(own_threads_.load());
  for (const auto at : idle) release(at, *mappings, others);
} catch (const std::bad_alloc&) {
  // The next call tries again.
}

// Moves the pages of a file back and gives the file up, if still no region has any of its pages.
void SharedRegions::release(Files::iterator at, const FileMappings& mappings, Others& others) {
  File& file = at->second;
  SharedPages& shared = shared_pages[file.place];
  const Moving moving(*this, file.file.pages);
  {
    const std::lock_guard lock(mutex_);
    if (!is_idle(file)) return;
  }
  const auto own = mappings.in_place(file.file);
  if (!own.empty() && file.is_stuck) return free_unmapped(file.file, mappings.of(file.file));
  shared.moves.store(true);
  const bool may_move = !mappings.devices_may_write && !descriptors_hold_pages(others.exist);
  const bool is_free = wait_for_advisers();
  file.is_stuck =
      !own.empty() && !(may_move && is_free && move_back(file.file, own, others.view()));
  const bool is_over = is_free && !file.is_stuck;
  if (is_over) shared.end.store(0);
  shared.moves.store(false);
  if (!is_over) return;
  --file_count_;
  file_bytes_ -= file.file.pages.bytes();
  const std::lock_guard lock(mutex_);
  files_.erase(at);
}

// A file's pages keep their content when a process gives them up, so the file must give them up.
// The kernel refuses MADV_FREE for them, which allows what MADV_DONTNEED does. While pages move,
// the caller waits, and no pages begin to move before its call has ended: what it gives up would
// otherwise come back with the copy. A thread that moves pages allocates nothing meanwhile, so that
// it does not wait for this.
int SharedRegions::advise(void* memory, std::size_t bytes, int advice, Madvise* next) {
  constexpr int dontneed_locked = 24;  // MADV_DONTNEED_LOCKED of Linux 5.18
  if (advice != MADV_DONTNEED && advice != MADV_FREE && advice != dontneed_locked) {
    return next(memory, bytes, advice);
  }
  const PageRange given = pages_of_advice(reinterpret_cast<std::uintptr_t>(memory), bytes);
  const auto is_given = [&](const SharedPages& shared) { return shared.overlaps(given); };
  const auto moves = [&](const SharedPages& shared) {
    return is_given(shared) && shared.moves.load();
  };
  enter_advice();
  while (std::ranges::any_of(places_of_files(), moves)) {
    leave_advice();
    pause_shortly();
    enter_advice();
  }
  const bool has_shared = std::ranges::any_of(places_of_files(), is_given);
  const int result =
      next(memory, bytes, has_shared && advice == MADV_FREE ? MADV_DONTNEED : advice);
  const int error = errno;
  // Where parts are not mapped, the kernel has done the rest.
  if (has_shared && (result == 0 || error == ENOMEM)) {
    for (const SharedPages& shared : places_of_files()) give_up(shared, given);
  }
  leave_advice();
  errno = error;
  return result;
}

SharedRegions::Counters SharedRegions::counters() const {
  Counters counters{file_count_, file_bytes_, {}};
  std::copy(unshared_.begin(), unshared_.end(), counters.unshared.begin());
  return counters;
}

// The child copies what it shares with its parent before either continues, so that it finds what
// the parent had when it called fork(2).
void SharedRegions::before_fork() {
  moving_mutex_.lock();
  mutex_.lock();
  if (files_.empty()) return;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;  // then the parent continues at once
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
  if (child_tells_) write_best_effort(child_tells_.get(), &progress, 1);
}

// The child keeps the end that its parent reads until it has written the last time: a pipe that
// nobody reads would end it with a signal.
void SharedRegions::after_fork_in_child() {
  while (!files_.empty()) {
    copy_for_child(files_.begin()->second.file, [this] { tell_parent(); });
    files_.erase(files_.begin());
    tell_parent();
  }
  child_tells_.reset();
  child_is_ready_.reset();
  for (SharedPages& place : shared_pages) place.end.store(0), place.moves.store(false);
  advisers = own_advice;
  exposed_.clear();
  covered_ = {};
  own_threads_ = 0;
  file_count_ = file_bytes_ = 0;
  mutex_.unlock();
  moving_mutex_.unlock();
}

}  // namespace tulle::live
