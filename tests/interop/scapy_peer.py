#!/usr/bin/env python3
"""scapy_peer.py rc|ud HOST ITERATIONS SIZE MTU [--lose]: plays the client of ibv_rc_pingpong or ibv_ud_pingpong.

The server has one buffer for what it receives and what it sends, so each message comes back. Scapy makes and reads
the packets here, their checksums included, and the few lines below are the reliable connection: none of it is
Tulle's. With --lose the client loses some of the packets that it receives and some of its own acknowledgements, and
asks again as IBTA 9.7.5 says. It prints "N messages" at the end.
"""

import argparse
import logging
import random
import socket
import struct

logging.getLogger("scapy.runtime").setLevel(logging.ERROR)

from scapy.contrib.roce import AETH, BTH  # noqa: E402
from scapy.layers.inet import IP, UDP  # noqa: E402
from scapy.packet import Raw  # noqa: E402

ROCE = 4791
QP = 0x00ABCD
QKEY = 0x11111111
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY, ACKNOWLEDGE, UD_SEND_ONLY = 0x00, 0x01, 0x02, 0x04, 0x11, 0x64


class Wire:
    """Sends datagrams to one address and receives datagrams from it, framed by Scapy."""

    def __init__(self, host):
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER = DO: unconnected, so identification 0 and DF
        self.udp.bind(("0.0.0.0", ROCE))
        self.udp.settimeout(10)
        self.host = host
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, ROCE))
            self.address = probe.getsockname()[0]

    def send(self, bth, payload=b""):
        frame = IP(src=self.address, dst=self.host, id=0, flags="DF") / UDP(sport=ROCE, dport=ROCE) / bth
        if payload:
            frame = frame / Raw(payload)
        self.udp.sendto(bytes(frame)[28:], (self.host, ROCE))

    def receive(self):
        """Returns the BTH of the next datagram, and what follows it without the ICRC, which must be right."""
        datagram, (source, port) = self.udp.recvfrom(9000)
        assert source == self.host, source
        for identification in range(64):  # the sender's kernel counts the segments of one call
            header = IP(src=source, dst=self.address, id=identification, flags="DF") / UDP(sport=port, dport=ROCE)
            header.len = 28 + len(datagram)
            header[UDP].len = 8 + len(datagram)
            frame = IP(bytes(header / Raw(datagram)))
            if frame[BTH].compute_icrc(b"") == datagram[-4:]:
                return frame[BTH], datagram[12:-4]
        raise AssertionError("a datagram with a wrong ICRC")


def exchange_addresses(host, address, psn):
    """Exchanges what ibv_*_pingpong tell each other over TCP: "lid:qpn:psn:gid"."""
    tcp = socket.create_connection((host, 18515))
    gid = "00000000000000000000ffff" + socket.inet_aton(address).hex()
    tcp.sendall(f"0000:{QP:06x}:{psn:06x}:{gid}".encode() + b"\0")
    answer = b""
    while len(answer) < 52:
        answer += tcp.recv(52 - len(answer))
    _, qp, their_psn, _ = answer.rstrip(b"\0").decode().split(":")
    tcp.sendall(b"done\0")
    return tcp, int(qp, 16), int(their_psn, 16)


class ReliableConnection:
    def __init__(self, wire, qp, psn, expected, mtu, lose):
        self.wire, self.qp, self.psn, self.expected, self.mtu, self.lose = wire, qp, psn, expected, mtu, lose
        self.messages = 0  # received messages
        self.seen = 0  # received packets
        self.incoming = b""
        self.asked = False  # a NAK was sent for the expected packet

    def packets(self, message):
        pieces = [message[i : i + self.mtu] for i in range(0, len(message), self.mtu)]
        for i, piece in enumerate(pieces):
            first, last = i == 0, i + 1 == len(pieces)
            opcode = SEND_ONLY if first and last else SEND_FIRST if first else SEND_LAST if last else SEND_MIDDLE
            pad = -len(piece) % 4
            yield BTH(opcode=opcode, padcount=pad, dqpn=self.qp, psn=self.psn + i & 0xFFFFFF,
                      ackreq=int(last)), piece + bytes(pad)

    def send(self, message):
        packets = list(self.packets(message))
        last = packets[-1][0].psn
        for bth, payload in packets:
            self.wire.send(bth, payload)
        while True:  # other packets that come meanwhile are handled
            bth, rest = self.wire.receive()
            if bth.opcode != ACKNOWLEDGE:
                self.handle_request(bth, rest)
                continue
            syndrome = rest[0]
            assert syndrome & 0xE0 == 0, f"a NAK: {syndrome:#x}"
            if bth.psn == last:
                break
        self.psn = last + 1 & 0xFFFFFF

    def acknowledge(self, psn, syndrome=0x1F):
        self.wire.send(BTH(opcode=ACKNOWLEDGE, dqpn=self.qp, psn=psn & 0xFFFFFF)
                       / AETH(syndrome=syndrome, msn=self.messages & 0xFFFFFF))

    def handle_request(self, bth, rest):
        assert bth.opcode in (SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY), bth.opcode
        self.seen += 1
        distance = (bth.psn - self.expected + 0x800000 & 0xFFFFFF) - 0x800000
        if self.lose and self.seen % 5 == 0:
            return  # lost
        if distance > 0:
            if not self.asked:
                self.acknowledge(self.expected, 0x60)  # NAK: PSN sequence error
            self.asked = True
            return
        if distance < 0:
            self.acknowledge(self.expected - 1)  # a duplicate
            return
        self.asked = False
        self.incoming += rest[: len(rest) - bth.padcount]
        self.expected = self.expected + 1 & 0xFFFFFF
        if bth.opcode in (SEND_LAST, SEND_ONLY):
            self.finished = self.incoming
            self.incoming = b""
            self.messages += 1
        if bth.ackreq and not (self.lose and self.seen % 7 == 0):
            self.acknowledge(bth.psn)

    def receive(self, count):
        while self.messages < count:
            bth, rest = self.wire.receive()
            if bth.opcode != ACKNOWLEDGE:
                self.handle_request(bth, rest)
        return self.finished

    def linger(self):
        """Answers until nothing has come for a second, since the peer may have missed an acknowledgement."""
        self.wire.udp.settimeout(1)
        try:
            while True:
                bth, rest = self.wire.receive()
                if bth.opcode != ACKNOWLEDGE:
                    self.handle_request(bth, rest)
        except TimeoutError:
            pass


def play_rc(options):
    wire = Wire(options.host)
    tcp, qp, their_psn = exchange_addresses(options.host, wire.address, 0xFFFFF0)  # the PSN wraps on the way
    connection = ReliableConnection(wire, qp, 0xFFFFF0, their_psn, options.mtu, options.lose)
    for i in range(options.iterations):
        message = random.randbytes(options.size)
        connection.send(message)
        assert connection.receive(i + 1) == message, "another message than was sent"
    connection.linger()
    tcp.close()


def play_ud(options):
    wire = Wire(options.host)
    tcp, qp, _ = exchange_addresses(options.host, wire.address, 0)
    for psn in range(options.iterations):
        pad = -options.size % 4
        deth = struct.pack("!II", QKEY, QP)
        message = random.randbytes(options.size)
        wire.send(BTH(opcode=UD_SEND_ONLY, padcount=pad, dqpn=qp, psn=psn), deth + message + bytes(pad))
        bth, rest = wire.receive()
        assert bth.opcode == UD_SEND_ONLY and struct.unpack("!II", rest[:8]) == (QKEY, qp), rest[:8]
        assert rest[8 : len(rest) - bth.padcount] == message, "another message than was sent"
    tcp.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("transport", choices=["rc", "ud"])
    parser.add_argument("host")
    parser.add_argument("iterations", type=int)
    parser.add_argument("size", type=int)
    parser.add_argument("mtu", type=int)
    parser.add_argument("--lose", action="store_true")
    options = parser.parse_args()
    play_rc(options) if options.transport == "rc" else play_ud(options)
    print(f"{options.iterations} messages")


if __name__ == "__main__":
    main()
