#include <gtest/gtest.h>

#include "study/traces/trace_test.h"

namespace tulle::traces {
namespace {

std::string simai(std::string_view text, std::uint32_t ranks = 8) {
  return read("w.txt", text, ranks);
}

constexpr char header[] =
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 "
    "all_gpus: 2 checkpoints: 0 checkpoint_initiates: 0 pp_comm 0\n";

TEST(SimAi, BecomesAGraph) {
  // Forward with a collective, then the two gradients of the second layer and of the first one.
  EXPECT_EQ(simai(std::string(header) + "2\nembedding -1 10 ALLTOALL 8 1 NONE 0 2 NONE 0 0\n"
                                        "mlp -1 20 NONE 0 3 ALLTOALL_EP 0 4 NONE 0 0\n"),
            "0: 0 computes 10 ns\n1: 1 computes 10 ns\n"
            "2: 0->1 4 by 1 after 0\n3: 1->0 4 by 1 after 1\n"
            "4: 0 joins after 2 3\n5: 1 joins after 2 3\n"
            "6: 0 computes 20 ns after 4\n7: 1 computes 20 ns after 5\n"
            "8: 0 computes 3 ns after 6\n9: 1 computes 3 ns after 7\n"
            "10: 0 computes 4 ns after 8\n11: 1 computes 4 ns after 9\n"
            "12: 0 computes 1 ns after 10\n13: 1 computes 1 ns after 11\n"
            "14: 0 computes 2 ns after 12\n15: 1 computes 2 ns after 13\n");
}

// A weight gradient's collective goes on beside the next layer's computations. The weights are
// updated behind it.
TEST(SimAi, NobodyWaitsForTheSumOfAWeightGradient) {
  EXPECT_EQ(simai("HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 all_gpus: 2\n2\n"
                  "a -1 0 NONE 0 0 NONE 0 5 NONE 0 0\n"
                  "b -1 0 NONE 0 0 NONE 0 4 ALLTOALL 8 7\n"),
            "0: 0 computes 4 ns\n1: 1 computes 4 ns\n2: 0 computes 5 ns after 0\n"
            "3: 0->1 4 by 8193 after 0\n4: 1->0 4 by 8193 after 1\n"
            "5: 0 joins after 3 4\n6: 1 joins after 3 4\n7: 1 computes 5 ns after 1\n"
            "8: 0 computes 7 ns on 1 after 5\n9: 1 computes 7 ns on 1 after 6\n");
}

// Among eight GPUs, 0 and 1 share a tensor, 0 and 2 have different experts, and 0 and 4 have the
// same.
TEST(SimAi, SuffixesNameTheRanks) {
  const auto partner = [](const std::string& name) {
    const std::string graph = simai(
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 all_gpus: "
        "8\n1\na -1 0 " +
        name + " 8 0 NONE 0 0 NONE 0 0\n");
    return graph.substr(0, graph.find(' ', 3));
  };
  EXPECT_EQ(partner("ALLTOALL"), "0: 0->1");
  EXPECT_EQ(partner("ALLTOALL_EP"), "0: 0->2");
  EXPECT_EQ(partner("ALLTOALL_DP_EP"), "0: 0->4");
}

// Groups are of one GPU unless the header says more, and the GPUs are all that there are.
TEST(SimAi, WhatTheHeaderLeavesOutIsOne) {
  EXPECT_EQ(simai("HYBRID_TRANSFORMER_FWD_IN_BCKWD\n1\n"
                  "a -1 5 ALLTOALL 8 6 ALLTOALL_EP 8 0 ALLTOALL 8 0\n",
                  2),
            "0: 0 computes 5 ns\n1: 1 computes 5 ns\n"
            "2: 0 computes 6 ns after 0\n3: 1 computes 6 ns after 1\n"
            "4: 0->1 4 by 8193 after 2\n5: 1->0 4 by 8193 after 3\n"
            "6: 0 joins after 4 5\n7: 1 joins after 4 5\n");
}

TEST(SimAi, CostsNoMoreThanItsLimits) {
  const std::string text = std::string(header) + "1\na -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n";
  const File file{"w.txt", text, std::nullopt};
  Settings settings;
  settings.servers = servers_of(2);
  settings.limits.members = 1;
  EXPECT_EQ(read({&file, 1}, settings), "w.txt:3: more than 524288 groups, or 1 ranks in them");
}

TEST(SimAi, AnErrorNamesTheLine) {
  const std::string line = "a -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n";
  EXPECT_EQ(simai(std::string(header) + "1\na -1 1 ALLSUM 8 1 NONE 0 1 NONE 0 1\n"),
            "w.txt:3: there is no collective \"ALLSUM\"; there are NONE, ALLREDUCE, ALLGATHER, "
            "REDUCESCATTER and ALLTOALL, with _EP or _DP_EP");
  EXPECT_EQ(
      simai(std::string(header) + "2\n" + line),
      "w.txt:3: the second line announces 2 layers, and there are fewer; the file may be cut");
  EXPECT_EQ(simai(std::string(header) + "1\n" + line + line),
            "w.txt:4: the second line announces 1 layers, and there are more");
  EXPECT_EQ(simai(std::string(header) + "1\na -1 1 NONE\n"),
            "w.txt:3: a layer has 12 fields, and not 4");
  EXPECT_EQ(simai(std::string(header) + "1\na -1 -5 NONE 0 1 NONE 0 1 NONE 0 1\n"),
            "w.txt:3: \"-5\" is no time; give nanoseconds, up to 50 days");
  EXPECT_EQ(simai(header), "w.txt:1: there is no number of layers");
  EXPECT_EQ(simai(std::string(header) + "one\n" + line), "w.txt:2: expected the number of layers");
  EXPECT_EQ(simai(std::string(header) + "1 2\n" + line), "w.txt:2: expected the number of layers");
  EXPECT_EQ(simai(std::string(header) + "99999999\n" + line),
            "w.txt:2: 99999999 layers are too many for 2 ranks: 1198372 at most; take fewer GPUs "
            "or layers");
  EXPECT_EQ(simai(header, 1),
            "w.txt:1: the trace has 2 ranks, and there are 1 GPUs; take as many "
            "GPUs");
  EXPECT_EQ(simai("HYBRID_TRANSFORMER model_parallel_NPU_group: 3 all_gpus: 8\n"),
            "w.txt:1: 8 GPUs cannot be dealt evenly to tensor groups of 3, expert groups of 1 and "
            "1 pipeline stages");
  EXPECT_EQ(simai("HYBRID_DLRM\n"),
            "w.txt:1: \"HYBRID_DLRM\" is not read; SimAI's HYBRID_TRANSFORMER_FWD_IN_BCKWD is");
  EXPECT_EQ(simai("HYBRID_TRANSFORMER checkpoints: 1 3\n"),
            "w.txt:1: layers that are computed again (checkpoints) are not read; take 0");
}

}  // namespace
}  // namespace tulle::traces
