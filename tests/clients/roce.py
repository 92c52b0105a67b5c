"""Makes RoCE v2 datagrams by hand, with or without a right checksum, for tests that throw them at a device.

The code follows the wire format alone and is independent of the code under test.
"""

import socket
import struct
import zlib

PORT = 4791


def bth(opcode, qp, psn, ack_request=False, pad=0, pkey=0xFFFF, version=0):
    return struct.pack("!BBHII", opcode, pad << 4 | version, pkey, qp & 0xFFFFFF,
                       (0x80000000 if ack_request else 0) | psn & 0xFFFFFF)


def icrc(source, destination, source_port, body):
    """Returns the ICRC of an IPv4 datagram as an unconnected socket that never fragments sends it: identification 0,
    DF."""
    length = 20 + 8 + len(body) + 4
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0xFF, length, 0, 0x4000, 0xFF, socket.IPPROTO_UDP, 0xFFFF,
                     socket.inet_aton(source), socket.inet_aton(destination))
    udp = struct.pack("!HHHH", source_port, PORT, length - 20, 0xFFFF)
    masked = body[:4] + b"\xff" + body[5:]
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + ip + udp + masked))


def icrc_v1(packet):
    """Returns the ICRC of a packet of RoCE v1, from its GRH on and without its ICRC (IBTA 7.8.1 and A16)."""
    first = struct.pack("!I", struct.unpack("!I", packet[:4])[0] | 0x0FFFFFFF)
    masked = first + packet[4:7] + b"\xff" + packet[8:44] + b"\xff" + packet[45:]
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + masked))


class Forger:
    """A sender with an address of its own."""

    def __init__(self, source="127.0.0.9", destination="127.0.0.1", source_port=0xC123):
        self.source, self.destination, self.source_port = source, destination, source_port
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER = IP_PMTUDISC_DO
        self.socket.bind((source, source_port))

    def send(self, payload):
        self.socket.sendto(payload, (self.destination, PORT))

    def send_framed(self, body):
        """Sends a datagram with the right ICRC."""
        self.send(body + icrc(self.source, self.destination, self.source_port, body))
