#pragma once

// Copies between one piece of memory and the vectors of a program's call.

#include <sys/uio.h>

#include <cstddef>
#include <span>

namespace tulle::rsockets {

std::size_t total_bytes(std::span<const iovec> vectors);

// Copies bytes of the vectors, from their byte `offset` on, until `to` is full. The vectors must
// hold that many.
void gather(std::span<const iovec> from, std::size_t offset, std::span<std::byte> to);

// Copies `from` into the vectors, from their byte `offset` on. Returns the number of bytes that
// had room there.
std::size_t scatter(std::span<const std::byte> from, std::span<const iovec> to, std::size_t offset);

}  // namespace tulle::rsockets
