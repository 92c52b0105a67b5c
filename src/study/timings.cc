#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "study/simulate.h"

namespace tulle::study {

Result<void> write_timings(const std::string& path, const Timings& timings) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  nlohmann::ordered_json json;
  json["setup_s"] = timings.setup_s;
  json["run_s"] = timings.run_s;
  json["run_cpu_s"] = timings.run_cpu_s;
  json["user_s"] = static_cast<double>(usage.ru_utime.tv_sec) +
                   static_cast<double>(usage.ru_utime.tv_usec) * 1e-6;
  json["peak_bytes"] = usage.ru_maxrss * 1'024;
  std::ofstream out(path);
  out << json.dump(2) << "\n";
  out.close();
  if (!out) return Error{fmt::format("cannot write {}: {}", path, std::strerror(errno))};
  return {};
}

}  // namespace tulle::study
