#!/usr/bin/env python3
"""forge.py ROUNDS QP...: sends datagrams that no honest peer sends to 127.0.0.1 port 4791. Prints how many of each
kind."""

import collections
import random
import struct
import sys

from roce import Forger, bth


def main(rounds, qps):
    forger = Forger()
    chance = random.Random(20)
    sent = collections.Counter()

    def send(kind, payload, framed=False):
        (forger.send_framed if framed else forger.send)(payload)
        sent[kind] += 1

    for _ in range(rounds):
        qp = chance.choice(qps)
        psn = chance.randrange(1 << 24)
        # Truncated datagrams, from no bytes to one byte less than a header and its ICRC.
        send("truncated", bth(0x04, qp, psn)[: chance.randrange(12)])
        send("truncated", bth(0x04, qp, psn) + b"\0\0\0")
        # Complete datagrams with a wrong checksum.
        send("bad_icrc", bth(0x04, qp, psn) + chance.randbytes(64) + b"\1\2\3\4")
        send("bad_icrc", bth(0x04, qp, psn) + chance.randbytes(9000))
        send("bad_icrc", chance.randbytes(chance.randrange(16, 1400)))
        send("bad_icrc", bth(0x04, qp, psn) + bytes(60000))
        # Datagrams with a right checksum that are wrong in what follows.
        send("opcode", bth(0xFF, qp, psn) + bytes(64), framed=True)
        send("version", bth(0x04, qp, psn, version=5) + bytes(64), framed=True)
        send("short_headers", bth(0x06, qp, psn) + bytes(4), framed=True)
        send("unknown_qp", bth(0x04, chance.randrange(2, 1 << 24) | 1 << 23, psn) + bytes(64), framed=True)
        # Datagrams that are right in themselves, from an address that the queue pair is not connected to.
        send("stranger", bth(0x04, qp, psn, ack_request=True) + chance.randbytes(64), framed=True)
        send("stranger", bth(0x11, qp, psn) + struct.pack("!I", 0x1F << 24), framed=True)
        send("stranger", bth(0x11, qp, psn) + struct.pack("!I", 0x63 << 24), framed=True)  # remote operational error
        send("stranger", bth(0x06, qp, psn) + struct.pack("!QII", 0, 0xDEADBEEF, 1 << 31) + bytes(4096), framed=True)
        send("stranger", bth(0x0C, qp, psn) + struct.pack("!QII", 0, 0xDEADBEEF, 1 << 31), framed=True)
        send("stranger", bth(0x81, qp, psn) + bytes(16), framed=True)
    print(dict(sent))


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(number, 0) for number in sys.argv[2:]])
