// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/config_reader.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <limits>
#include <set>
#include <sstream>

#include "agent/lib/units.hpp"

namespace weft::agent {
namespace {

constexpr std::size_t kComplaintsMax = 20;

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

bool is_clean(const std::string& text, std::size_t bytes_max) {
  return text.size() <= bytes_max && std::none_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
         });
}

}  // namespace

struct ConfigReader::Document {
  std::string name;
  toml::table root;
  std::set<std::string, std::less<>> known;
  std::vector<std::string> complaints;
  std::vector<std::pair<std::string, std::string>> effective;

  // The value of a dotted key that is a plain value; null when it is missing.
  const toml::node* find(std::string_view key) const {
    const toml::node* node = &root;
    while (node != nullptr && !key.empty()) {
      const std::size_t dot = key.find('.');
      const toml::table* table = node->as_table();
      node = table == nullptr ? nullptr : table->get(key.substr(0, dot));
      key = dot == std::string_view::npos ? std::string_view() : key.substr(dot + 1);
    }
    return node;
  }

  std::string place(const toml::node& node) const {
    return name + ":" + std::to_string(node.source().begin.line);
  }

  static std::string shown(const toml::node& node) {
    std::ostringstream text;
    node.visit([&](const auto& value) { text << value; });
    return text.str();
  }

  void complain_unknown(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      const std::string path = prefix + std::string(key.str());
      const bool is_prefix = std::any_of(known.begin(), known.end(), [&](const std::string& k) {
        return k.starts_with(path + ".");
      });
      if (node.is_table() && is_prefix) {
        complain_unknown(*node.as_table(), path + ".");
      } else if (!known.contains(path)) {
        complaints.push_back(place(node) + ": " + path + ": unknown key");
      }
    }
  }
};

ConfigReader::ConfigReader(std::unique_ptr<Document> document) : document_(std::move(document)) {}
ConfigReader::ConfigReader(ConfigReader&&) noexcept = default;
ConfigReader::~ConfigReader() = default;

Result<ConfigReader> ConfigReader::open(std::string_view toml, std::string name) {
  auto document = std::make_unique<Document>();
  try {
    document->root = toml::parse(toml);
  } catch (const toml::parse_error& error) {
    return failure(ErrorCode::kConfig, Stage::kConfig,
                   name + ":" + std::to_string(error.source().begin.line) + ": " +
                       std::string(error.description()));
  }
  document->name = std::move(name);
  return ConfigReader(std::move(document));
}

bool ConfigReader::present(const char* key) const { return document_->find(key) != nullptr; }

void ConfigReader::note(const char* key, std::string value) {
  document_->known.emplace(key);
  document_->effective.emplace_back(key, std::move(value));
}

void ConfigReader::wrong(const char* key, const std::string& expected) {
  const toml::node* node = document_->find(key);
  document_->complaints.push_back(document_->place(*node) + ": " + key + " = " +
                                  Document::shown(*node) + ": expected " + expected);
}

void ConfigReader::take_texts(const char* key, std::vector<std::string>& target,
                              std::size_t count_max, std::size_t bytes_max) {
  if (const toml::node* node = document_->find(key)) {
    const toml::array* array = node->as_array();
    bool clean = array != nullptr && array->size() <= count_max;
    std::vector<std::string> texts;
    for (std::size_t i = 0; clean && i < array->size(); ++i) {
      const auto value = array->get(i)->value_exact<std::string>();
      clean = value && is_clean(*value, bytes_max);
      if (clean) texts.push_back(*value);
    }
    if (clean) {
      target = std::move(texts);
    } else {
      wrong(key, "an array of at most " + std::to_string(count_max) + " texts, each of at most " +
                     std::to_string(bytes_max) + " bytes without control characters");
    }
  }
  std::string shown;
  for (const std::string& text : target) {
    shown += shown.empty() ? "\"" : ", \"";
    for (const char c : text) {
      if (c == '"' || c == '\\') shown += '\\';
      shown += c;
    }
    shown += '"';
  }
  note(key, "[" + shown + "]");
}

void ConfigReader::take_text(const char* key, std::string& target, std::size_t bytes_max) {
  if (const toml::node* node = document_->find(key)) {
    const auto value = node->value_exact<std::string>();
    if (value && is_clean(*value, bytes_max)) {
      target = *value;
    } else {
      wrong(key,
            "text of at most " + std::to_string(bytes_max) + " bytes without control characters");
    }
  }
  note(key, quoted(target));
}

void ConfigReader::take_name(const char* key, std::string& target, std::size_t bytes_max) {
  if (const toml::node* node = document_->find(key)) {
    const auto value = node->value_exact<std::string>();
    const bool clean = value && value->size() <= bytes_max &&
                       std::all_of(value->begin(), value->end(), [](char c) {
                         return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                                (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
                       });
    if (clean) {
      target = *value;
    } else {
      wrong(key, "a name of at most " + std::to_string(bytes_max) +
                     " letters, digits, '.', '_' and '-'");
    }
  }
  note(key, quoted(target));
}

void ConfigReader::take_flag(const char* key, bool& target) {
  if (const toml::node* node = document_->find(key)) {
    if (const auto value = node->value_exact<bool>()) {
      target = *value;
    } else {
      wrong(key, "true or false");
    }
  }
  note(key, target ? "true" : "false");
}

void ConfigReader::take_integer(const char* key, std::int64_t& target, std::int64_t least,
                                std::int64_t most) {
  if (const toml::node* node = document_->find(key)) {
    const auto value = node->value_exact<std::int64_t>();
    if (value && *value >= least && *value <= most) {
      target = *value;
    } else {
      wrong(key, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
  }
  note(key, std::to_string(target));
}

void ConfigReader::take_fraction(const char* key, double& target) {
  if (const toml::node* node = document_->find(key)) {
    // An integer 1 is as good as 1.0; NaN fails both comparisons.
    const auto value = node->is_number() ? node->value<double>() : std::nullopt;
    if (value && *value > 0 && *value <= 1) {
      target = *value;
    } else {
      wrong(key, "a number above 0 and at most 1");
    }
  }
  std::ostringstream text;
  text << target;
  note(key, text.str());
}

void ConfigReader::take_bytes(const char* key, std::uint64_t& target, std::uint64_t least,
                              std::uint64_t most) {
  if (const toml::node* node = document_->find(key)) {
    std::optional<std::uint64_t> value;
    if (const auto text = node->value_exact<std::string>()) {
      if (const auto parsed = parse_bytes(*text)) value = *parsed;
    } else if (const auto number = node->value_exact<std::int64_t>(); number && *number >= 0) {
      value = static_cast<std::uint64_t>(*number);
    }
    if (value && *value >= least && *value <= most) {
      target = *value;
    } else {
      wrong(key,
            "a size such as \"64MiB\", from " + format_bytes(least) + " to " + format_bytes(most));
    }
  }
  note(key, quoted(format_bytes(target)));
}

void ConfigReader::take_duration(const char* key, std::chrono::milliseconds& target,
                                 std::chrono::milliseconds least, std::chrono::milliseconds most) {
  if (const toml::node* node = document_->find(key)) {
    std::optional<std::chrono::milliseconds> value;
    if (const auto text = node->value_exact<std::string>()) {
      if (const auto parsed = parse_duration(*text)) value = *parsed;
    }
    if (value && *value >= least && *value <= most) {
      target = *value;
    } else {
      wrong(key, "a duration such as \"250ms\", from " + format_duration(least) + " to " +
                     format_duration(most));
    }
  }
  note(key, quoted(format_duration(target)));
}

void ConfigReader::take_address(const char* key, std::optional<transport::HostPort>& target,
                                transport::PortZero zero) {
  if (const toml::node* node = document_->find(key)) {
    const auto text = node->value_exact<std::string>();
    const auto parsed = transport::parse_host_port(text.value_or(""), zero);
    if (parsed) {
      target = *parsed;
    } else {
      wrong(key, "an address: " + parsed.error().detail);
    }
  }
  note(key, quoted(target ? to_string(*target) : ""));
}

void ConfigReader::take_choice_index(const char* key, std::size_t& target,
                                     std::span<const std::string_view> names) {
  if (const toml::node* node = document_->find(key)) {
    const auto value = node->value_exact<std::string>();
    const auto found = std::find(names.begin(), names.end(), value.value_or(""));
    if (found != names.end()) {
      target = static_cast<std::size_t>(found - names.begin());
    } else {
      std::string all;
      for (const std::string_view name : names) all += (all.empty() ? "" : ", ") + quoted(name);
      wrong(key, "one of " + all);
    }
  }
  note(key, quoted(names[target]));
}

void ConfigReader::require(const char* key, bool given) {
  if (given || present(key)) return;
  document_->complaints.push_back(document_->name + ": " + key + ": must be set");
}

void ConfigReader::reject(const char* key, const std::string& why) {
  const toml::node* node = document_->find(key);
  const std::string place = node == nullptr ? document_->name : document_->place(*node);
  document_->complaints.push_back(place + ": " + key + ": " + why);
}

Status ConfigReader::finish() {
  document_->complain_unknown(document_->root, "");
  if (document_->complaints.empty()) return ok();
  std::string all;
  for (std::size_t i = 0; i < std::min(document_->complaints.size(), kComplaintsMax); ++i) {
    all += (all.empty() ? "" : "\n") + document_->complaints[i];
  }
  if (document_->complaints.size() > kComplaintsMax) {
    all += "\nand " + std::to_string(document_->complaints.size() - kComplaintsMax) + " more";
  }
  return failure(ErrorCode::kConfig, Stage::kConfig, std::move(all));
}

std::vector<std::pair<std::string, std::string>> ConfigReader::effective() && {
  return std::move(document_->effective);
}

}  // namespace weft::agent
