#include "management/administration/records.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <optional>

#include "management/mad_test.h"

namespace tulle::management::administration {
namespace {

constexpr std::uint64_t lid_component = 1;

// A switch with the manager, and adapters behind its ports.
subnet::Graph star(std::uint32_t adapters) {
  subnet::Graph graph;
  for (std::uint32_t index = 0; index <= adapters; ++index) {
    subnet::GraphNode node;
    node.lid = static_cast<std::uint16_t>(index + 1);
    node.info.node_type =
        index == 0 ? wire::NodeInfo::switch_node : wire::NodeInfo::channel_adapter;
    node.info.ports = static_cast<std::uint8_t>(index == 0 ? adapters : 1);
    node.ports.resize(index == 0 ? adapters + 1 : 1);
    graph.nodes.push_back(node);
  }
  return graph;
}

struct Asked {
  Asked(std::uint16_t attribute, std::uint64_t mask, std::uint16_t lid = 0) {
    question.header.method = wire::method_get_table;
    question.header.attribute_id = attribute;
    question.administration.components = mask;
    const be16 field = lid;
    std::memcpy(packet.mad.data() + wire::administration_data_offset, &field, sizeof field);
  }

  std::optional<std::uint16_t> collect(const Records& records, Budget& budget) {
    return records.collect({Time::zero(), question, rows, cursor, budget});
  }

  Packet packet{};
  Question question{packet, {}, {}};
  Rows rows{1 << 20};
  Records::Cursor cursor;
};

TEST(RecordsTest, ASearchResumesWhereItsBudgetEnded) {
  const subnet::Graph graph = star(5);
  Records records;
  records.show(graph);
  EXPECT_EQ(records.manager_lid(), Lid(1));
  Asked asked(wire::attribute_node_record, 0);
  EXPECT_FALSE(records.is_lookup(asked.question));
  for (const std::size_t so_far : {2u, 4u}) {
    Budget budget{0, 2};
    EXPECT_FALSE(asked.collect(records, budget));
    EXPECT_EQ(budget.records, 0u);
    EXPECT_EQ(asked.rows.count(), so_far);
  }
  Budget budget{0, 3};
  EXPECT_EQ(asked.collect(records, budget), 0);
  EXPECT_EQ(budget.records, 1u);
  EXPECT_EQ(asked.rows.count(), graph.nodes.size());
}

TEST(RecordsTest, ANamedNodeCostsOneRecord) {
  const subnet::Graph graph = star(5);
  Records records;
  records.show(graph);
  Asked asked(wire::attribute_node_record, lid_component, 4);
  EXPECT_TRUE(records.is_lookup(asked.question));
  Budget budget{0, 1};
  EXPECT_EQ(asked.collect(records, budget), 0);
  EXPECT_EQ(asked.rows.count(), 1u);
  Asked in_vain(wire::attribute_node_record, lid_component, 400);
  EXPECT_EQ(in_vain.collect(records, budget), 0);
  EXPECT_EQ(in_vain.rows.count(), 0u);
}

TEST(RecordsTest, TheManagersKeyIsNotShown) {
  const subnet::Graph graph = star(1);
  Records records;
  records.show(graph);
  wire::SmInfo info;
  info.guid = 7;
  info.key = 1234;
  records.set_manager(info);
  Asked asked(wire::attribute_sm_info_record, 0);
  Budget budget;
  EXPECT_EQ(asked.collect(records, budget), 0);
  ASSERT_EQ(asked.rows.count(), 1u);
  wire::SmInfoRecord record;
  std::memcpy(&record, asked.rows.bytes().data(), sizeof record);
  EXPECT_EQ(record.lid, 1u);
  EXPECT_EQ(record.info.guid, 7u);
  EXPECT_EQ(record.info.key, 0u);
}

TEST(RecordsTest, OtherAttributesAreRefused) {
  Records records;
  Asked asked(0x7777, 0);
  Budget budget;
  EXPECT_EQ(asked.collect(records, budget),
            static_cast<std::uint16_t>(Status::attribute_not_supported));
}

}  // namespace
}  // namespace tulle::management::administration
