#include "study/scenario/model_file.h"

#include <array>

#include "study/scenario/build.h"
#include "study/scenario/profile.h"

namespace tulle::scenario {
namespace {

void read_model(TableReader table, workload::TransformerModel& model) {
  const auto count = [&](std::string_view key) {
    return static_cast<std::uint32_t>(table.integer(key, 0, 0, 10'000'000));
  };
  model.layers = count("layers");
  model.hidden = count("hidden");
  model.feed_forward = count("feed_forward");
  model.heads = count("heads");
  model.key_value_heads = count("key_value_heads");
  model.sequence = count("sequence");
  model.experts = count("experts");
  model.experts_of_token = count("experts_of_token");
  model.shared_experts = static_cast<std::uint32_t>(table.integer("shared_experts", 0, 0, 1'000));
  model.skew = table.number("skew", 0, 0, 10);
  table.finish();
}

void read_gpu(TableReader& table, workload::Gpu& gpu) {
  gpu.operations_per_second =
      table.number("operations_per_second", gpu.operations_per_second, 0, 1e21);
  gpu.memory_bytes_per_second =
      table.number("memory_bytes_per_second", gpu.memory_bytes_per_second, 0, 1e21);
  gpu.efficiency = table.number("efficiency", gpu.efficiency, 0, 1);
}

void read_parallel(TableReader table, workload::TrainingSettings& settings) {
  const auto count = [&](std::string_view key, std::uint32_t otherwise) {
    return static_cast<std::uint32_t>(table.integer(key, otherwise, 1, 1'000'000));
  };
  settings.tensor = count("tensor", 1);
  settings.pipeline = count("pipeline", 1);
  settings.expert = count("expert", 1);
  settings.sequence = table.boolean("sequence", false);
  settings.micro_batch = count("micro_batch", 1);
  settings.micro_batches = count("micro_batches", 1);
  settings.buckets = count("buckets", settings.buckets);
  settings.value_bytes = count("value_bytes", settings.value_bytes);
  settings.gradient_bytes = count("gradient_bytes", settings.gradient_bytes);
  settings.weight_bytes = count("weight_bytes", settings.weight_bytes);
  settings.optimizer_bytes = static_cast<std::uint32_t>(
      table.integer("optimizer_bytes", settings.optimizer_bytes, 0, 1'000'000));
  table.finish();
}

constexpr std::array<std::string_view, 2> arrival_names = {"poisson", "fixed"};

void read_serving(TableReader table, workload::ServingSettings& settings) {
  const auto count = [&](std::string_view key, std::uint32_t otherwise, std::int64_t most) {
    return static_cast<std::uint32_t>(table.integer(key, otherwise, 0, most));
  };
  settings.requests = count("requests", settings.requests, 1'000'000);
  settings.rate = table.number("rate", settings.rate, 0, 1e9);
  settings.is_poisson = table.choice<std::size_t>("arrivals", arrival_names, 0) == 0;
  settings.prompt = count("prompt", settings.prompt, 10'000'000);
  settings.output = count("output", settings.output, 10'000'000);
  settings.prefill = count("prefill", settings.prefill, 65'536);
  settings.tensor = count("tensor", settings.tensor, 1'024);
  settings.batch = count("batch", settings.batch, 1'000'000);
  settings.value_bytes = count("value_bytes", settings.value_bytes, 16);
  table.finish();
}

}  // namespace

Result<ModelFile> parse_model_file(std::string_view text, const std::string& path,
                                   const std::string& folder) {
  auto root = parse_toml(text, path);
  if (!root) return root.error();
  Findings findings(path);
  TableReader file({&*root}, "", 0, findings);
  file.text("title", "");
  ModelFile model;
  read_model(file.table("model"), model.step.model);
  TableReader gpu = file.table("gpu");
  workload::Gpu& of_gpu = model.step.gpu;
  read_profile(gpu, folder, "gpus", [&](TableReader& profile) { read_gpu(profile, of_gpu); });
  read_gpu(gpu, of_gpu);
  gpu.finish();
  read_parallel(file.table("parallel"), model.step);
  read_serving(file.table("serve"), model.serving);
  file.finish();
  if (findings.any()) return Error{findings.first()};
  model.serving.model = model.step.model;
  model.serving.gpu = of_gpu;
  return model;
}

Result<ModelFile> read_model_file(const std::string& path, const std::string& folder) {
  auto text = read_file(path);
  if (!text) return text.error();
  return parse_model_file(*text, path, folder);
}

}  // namespace tulle::scenario
