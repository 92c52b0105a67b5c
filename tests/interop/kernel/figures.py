#!/usr/bin/env python3
"""figures.py [RUNS]: measures bandwidth and latency by perftest between Tulle and the kernel's Soft-RoCE, either one as
the client, and between two of these kernels joined to each other. The figures are medians of RUNS runs (5). The kernel
is a User-Mode-Linux process with one CPU: its figures are its own, and not those of Soft-RoCE on a machine.
"""

import os
import pathlib
import socket
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "clients")]

from harness import Namespace, TULLE, Process, listens, table_rows, wait_until  # noqa: E402
from peer import KernelPeer  # noqa: E402
from world import ADDRESS, KERNEL_GID, World, enter  # noqa: E402

MTU = 5000  # bytes, for a path MTU of 4096
PORT = 18515
# (what is measured, perftest's program, its options, the column of its result, the unit)
MEASURES = [
    ("RDMA WRITE, 64 KiB", "ib_write_bw", ["--report_gbits", "-n", "1000", "-s", "65536"], 3, "Gb/s"),
    ("RDMA READ, 64 KiB", "ib_read_bw", ["--report_gbits", "-o", "16", "-n", "1000", "-s", "65536"], 3, "Gb/s"),
    ("SEND, 64 KiB", "ib_send_bw", ["--report_gbits", "-n", "1000", "-s", "65536"], 3, "Gb/s"),
    ("RDMA WRITE, 8 B", "ib_write_lat", ["-n", "2000", "-s", "8"], 4, "us"),
    ("SEND, 8 B", "ib_send_lat", ["-n", "2000", "-s", "8"], 4, "us"),
    ("RDMA READ, 8 B", "ib_read_lat", ["-o", "16", "-n", "2000", "-s", "8"], 4, "us"),
]


class Side:
    """The place where one end of a measurement runs."""

    def __init__(self, address, gid, start, listens_on):
        self.address, self.gid, self.start, self.listens = address, gid, start, listens_on


def tulle_side(world):
    def start(argv):
        return Process([TULLE, "run", "--", *argv], net=world.net)

    return Side(ADDRESS["ipv4"]["tulle"], world.gid["tulle", "ipv4"], start, listens)


def kernel_side(peer, gid):
    return Side(peer.ipv4, peer.gid_index(gid), lambda argv: peer.start(*argv), lambda _, port: peer.listens(port))


def measure(server_side, client_side, program, options, column):
    argv = [program, "-F", "-p", str(PORT), *options]
    server = server_side.start([*argv, "-x", str(server_side.gid)])
    try:
        wait_until(lambda: server_side.listens(server, PORT) or not server.running, "the server", pause=0.05)
        client = client_side.start([*argv, "-x", str(client_side.gid), server_side.address])
        try:
            if client.wait(120) != 0:
                raise AssertionError(f"{client.describe()}\n{server.describe()}")
            server.wait(10)
            rows = table_rows(client.stdout)
            if not rows:  # perftest could not find out the clock's rate: its times are "inf"
                raise AssertionError(f"the machine is too busy to measure\n{client.describe()}")
            return rows[0][column]
        finally:
            client.close()
    finally:
        server.close()


def main(runs):
    if os.geteuid() != 0:
        sys.exit("figures.py: needs root, for network namespaces and taps")
    # Each measurement gets a new kernel, since both ends share two cores and a third process would take from them.
    results = {}

    def series(title, server_side, client_side):
        for what, program, options, column, unit in MEASURES:
            values = [measure(server_side, client_side, program, options, column) for _ in range(runs)]
            results[title, what] = statistics.median(values)
            print(f"  {title}: {what}: {results[title, what]:.2f} {unit}  ({min(values):.2f} to {max(values):.2f})",
                  flush=True)

    world = World(MTU)
    try:
        tulle, kernel = tulle_side(world), kernel_side(world.peer, KERNEL_GID["ipv4"])
        series("Tulle to kernel", kernel, tulle)
        series("kernel to Tulle", tulle, kernel)
    finally:
        world.close()
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    net, peers = Namespace(), []
    try:
        for host, end in zip((2, 3), ends):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            peers.append(KernelPeer(enter(net), f"fd,fd={end.fileno()}", host, MTU, (end.fileno(),)))
            end.close()
        sides = [kernel_side(peer, f"{KERNEL_GID['ipv4'][:-4]}{host:04x}") for peer, host in zip(peers, (2, 3))]
        series("kernel to kernel", *sides)
    finally:
        for peer in peers:
            peer.close()
        net.close()
    titles = list(dict.fromkeys(title for title, _ in results))
    print(f"\n{'':24}" + "".join(f"{title:>20}" for title in titles))
    for what, _, _, _, unit in MEASURES:
        print(f"{what:24}" + "".join(f"{results[title, what]:>15.2f} {unit:4}" for title in titles))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
