#pragma once

#include <memory>
#include <unordered_map>

namespace tulle::device {

// The objects of one kind that an adapter has created. They are used on the control path only.
template <typename T>
class Owned {
 public:
  T* add(std::unique_ptr<T> object) {
    T* raw = object.get();
    objects_.emplace(raw, std::move(object));
    return raw;
  }
  void destroy(T* object) { objects_.erase(object); }
  std::size_t size() const { return objects_.size(); }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& [raw, object] : objects_) visit(*raw);
  }

 private:
  std::unordered_map<T*, std::unique_ptr<T>> objects_;
};

}  // namespace tulle::device
