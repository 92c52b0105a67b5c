#include "terminal/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <vector>

namespace tulle::terminal {
namespace {

constexpr std::size_t text_column = 26;
constexpr std::size_t line_columns = 80;

// Counts columns of UTF-8: bytes that continue a character take none.
std::size_t columns(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  }));
}

bool takes_many(const CLI::Option& option) {
  return option.get_expected_max() >= CLI::detail::expected_max_vector_size;
}

// "-d, --device=NAME"
std::string option_names(const CLI::Option& option) {
  const std::string value = value_name(option);
  std::string text;
  for (const std::string& name : option.get_snames()) {
    text += (text.empty() ? "-" : ", -") + name;
  }
  const bool is_short = option.get_lnames().empty();
  for (const std::string& name : option.get_lnames()) {
    text += (text.empty() ? "    --" : ", --") + name;
  }
  if (!value.empty()) text += (is_short ? " " : "=") + value;
  return text;
}

std::string option_text(const CLI::Option& option) {
  std::string text = option.get_description();
  std::vector<std::string> others;
  for (const CLI::Option* other : option.get_excludes()) {
    if (!is_hidden(*other)) others.push_back(other->get_name());
  }
  std::sort(others.begin(), others.end());
  if (!others.empty()) text += fmt::format(" (not with {})", fmt::join(others, ", "));
  if (!option.get_default_str().empty()) text += " (" + option.get_default_str() + ")";
  return text;
}

// "[SCENARIO]..."
std::string positional_usage(const CLI::Option& option) {
  const std::string name = value_name(option) + (takes_many(option) ? "..." : "");
  return option.get_required() ? name : "[" + name + "]";
}

std::string usage(const CLI::App& app, const std::string& name) {
  std::string text = "Usage: " + name;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional() && option->get_required()) {
      text += fmt::format(" --{}={}", option->get_lnames().front(), value_name(*option));
    }
  }
  text += " [OPTIONS]";
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) text += " " + positional_usage(*option);
  }
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  if (!commands.empty()) text += " COMMAND";
  if (app.get_prefix_command()) text += " [--] PROGRAM [ARGUMENTS...]";
  return text;
}

std::string row(const std::string& name, const std::string& text) {
  std::string line = "  " + name;
  // At least two spaces are needed: help2man tells the name from the text by them.
  if (columns(line) + 2 > text_column) {
    line += "\n" + std::string(text_column, ' ');
  } else {
    line += std::string(text_column - columns(line), ' ');
  }
  return line + wrapped(text, text_column, text_column, line_columns) + "\n";
}

std::string section(const std::string& title, const std::string& rows) {
  return rows.empty() ? "" : "\n" + title + ":\n" + rows;
}

}  // namespace

std::string value_name(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  std::string type = option.get_type_name();
  // CLI11 appends what a validator says: ":{one,other}", or words that are also in the description.
  const std::size_t colon = type.find(':');
  if (colon == std::string::npos) return type;
  if (type.compare(colon, 2, ":{") != 0 || type.back() != '}') return type.substr(0, colon);
  std::string words = type.substr(colon + 2, type.size() - colon - 3);
  std::replace(words.begin(), words.end(), ',', '|');
  return words;
}

std::string wrapped(const std::string& text, std::size_t column, std::size_t indent,
                    std::size_t width) {
  std::string out;
  std::istringstream words(text);
  bool is_first = true;
  for (std::string word; words >> word; is_first = false) {
    const std::size_t length = columns(word);
    if (!is_first && column + 1 + length > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!is_first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += length;
  }
  return out;
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode) const {
  std::string arguments;
  std::string options;
  for (const CLI::Option* option : app->get_options()) {
    if (is_hidden(*option)) continue;
    if (option->get_positional()) {
      arguments += row(value_name(*option), option->get_description());
    } else {
      options += row(option_names(*option), option_text(*option));
    }
  }
  std::string commands;
  for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) {
      commands += row(command->get_name(), command->get_description());
    }
  }
  std::string about = app->get_description();
  if (!about.empty() && about.back() != '.') about += '.';
  std::string text = usage(*app, name) + "\n\n" + about + "\n" + section("Arguments", arguments) +
                     section("Commands", commands) + section("Options", options);
  if (!app->get_footer().empty()) text += "\n" + app->get_footer();
  return text;
}

}  // namespace tulle::terminal
