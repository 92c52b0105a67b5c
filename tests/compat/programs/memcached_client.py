"""Stores values in memcached by several connections, and compares what comes back: memcached_client.py HOST PORT BYTES"""

import socket
import sys

HOST, PORT, BYTES = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
CONNECTIONS, VALUE_BYTES = 10, 10_000


def receive(peer, bytes_wanted):
    data = b""
    while len(data) < bytes_wanted:
        part = peer.recv(65536)
        assert part, data
        data += part
    return data


peers = [socket.create_connection((HOST, PORT)) for _ in range(CONNECTIONS)]
for number in range(-(-BYTES // (CONNECTIONS * VALUE_BYTES))):
    values = [bytes((number + i + k) % 256 for k in range(VALUE_BYTES)) for i in range(CONNECTIONS)]
    for i, peer in enumerate(peers):
        peer.sendall(b"set key%d 0 0 %d\r\n" % (i, VALUE_BYTES) + values[i] + b"\r\n")
    for peer in peers:
        assert receive(peer, 8) == b"STORED\r\n"
    for i, peer in enumerate(peers):
        peer.sendall(b"get key%d\r\n" % i)
    for i, peer in enumerate(peers):
        expected = b"VALUE key%d 0 %d\r\n" % (i, VALUE_BYTES) + values[i] + b"\r\nEND\r\n"
        assert receive(peer, len(expected)) == expected
print("ok")
