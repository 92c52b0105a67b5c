// Tests of how a queue pair handles packets that a switch has marked (IBTA annex A10).

#include <gtest/gtest.h>

#include "rdma/transport/host_test.h"

namespace tulle::transport::testing {
namespace {

using verbs::QpType;
using wire::Operation;
using wire::TransportClass;

Options of(QpType type) {
  Options options;
  options.type = type;
  return options;
}

wire::IpUdp from_peer() {
  wire::IpUdp ip;
  ip.source = peer_gid;
  return ip;
}

void enable(Host& host) {
  auto& settings = host.environment.congestion.infiniband;
  settings.enabled = true;
  settings.table.resize(1);
}

wire::Packet write_only(Psn psn) {
  wire::Packet write = packet(TransportClass::rc, Operation::write_only, psn);
  write.ack_request = true;
  write.fecn = true;
  return write;
}

TEST(CongestionMarks, AReliableConnectionSaysItInItsNextAnswerAndOnce) {
  Host host;
  enable(host);
  host.connect();
  for (const bool expected : {true, false}) {
    wire::Packet write = write_only(expected ? first_psn : first_psn + 1);
    write.virtual_address = iova;
    write.rkey = host.region.rkey();
    write.dma_length = 4;
    host.deliver(write, bytes_of(4));
    if (expected) {
      EXPECT_FALSE(host.qp->congestion_marked(write, from_peer())) << "no packet of its own";
    }
    const auto answers = host.pull();
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(wire::info(answers[0].packet.opcode).kind, wire::Kind::acknowledge);
    EXPECT_EQ(answers[0].packet.becn, expected);
    EXPECT_FALSE(answers[0].packet.fecn);
  }
}

TEST(CongestionMarks, ANakSaysItToo) {
  Host host;
  enable(host);
  host.connect();
  wire::Packet early = write_only(first_psn + 5);
  early.rkey = host.region.rkey();
  host.deliver(early);
  EXPECT_FALSE(host.qp->congestion_marked(early, from_peer()));
  const auto answers = host.pull();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].packet.syndrome.kind, wire::AckKind::nak);
  EXPECT_TRUE(answers[0].packet.becn);
}

TEST(CongestionMarks, AnswersThatWereMarkedAndUnreliablePacketsNeedAPacketOfTheirOwn) {
  const auto notification = [](Host& host, const wire::Packet& marked) {
    EXPECT_TRUE(host.qp->congestion_marked(marked, from_peer()));
    OutgoingPacket out;
    host.qp->emit_notification(out);
    EXPECT_EQ(out.packet.opcode, wire::infiniband_congestion_notification);
    EXPECT_TRUE(out.packet.becn);
    EXPECT_EQ(out.to->destination, peer_gid);
    EXPECT_EQ(out.payload_bytes, 0u);
    return out.packet.destination_qp;
  };
  Host rc, uc(of(QpType::uc)), ud(of(QpType::ud));
  for (Host* host : {&rc, &uc, &ud}) {
    enable(*host);
    host->connect();
  }
  EXPECT_EQ(notification(rc, packet(TransportClass::rc, Operation::read_response_only, first_psn)),
            peer_qp);
  EXPECT_EQ(notification(uc, packet(TransportClass::uc, Operation::send_only, first_psn)), peer_qp);
  wire::Packet datagram = packet(TransportClass::ud, Operation::send_only, first_psn);
  datagram.source_qp = QpNumber(0x99);
  EXPECT_EQ(notification(ud, datagram), QpNumber(0x99)) << "whoever sent it";
}

TEST(CongestionMarks, RoceNotifiesByItsOwnPacket) {
  Host host;
  host.connect();
  OutgoingPacket out;
  host.qp->emit_notification(out);
  EXPECT_EQ(out.packet.opcode, wire::congestion_notification);
}

}  // namespace
}  // namespace tulle::transport::testing
