#include "cohort/cluster/tpu_environment.h"

#include <nlohmann/json.hpp>

#include "cohort/base/environment.h"
#include "cohort/base/error.h"

namespace cohort::cluster {
namespace {

using Json = nlohmann::json;

constexpr const char* kConfig = "TPU_CONFIG";

[[noreturn]] void refuse(const std::string& what) {
  throw ValueError("environment variable TPU_CONFIG", cat(what, "; correct or unset ", kConfig));
}

Json parse_config(const std::string& text) {
  Json config;
  try {
    config = Json::parse(text);
  } catch (const Json::parse_error& error) {
    refuse(cat("malformed JSON: ", error.what(), ", got ", text));
  }
  if (!config.is_object()) refuse(cat("expected a JSON object, got ", text));
  return config;
}

/// The text under `key`; "" if there is none.
std::string text_in(const Json& config, const char* key) {
  const auto entry = config.find(key);
  if (entry == config.end() || entry->is_null()) return "";
  if (!entry->is_string()) {
    refuse(cat("expected a string under \"", key, "\", got ", entry->dump()));
  }
  return entry->get<std::string>();
}

TPUInEnvironment tpu_in_config(const std::string& text) {
  const Json config = parse_config(text);
  TPUInEnvironment found{.tpu = text_in(config, "tpu_node_name"),
                         .zone = text_in(config, "zone"),
                         .project = text_in(config, "project")};
  if (!found.tpu.empty()) return found;
  refuse(cat("Please provide a TPU Name: expected one under \"tpu_node_name\", got ", text));
}

}  // namespace

TPUInEnvironment tpu_in_environment() {
  for (const char* name : {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"}) {
    if (const auto text = environment::text(name)) return {.tpu = *text};
  }
  if (const auto text = environment::text(kConfig)) return tpu_in_config(*text);
  throw ValueError("TPUClusterResolver",
                   "Please provide a TPU Name: there is no TPU here to find, and TPU_NAME is not "
                   "set; \"local:XxYxZxC\" simulates one on this machine's cores, such as "
                   "\"local:2x2x1x2\"");
}

}  // namespace cohort::cluster
