#pragma once

// Test support: reads tests/data/scapy_vectors.txt, whose first lines describe its contents.

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "places.h"

namespace tulle::wire {

struct Vector {
  std::string name;
  std::map<std::string, std::uint64_t> fields;
  std::vector<std::byte> packet;  // from the IP header to the ICRC

  // Returns a field, or `otherwise` if the packet does not have it.
  std::uint64_t field(const std::string& key, std::uint64_t otherwise = 0) const {
    const auto found = fields.find(key);
    return found == fields.end() ? otherwise : found->second;
  }
};

inline std::vector<std::byte> bytes_from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

inline std::vector<Vector> scapy_vectors() {
  std::vector<Vector> vectors;
  std::ifstream file(TULLE_TEST_DATA "/scapy_vectors.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    Vector vector;
    words >> vector.name;
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      const std::string key = word.substr(0, equals);
      if (key == "packet") {
        vector.packet = bytes_from_hex(word.substr(equals + 1));
      } else {
        vector.fields[key] = std::stoull(word.substr(equals + 1));
      }
    }
    vectors.push_back(std::move(vector));
  }
  return vectors;
}

}  // namespace tulle::wire
