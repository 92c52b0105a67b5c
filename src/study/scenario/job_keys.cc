#include "study/scenario/job_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/near_names.h"
#include "base/quoted.h"
#include "study/report/quantity.h"
#include "study/scenario/reading.h"
#include "study/scenario/trace_files.h"
#include "study/workload/collectives.h"
#include "study/workload/experts.h"

namespace tulle::scenario {
namespace {

namespace fs = std::filesystem;

Result<JobKeys> collective_keys(const workload::NamedCollective& named, std::string_view bytes) {
  if (!report::parse_bytes(bytes)) {
    return Error{
        fmt::format("{} is no amount of bytes, as in {}:256MiB", tulle::quoted(bytes), named.name)};
  }
  return JobKeys{fmt::format("{}, {}", named.title, bytes),
                 {{"pattern", "collective"},
                  {"collective", std::string(workload::name_of(named.collective))},
                  {"bytes", std::string(bytes)}}};
}

Result<std::string> find_model(std::string_view model, const JobFolders& folders) {
  const std::string name(model);
  if (model.ends_with(".toml")) return find_file(folders.files.string(), name);
  const std::string path = (folders.models / (name + ".toml")).string();
  if (is_there(path)) return path;
  const auto names = toml_names(folders.models.string());
  return Error{fmt::format(
      "no model {}{}", tulle::quoted(name),
      did_you_mean(name, names, fmt::format("the models are {}", fmt::join(names, ", "))))};
}

// A file of a model says how it is trained ("step") and how it is served ("serve").
Result<JobKeys> model_keys(std::string_view pattern, std::string_view model,
                           const JobFolders& folders) {
  fs::path path = model.ends_with(".toml") ? folders.files / model
                                           : folders.models / fmt::format("{}.toml", model);
  if (folders.are_whole) {
    auto found = find_model(model, folders);
    if (!found) return found.error();
    path = *found;
  }
  const std::string_view title = pattern == "step" ? "A training step of" : "Serving";
  return JobKeys{fmt::format("{} {}", title, path.stem().string()),
                 {{"pattern", std::string(pattern)}, {pattern, path.string()}}};
}

Result<JobKeys> expert_keys(std::string_view operation) {
  if (std::ranges::find(workload::expert_operation_names, operation) ==
      workload::expert_operation_names.end()) {
    return Error{fmt::format("there is no moe:{}; take moe:{}", one_line(operation),
                             fmt::join(workload::expert_operation_names, ", moe:"))};
  }
  return JobKeys{fmt::format("Mixture of experts, {}", operation),
                 {{"pattern", "experts"}, {"operation", std::string(operation)}}};
}

// Returns true if a workload names a trace: by its suffix, or because there is such a file.
bool is_trace(const std::string& workload, const JobFolders& folders) {
  if (workload.empty() || workload.ends_with(".toml") || workload.ends_with(".csv")) return false;
  constexpr std::array<std::string_view, 4> suffixes = {".et", ".json", ".goal", ".cm"};
  return std::ranges::any_of(suffixes,
                             [&](std::string_view suffix) { return workload.ends_with(suffix); }) ||
         !find_trace((folders.files / workload).string()).empty();
}

}  // namespace

Result<std::optional<JobKeys>> keys_of_job(const std::string& workload, const JobFolders& folders) {
  const auto with = [](Result<JobKeys> keys) -> Result<std::optional<JobKeys>> {
    if (!keys) return keys.error();
    return std::optional(std::move(*keys));
  };
  const std::size_t colon = workload.find(':');
  const bool has_more = colon != std::string::npos;
  const std::string_view before = std::string_view(workload).substr(0, colon);
  const std::string_view after =
      has_more ? std::string_view(workload).substr(colon + 1) : std::string_view();
  const auto collective =
      std::ranges::find(workload::named_collectives(), before, &workload::NamedCollective::name);
  if (collective != workload::named_collectives().end()) {
    return with(collective_keys(*collective, has_more ? after : "256MiB"));
  }
  if (before == "step" && has_more) return with(model_keys("step", after, folders));
  if (before == "serve" && has_more) return with(model_keys("serve", after, folders));
  if (before == "moe" && has_more) return with(expert_keys(after));
  if (!is_trace(workload, folders)) return std::optional<JobKeys>();
  return with(JobKeys{fmt::format("The trace {}", one_line(fs::path(workload).filename().string())),
                      {{"pattern", "trace"}, {"trace", (folders.files / workload).string()}}});
}

std::string job_names() {
  std::string names;
  for (const workload::NamedCollective& each : workload::named_collectives())
    names += std::string(each.name) + ", ";
  return names +
         "with bytes as in allreduce:256MiB; moe:dispatch, moe:combine, moe:layer; step:MODEL; "
         "serve:MODEL; and traces";
}

}  // namespace tulle::scenario
