#include "integrity.h"

struct layout layout_of(struct random* random, uint32_t length, unsigned pieces) {
  struct layout layout = {.count = pieces};
  uint32_t left = length;
  for (unsigned i = 0; i < pieces; ++i) {
    const uint32_t take = i + 1 == pieces ? left : random_below(random, left + 1);
    layout.piece[i].offset = layout.span;
    layout.piece[i].length = take;
    layout.span += take;
    if (i + 1 < pieces) layout.span += 1 + random_below(random, 64);
    left -= take;
  }
  return layout;
}
