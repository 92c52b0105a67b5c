#!/usr/bin/env python3
"""./dev demo: runs Debian's own perftest over Tulle, measures TCP on the same machine, and compares fabrics in
virtual time."""

import signal
import subprocess
import sys

from measure import Failed, Place, harness, program


COMPARISON = ["compare", "--workload", "incast"]
REPORT = harness.BUILD / "demo"


def compare():
    """Returns the tables of one comparison of fabrics, and writes its page."""
    tulle = harness.BUILD / "bin" / "tulle"
    done = subprocess.run([tulle, *COMPARISON, "-o", REPORT], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60)
    if done.returncode != 0:
        raise Failed(done.stderr.strip() or f"tulle compare: exit status {done.returncode}")
    return done.stdout


def main():
    here = Place()
    steps = [
        ("ib_write_bw: RDMA WRITE of 1 MiB", lambda: here.bandwidth("ib_write_bw", 1 << 20, 3000)),
        ("iperf3: one TCP stream", lambda: here.iperf3("-t", "3")),
        ("ib_write_lat: RDMA WRITE of 8 bytes", lambda: here.latency("ib_write_lat", 8, 20000)),
        ("TCP, both sides polling", lambda: program("socket_pingpong", "--tcp", "--poll")["median_us"]),
        ("TCP, both sides blocking", lambda: program("socket_pingpong", "--tcp", "--block")["median_us"]),
    ]
    values = []
    for what, measure in steps:
        print(f"  {what} ...", flush=True)
        values.append(measure())
    write, tcp, latency, tcp_poll, tcp_block = values
    print(f"""
{'between two processes on this machine':40}{'Tulle':>12}{'TCP':>12}
{'bandwidth, 1 MiB messages':40}{write:7.2f} GB/s{tcp:7.2f} GB/s   one stream
{'latency, 8 bytes, half a round trip':40}{latency:9.2f} us{tcp_poll:9.2f} us   both polling
{'':40}{'':>12}{tcp_block:9.2f} us   both blocking

To run ib_write_bw by hand:
  build/bin/tulle run -- ib_write_bw &
  build/bin/tulle run -- ib_write_bw 127.0.0.1

The same adapters in virtual time (build/bin/tulle {' '.join(COMPARISON)}; --list names other traffic and fabrics):

{compare()}
The same as a page, with charts and the links of the network: {REPORT / "report.html"}""")


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"demo: {failure}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
