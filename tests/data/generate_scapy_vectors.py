#!/usr/bin/env python3
"""Writes scapy_vectors.txt: RoCE v2 packets built by Scapy, with Scapy's ICRC, to test Tulle's against.

Usage: generate_scapy_vectors.py > scapy_vectors.txt     (needs Scapy 2.5; the seed is fixed)

One packet a line: its name, then field=value pairs (numbers in decimal) with what its headers say, then packet=HEX with
the bytes from the IP header to the ICRC. The script packs the extension headers itself, since Scapy knows only BTH and
AETH. Scapy 2.5 has no ICRC over IPv6, so zlib computes it there over the headers as Scapy builds them, with the variant
fields set to ones.
"""
import random
import struct
import zlib

from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

SEED = 20221

RC, UC, UD, XRC = 0x00, 0x20, 0x60, 0xA0
CNP = 0x81

# operation: (name, extension headers in order, may carry payload)
OPERATIONS = {
    0x00: ("SEND_FIRST", "", True),
    0x01: ("SEND_MIDDLE", "", True),
    0x02: ("SEND_LAST", "", True),
    0x03: ("SEND_LAST_WITH_IMMEDIATE", "imm", True),
    0x04: ("SEND_ONLY", "", True),
    0x05: ("SEND_ONLY_WITH_IMMEDIATE", "imm", True),
    0x06: ("RDMA_WRITE_FIRST", "reth", True),
    0x07: ("RDMA_WRITE_MIDDLE", "", True),
    0x08: ("RDMA_WRITE_LAST", "", True),
    0x09: ("RDMA_WRITE_LAST_WITH_IMMEDIATE", "imm", True),
    0x0A: ("RDMA_WRITE_ONLY", "reth", True),
    0x0B: ("RDMA_WRITE_ONLY_WITH_IMMEDIATE", "reth imm", True),
    0x0C: ("RDMA_READ_REQUEST", "reth", False),
    0x0D: ("RDMA_READ_RESPONSE_FIRST", "aeth", True),
    0x0E: ("RDMA_READ_RESPONSE_MIDDLE", "", True),
    0x0F: ("RDMA_READ_RESPONSE_LAST", "aeth", True),
    0x10: ("RDMA_READ_RESPONSE_ONLY", "aeth", True),
    0x11: ("ACKNOWLEDGE", "aeth", False),
    0x12: ("ATOMIC_ACKNOWLEDGE", "aeth atomicack", False),
    0x13: ("COMPARE_SWAP", "atomic", False),
    0x14: ("FETCH_ADD", "atomic", False),
    0x16: ("SEND_LAST_WITH_INVALIDATE", "ieth", True),
    0x17: ("SEND_ONLY_WITH_INVALIDATE", "ieth", True),
    0x1C: ("FLUSH", "feth reth", False),
    0x1D: ("ATOMIC_WRITE", "reth", True),
}
RESPONSES = {0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12}
CLASSES = {
    "RC": (RC, list(OPERATIONS)),
    "UC": (UC, list(range(0x00, 0x0C))),
    "UD": (UD, [0x04, 0x05]),
    "XRC": (XRC, list(OPERATIONS)),
}


def extension(kind, rng, fields):
    """Returns the bytes of one extension header with random content, and adds its values to `fields`."""
    def value(name, bits):
        fields[name] = rng.getrandbits(bits)
        return fields[name]
    if kind == "deth":
        return struct.pack("!II", value("qkey", 32), value("source_qp", 24))
    if kind == "xrceth":
        return struct.pack("!I", value("srq", 24))
    if kind == "feth":
        return struct.pack("!I", value("selectivity", 2) << 4 | value("placement", 4))
    if kind == "reth":
        return struct.pack("!QII", value("address", 64), value("rkey", 32), value("length", 32))
    if kind == "atomic":
        return struct.pack("!QIQQ", value("address", 64), value("rkey", 32),
                           value("swap_or_add", 64), value("compare", 64))
    if kind == "aeth":
        return struct.pack("!I", value("syndrome", 7) << 24 | value("msn", 24))
    if kind == "atomicack":
        return struct.pack("!Q", value("original", 64))
    if kind == "imm":
        return struct.pack("!I", value("immediate", 32))
    if kind == "ieth":
        return struct.pack("!I", value("invalidate", 32))
    raise ValueError(kind)


def ipv6_icrc(ip, udp, payload):
    """Returns the ICRC bytes for a UDP payload that lacks them."""
    masked_ip, masked_udp = ip.copy(), udp.copy()
    masked_ip.tc, masked_ip.fl, masked_ip.hlim = 0xFF, 0xFFFFF, 0xFF
    masked_udp.chksum = 0xFFFF
    masked = bytearray(payload)
    masked[4] = 0xFF
    data = bytes(masked_ip / masked_udp / Raw(bytes(masked) + bytes(4)))
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + data[:-4]))


def build(rng, family, opcode, kinds, payload_bytes):
    fields = {
        "opcode": opcode,
        "solicited": rng.getrandbits(1),
        "migration": rng.getrandbits(1),
        "pad": -payload_bytes % 4,
        "pkey": rng.getrandbits(16),
        "fecn": rng.getrandbits(1),
        "becn": rng.getrandbits(1),
        "qp": rng.getrandbits(24),
        "ack_request": rng.getrandbits(1),
        "psn": rng.getrandbits(24),
    }
    bth = BTH(opcode=opcode, solicited=fields["solicited"], migreq=fields["migration"],
              padcount=fields["pad"], pkey=fields["pkey"], fecn=fields["fecn"],
              becn=fields["becn"], dqpn=fields["qp"], ackreq=fields["ack_request"],
              psn=fields["psn"])
    body = b"".join(extension(kind, rng, fields) for kind in kinds)
    if opcode == CNP:
        body = bytes(16)
    body += rng.randbytes(payload_bytes) + bytes(fields["pad"])
    fields["payload"] = payload_bytes
    udp = UDP(sport=rng.randrange(0xC000, 0x10000), dport=4791)
    fields["source_port"] = udp.sport
    fields["traffic_class"] = rng.getrandbits(8)
    fields["hop_limit"] = rng.randrange(1, 256)
    if family == 4:
        fields["identification"] = rng.choice([0, 1, 0xFFFF, rng.getrandbits(16)])
        fields["dont_fragment"] = rng.getrandbits(1)
        ip = IP(src="10.1.2.3", dst="192.168.255.254", id=fields["identification"],
                flags="DF" if fields["dont_fragment"] else 0, tos=fields["traffic_class"],
                ttl=fields["hop_limit"])
        return fields, bytes(ip / udp / bth / Raw(body))
    fields["flow_label"] = rng.getrandbits(20)
    ip = IPv6(src="fe80::1234:56ff:fe78:9abc", dst="2001:db8::2", tc=fields["traffic_class"],
              fl=fields["flow_label"], hlim=fields["hop_limit"])
    # Only the twelve bytes of the BTH itself are taken, since Scapy's ICRC field behind them is not in its place.
    bth.icrc = 0
    payload = bytes(bth)[:12] + body
    return fields, bytes(ip / udp / Raw(payload + ipv6_icrc(ip, udp, payload)))


def main():
    rng = random.Random(SEED)
    print("# Made by generate_scapy_vectors.py; do not edit.")
    for family in (4, 6):
        for prefix, (transport, operations) in CLASSES.items():
            for operation in operations:
                name, extensions, has_payload = OPERATIONS[operation]
                kinds = extensions.split()
                if transport == UD:
                    kinds = ["deth"] + kinds
                if transport == XRC and operation not in RESPONSES:
                    kinds = ["xrceth"] + kinds
                sizes = rng.sample([1, 2, 3, 4, 255, 256, 1021], 2) + [0] if has_payload else [0]
                for size in sizes:
                    fields, packet = build(rng, family, transport | operation, kinds, size)
                    show(f"ipv{family}/{prefix}_{name}/{size}", fields, packet)
        fields, packet = build(rng, family, CNP, [], 0)
        show(f"ipv{family}/CNP", fields, packet)
        fields, packet = build(rng, family, RC | 0x07, [], 4096)
        show(f"ipv{family}/RC_RDMA_WRITE_MIDDLE/4096", fields, packet)


def show(name, fields, packet):
    pairs = " ".join(f"{key}={value}" for key, value in fields.items())
    print(f"{name} {pairs} packet={packet.hex()}")


if __name__ == "__main__":
    main()
