"""Sends to an echo server on several connections in turn, and compares what comes back: client.py CONNECTIONS ROUNDS"""

import os
import socket
import stat
import sys

CONNECTIONS, ROUNDS = int(sys.argv[1]), int(sys.argv[2])

peers = [socket.create_connection(("127.0.0.1", 7000)) for _ in range(CONNECTIONS)]
assert all(stat.S_ISSOCK(os.fstat(peer.fileno()).st_mode) for peer in peers)
for number in range(ROUNDS):
    data = os.urandom(30_000 if number % 2 else 10)
    for peer in peers:
        peer.sendall(data)
    for peer in peers:
        back = b""
        while len(back) < len(data):
            back += peer.recv(65536)
        assert back == data
print("over TCP" if ":%04X " % 7000 in open("/proc/net/tcp").read() else "over RDMA")
