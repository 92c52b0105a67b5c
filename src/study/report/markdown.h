#pragma once

// Texts as Markdown that shows them unchanged, as GitHub does. They are other people's: titles,
// descriptions and names of scenarios.

#include <string>
#include <string_view>

namespace tulle::report {

// Returns a text within a line: of a paragraph, a heading or a cell.
std::string markdown_text(std::string_view text);
// Returns a text as code within a line.
std::string markdown_code(std::string_view text);
// Returns a person's text: paragraphs, and lines indented by four kept as lines.
std::string as_markdown(const std::string& text);

// Returns a file's name as the address of a link, and as the value of an attribute within a table.
std::string markdown_address(std::string_view name);
std::string markdown_attribute(std::string_view text);

}  // namespace tulle::report
