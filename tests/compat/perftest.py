"""perftest: groups of tests/clients (perftest, raw), and connections that librdmacm sets up (-R)."""

import frame
import rdma_cm
from frame import Case
from harness import table_rows

NAME = "perftest"
PACKAGES = ["perftest"]
WHAT = ("The `bw` and `lat` programs of `ib_write_`, `ib_read_`, `ib_send_` and `ib_atomic_`, over RC, UC and UD: 2 "
        "bytes to 8 MiB, every MTU, with polling and with events, with shared receive queues, in both directions, and "
        "with `-R` (librdmacm connects them). `raw_ethernet_bw` and `raw_ethernet_lat` run as root.")
GROUPS = ["perftest", "raw.Perftest"]

ITERATIONS = 100
SMALLEST_BYTES = 2  # the latency tests' messages
CONNECTED = {
    "write_bw": ["ib_write_bw"],
    "write_lat": ["ib_write_lat"],
    "read_bw": ["ib_read_bw"],
    "read_lat": ["ib_read_lat"],
    "send_bw": ["ib_send_bw"],
    "send_lat": ["ib_send_lat"],
    "send_bw_events": ["ib_send_bw", "-e"],
    "send_bw_srq": ["ib_send_bw", "--use-srq", "-q", "2"],
    "write_bw_four_queue_pairs": ["ib_write_bw", "-q", "4"],
    "write_bw_both_ways": ["ib_write_bw", "-b"],
    "atomic_bw": ["ib_atomic_bw"],
    "send_bw_ud": ["ib_send_bw", "-c", "UD", "-s", "1024"],
}


def connected(stage, place, argv):
    argv = [*argv, "-R", "-F", "-n", str(ITERATIONS), "-p", "18515"]
    _, client = rdma_cm.pair(stage, argv, [*argv, place.host], place.server, place.client, prefix=place.prefix)
    stage.assertTrue(table_rows(client.stdout), client.describe())


def cases():
    for name, argv in CONNECTED.items():
        for place in ("one_host", "two_hosts"):
            yield Case(f"rdma_cm.{place}.{name}",
                       lambda stage, place=place, argv=argv: connected(stage, frame.PLACES[place](stage), argv),
                       bytes_min=ITERATIONS * SMALLEST_BYTES)
