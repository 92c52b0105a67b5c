// An ELF file's sections name everything that is needed (System V ABI, chapters 4 and 5; the Linux
// Standard Base for versions): the dynamic symbols, the version number of each, and the definitions
// that give these numbers names. Every offset and count comes from the file and is checked against
// the file's size.

#include "shim/exports/exports.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>

namespace tulle::shim {
namespace {

using Bytes = std::span<const std::byte>;

// Returns false if `from` ends before the struct does.
template <typename Struct>
bool read_at(Bytes from, std::uint64_t offset, Struct& out) {
  if (offset > from.size() || from.size() - offset < sizeof out) return false;
  std::memcpy(&out, from.data() + offset, sizeof out);
  return true;
}

Bytes piece(Bytes from, std::uint64_t offset, std::uint64_t size) {
  if (offset > from.size() || size > from.size() - offset) return {};
  return from.subspan(offset, size);
}

// Returns an empty text if the offset is outside the table, or if the text has no end.
std::string_view text_at(Bytes table, std::uint64_t offset) {
  if (offset >= table.size()) return {};
  const auto* start = reinterpret_cast<const char*>(table.data()) + offset;
  const void* end = std::memchr(start, '\0', table.size() - offset);
  if (end == nullptr) return {};
  return {start, static_cast<std::size_t>(static_cast<const char*>(end) - start)};
}

struct Tables {
  Bytes symbols;
  Bytes symbol_names;
  Bytes versions;  // one version number for each symbol
  Bytes definitions;
  Bytes definition_names;
};

bool is_for_this_machine(const Elf64_Ehdr& header) {
  constexpr unsigned char own_data =
      std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == own_data &&
         header.e_shentsize == sizeof(Elf64_Shdr);
}

std::optional<Tables> find_tables(Bytes elf) {
  Elf64_Ehdr header;
  if (!read_at(elf, 0, header) || !is_for_this_machine(header)) return std::nullopt;
  const Bytes sections =
      piece(elf, header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr));
  const auto section = [&](std::uint64_t index) {
    Elf64_Shdr out = {};
    return read_at(sections, index * sizeof out, out) ? out : Elf64_Shdr{};
  };
  const auto content = [&](const Elf64_Shdr& of) { return piece(elf, of.sh_offset, of.sh_size); };
  Tables tables;
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr each = section(i);
    if (each.sh_type == SHT_DYNSYM) {
      tables.symbols = content(each);
      tables.symbol_names = content(section(each.sh_link));
    } else if (each.sh_type == SHT_GNU_versym) {
      tables.versions = content(each);
    } else if (each.sh_type == SHT_GNU_verdef) {
      tables.definitions = content(each);
      tables.definition_names = content(section(each.sh_link));
    }
  }
  return tables;
}

// Each definition gives the distance to the next one. Distances lead forward, so the loop ends.
std::map<std::uint16_t, std::string_view> node_names(const Tables& tables) {
  std::map<std::uint16_t, std::string_view> names;
  std::uint64_t at = 0;
  Elf64_Verdef definition;
  while (read_at(tables.definitions, at, definition)) {
    Elf64_Verdaux first;
    const bool is_node = (definition.vd_flags & VER_FLG_BASE) == 0;
    if (is_node && read_at(tables.definitions, at + definition.vd_aux, first)) {
      names[definition.vd_ndx] = text_at(tables.definition_names, first.vda_name);
    }
    if (definition.vd_next == 0) break;
    at += definition.vd_next;
  }
  return names;
}

bool is_offered(const Elf64_Sym& symbol) {
  const auto binding = ELF64_ST_BIND(symbol.st_info);
  return symbol.st_shndx != SHN_UNDEF && symbol.st_shndx != SHN_ABS &&
         (binding == STB_GLOBAL || binding == STB_WEAK);
}

// Returns what `read` reads from the bytes of a file, or what it reads from none.
template <typename Read>
auto from_file(const std::filesystem::path& path, Read read) {
  auto result = read(Bytes{});
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return result;
  struct stat status {};
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
    const auto size = static_cast<std::size_t>(status.st_size);
    void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped != MAP_FAILED) {
      result = read(Bytes{static_cast<const std::byte*>(mapped), size});
      munmap(mapped, size);
    }
  }
  close(fd);
  return result;
}

bool has_interpreter(Bytes elf, const Elf64_Ehdr& header) {
  Elf64_Phdr segment;
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    if (!read_at(elf, header.e_phoff + i * sizeof segment, segment)) return false;
    if (segment.p_type == PT_INTERP) return true;
  }
  return false;
}

void read_dynamic(Bytes elf, const Elf64_Ehdr& header, Linking& out) {
  const Bytes sections =
      piece(elf, header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr));
  Elf64_Shdr section, names;
  bool has_runpath = false;
  for (std::uint64_t i = 0; read_at(sections, i * sizeof section, section); ++i) {
    if (section.sh_type != SHT_DYNAMIC) continue;
    if (!read_at(sections, std::uint64_t{section.sh_link} * sizeof names, names)) continue;
    const Bytes entries = piece(elf, section.sh_offset, section.sh_size);
    const Bytes table = piece(elf, names.sh_offset, names.sh_size);
    Elf64_Dyn entry;
    for (std::uint64_t j = 0; read_at(entries, j * sizeof entry, entry); ++j) {
      has_runpath = has_runpath || entry.d_tag == DT_RUNPATH;
      if (entry.d_tag == DT_RPATH) out.rpath = text_at(table, entry.d_un.d_val);
      if (entry.d_tag == DT_NEEDED) out.needed.emplace_back(text_at(table, entry.d_un.d_val));
    }
  }
  if (has_runpath) out.rpath.clear();
}

}  // namespace

std::vector<std::string> exports(Bytes elf) {
  const auto tables = find_tables(elf);
  if (!tables) return {};
  const auto nodes = node_names(*tables);
  constexpr std::uint16_t hidden = 0x8000;  // marks a version that is offered, not the default
  std::vector<std::string> out;
  Elf64_Sym symbol;
  Elf64_Versym version = 0;
  for (std::uint64_t i = 0; read_at(tables->symbols, i * sizeof symbol, symbol) &&
                            read_at(tables->versions, i * sizeof version, version);
       ++i) {
    const auto node = nodes.find(static_cast<std::uint16_t>(version & ~hidden));
    const std::string_view name = text_at(tables->symbol_names, symbol.st_name);
    if (!is_offered(symbol) || node == nodes.end() || name.empty()) continue;
    out.push_back(std::string(name) + "@" + std::string(node->second));
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> exports_missing(const std::filesystem::path& ours,
                                         const std::filesystem::path& theirs) {
  const std::vector<std::string> own = from_file(ours, exports);
  if (own.empty()) return {};
  const std::vector<std::string> others = from_file(theirs, exports);
  std::vector<std::string> missing;
  std::set_difference(others.begin(), others.end(), own.begin(), own.end(),
                      std::back_inserter(missing));
  return missing;
}

Linking linking(Bytes elf) {
  Elf64_Ehdr header;
  if (!read_at(elf, 0, header) || !is_for_this_machine(header)) return {};
  Linking out;
  out.is_program = true;
  out.is_dynamic = has_interpreter(elf, header);
  read_dynamic(elf, header, out);
  return out;
}

Linking linking_of(const std::filesystem::path& program) { return from_file(program, linking); }

}  // namespace tulle::shim
