#include "shim/exports/exports.h"

#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace tulle::shim {
namespace {

// Returns the path of the C library, which exists wherever this test runs and has versions of every
// kind.
std::filesystem::path c_library() {
  Dl_info info;
  return dladdr(reinterpret_cast<void*>(&std::getenv), &info) != 0 ? info.dli_fname : "";
}

std::vector<std::byte> bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto* start = reinterpret_cast<const std::byte*>(text.data());
  return {start, start + text.size()};
}

// A library with one symbol at one version node, small enough that a test can damage its every
// byte.
struct Small {
  Elf64_Ehdr header = {};
  Elf64_Shdr sections[5] = {};
  Elf64_Sym symbols[2] = {};
  Elf64_Versym versions[4] = {0, 2};
  Elf64_Verdef definitions[2] = {};
  Elf64_Verdaux name = {};
  char names[16] = "\0call\0NODE_1.0";

  Small() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] =
        std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = 5;
    header.e_shoff = offsetof(Small, sections);
    sections[1] = of(SHT_DYNSYM, offsetof(Small, symbols), sizeof symbols);
    sections[2] = of(SHT_GNU_versym, offsetof(Small, versions), sizeof versions);
    sections[3] =
        of(SHT_GNU_verdef, offsetof(Small, definitions), sizeof definitions + sizeof name);
    sections[4] = of(SHT_STRTAB, offsetof(Small, names), sizeof names);
    symbols[1].st_name = 1;
    symbols[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    symbols[1].st_shndx = 1;
    definitions[0].vd_flags = VER_FLG_BASE;
    definitions[0].vd_ndx = 1;
    definitions[0].vd_next = sizeof definitions[0];
    definitions[1].vd_ndx = 2;
    definitions[1].vd_aux = sizeof definitions[1];
    name.vda_name = 6;
  }
  static Elf64_Shdr of(std::uint32_t type, std::size_t offset, std::size_t size) {
    Elf64_Shdr section = {};
    section.sh_type = type;
    section.sh_offset = offset;
    section.sh_size = size;
    section.sh_link = 4;
    return section;
  }
  std::vector<std::byte> bytes() const {
    const auto* start = reinterpret_cast<const std::byte*>(this);
    return {start, start + sizeof *this};
  }
};

TEST(Exports, SymbolsHaveTheirNodes) {
  EXPECT_EQ(exports(Small().bytes()), std::vector<std::string>{"call@NODE_1.0"});
  const auto found = exports(bytes_of(c_library()));
  EXPECT_GT(found.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(found.begin(), found.end()));
  const auto has = [&](const char* name) {
    return std::binary_search(found.begin(), found.end(), std::string(name));
  };
#ifdef __x86_64__
  EXPECT_TRUE(has("getenv@GLIBC_2.2.5"));
  EXPECT_TRUE(has("memcpy@GLIBC_2.2.5")) << "an old version beside the default";
  EXPECT_TRUE(has("memcpy@GLIBC_2.14"));
#endif
  EXPECT_FALSE(has("no_such_function@GLIBC_2.2.5"));
}

TEST(Exports, OfOldVersionsAndOfAliens) {
  Small hidden;
  hidden.versions[1] = 0x8002;
  EXPECT_EQ(exports(hidden.bytes()).size(), 1u) << "an old version is offered too";
  Small undefined;
  undefined.symbols[1].st_shndx = SHN_UNDEF;
  EXPECT_TRUE(exports(undefined.bytes()).empty());
  Small local;
  local.symbols[1].st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC);
  EXPECT_TRUE(exports(local.bytes()).empty());
  Small small_machine;
  small_machine.header.e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_TRUE(exports(small_machine.bytes()).empty());
  Small without_version;
  without_version.versions[1] = 1;
  EXPECT_TRUE(exports(without_version.bytes()).empty());
  EXPECT_TRUE(exports({}).empty());
}

TEST(Exports, DamagedFilesOfferNothingOrLess) {
  const std::vector<std::byte> whole = Small().bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A block of the heap of exactly this size lets a sanitizer see a read past the end.
    const std::vector<std::byte> cut(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_LE(exports(cut).size(), 1u);
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const std::byte value : {std::byte{0}, std::byte{1}, std::byte{0x7F}, std::byte{0xFF}}) {
      std::vector<std::byte> damaged = whole;
      damaged[i] = value;
      EXPECT_LE(exports(damaged).size(), 2u);
    }
  }
}

TEST(Exports, WhatOneLibraryLacksIsNamed) {
  const std::string folder = testing::TempDir();
  const auto write = [&](const std::string& name, const Small& small) {
    std::ofstream(folder + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(&small), sizeof small);
    return folder + name;
  };
  const std::string older = write("older.so", Small());
  Small other;
  std::memcpy(other.names, "\0next\0NODE_1.1", 15);
  const std::string newer = write("newer.so", other);
  EXPECT_EQ(exports_missing(older, newer), std::vector<std::string>{"next@NODE_1.1"});
  EXPECT_TRUE(exports_missing(older, older).empty());
  EXPECT_TRUE(exports_missing(older, folder + "nothing.so").empty());
  EXPECT_TRUE(exports_missing(folder + "nothing.so", newer).empty());
  EXPECT_TRUE(exports_missing(older, folder).empty());
}

TEST(Linking, IsReadFromAProgram) {
  const Linking own = linking_of("/proc/self/exe");
  EXPECT_TRUE(own.is_program);
  EXPECT_TRUE(own.is_dynamic);
  EXPECT_EQ(std::ranges::count(own.needed, "libc.so.6"), 1);
  EXPECT_EQ(own.rpath, "");
  EXPECT_FALSE(linking_of("/proc/self/cmdline").is_program);
  EXPECT_FALSE(linking_of("/nonexistent").is_program);
  const Linking library = linking_of(c_library());
  EXPECT_TRUE(library.is_program);
}

TEST(Linking, OfDamagedFilesReadsNothingBeyondThem) {
  const auto whole = bytes_of("/proc/self/exe");
  constexpr std::size_t looked_at = sizeof(Elf64_Ehdr);
  for (std::size_t at = 0; at < looked_at; ++at) {
    for (const unsigned value : {0x00u, 0x7Fu, 0x80u, 0xFFu}) {
      auto damaged = whole;
      damaged[at] = std::byte(value);
      (void)linking(damaged);
    }
  }
  for (std::size_t length = 0; length < 2 * looked_at; ++length) {
    EXPECT_FALSE(linking(std::span(whole).first(length)).is_dynamic);
  }
}

}  // namespace
}  // namespace tulle::shim
