// Runs Gloo over its ibverbs transport: all-reduce by ring and by halving and doubling, broadcast
// and a barrier. Every word is checked.
//
//     gloo_collectives FOLDER RANK RANKS
//
// The ranks find each other by files in FOLDER.

#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>
#include <malloc.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace {

using Word = std::int64_t;
using Context = std::shared_ptr<gloo::rendezvous::Context>;

Word pattern(int rank, std::size_t index) {
  return rank * 1'000'003LL + static_cast<Word>(index) * 7'919 + 1;
}

void expect(const Context& context, const char* what, std::size_t words, std::size_t index,
            Word wanted, Word found) {
  if (wanted == found) return;
  std::fprintf(stderr, "rank %d: %s of %zu words: word %zu is %lld instead of %lld\n",
               context->rank, what, words, index, static_cast<long long>(found),
               static_cast<long long>(wanted));
  std::exit(1);
}

// Gloo asks that a buffer outlive the transfers from it, and its algorithms do not wait for the
// last of their own notices. Both are therefore kept until the end.
template <typename Algorithm, typename... Arguments>
Algorithm& kept(Arguments&&... arguments) {
  return *new Algorithm(std::forward<Arguments>(arguments)...);
}

template <typename Algorithm>
void all_reduce(const Context& context, const char* what, std::size_t words) {
  auto& data = kept<std::vector<Word>>(words);
  const std::vector<Word*> pointers = {data.data()};
  auto& algorithm = kept<Algorithm>(context, pointers, static_cast<int>(words));
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < words; ++i) data[i] = pattern(context->rank + round, i);
    algorithm.run();
    for (std::size_t i = 0; i < words; ++i) {
      Word sum = 0;
      for (int rank = 0; rank < context->size; ++rank) sum += pattern(rank + round, i);
      expect(context, what, words, i, sum, data[i]);
    }
  }
}

void broadcast(const Context& context, std::size_t words) {
  const int root = context->size - 1;
  auto& data = kept<std::vector<Word>>(words);
  const std::vector<Word*> pointers = {data.data()};
  auto& algorithm =
      kept<gloo::BroadcastOneToAll<Word>>(context, pointers, static_cast<int>(words), root);
  for (std::size_t i = 0; i < words; ++i) data[i] = context->rank == root ? pattern(root, i) : 0;
  algorithm.run();
  for (std::size_t i = 0; i < words; ++i) {
    expect(context, "broadcast", words, i, pattern(root, i), data[i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: gloo_collectives FOLDER RANK RANKS\n"), 2;
  // Gloo registers 2,048 bytes for each buffer of its chunked ring, also where it has allocated 8.
  // At the end of the heap, there must be memory behind them.
  mallopt(M_TOP_PAD, 1 << 20);
  gloo::transport::ibverbs::attr attributes;  // the first device
  attributes.port = 1;
  attributes.index = 0;
  auto device = gloo::transport::ibverbs::CreateDevice(attributes);
  auto context =
      std::make_shared<gloo::rendezvous::Context>(std::atoi(argv[2]), std::atoi(argv[3]));
  gloo::rendezvous::FileStore store(argv[1]);
  context->connectFullMesh(store, device);
  for (const std::size_t words : {1UL, 100UL, 4'099UL, 262'147UL}) {
    all_reduce<gloo::AllreduceRing<Word>>(context, "ring all-reduce", words);
    all_reduce<gloo::AllreduceRingChunked<Word>>(context, "chunked ring all-reduce", words);
    all_reduce<gloo::AllreduceHalvingDoubling<Word>>(context, "halving-doubling all-reduce", words);
    broadcast(context, words);
  }
  kept<gloo::BarrierAllToAll>(context).run();
  if (context->rank == 0) std::printf("ok: %d ranks\n", context->size);
  return 0;
}
