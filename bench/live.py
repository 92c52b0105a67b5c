#!/usr/bin/env python3
"""./dev bench live: measures the live device beside plain sockets, on this machine and at the same time.

Each figure is the median of several runs. A measurement and its peer take turns, so that both see the same machine.
With --json, the script prints one object a line: {"name", "value", "unit", "peer", "peer_value", "ratio"}; ratio is
value / peer_value.
"""

import argparse
import json
import os
import pathlib
import secrets
import statistics
import sys
import tempfile
import time

from measure import Failed, Place, harness, program

MIB = 1 << 20
PORT = 18600


def idle_cpu_percent():
    """Returns the processor time that two connected idle processes take together, in percent."""
    command = [harness.TULLE, "run", "--interface", "lo", "--", harness.INTEGRITY, "-M", "idle", "-p", str(PORT)]
    server = harness.Process(command)
    client = None
    try:
        harness.wait_until(lambda: harness.listens(server, PORT), "the server", 20)
        client = harness.Process([*command, "127.0.0.1"])
        harness.wait_until(lambda: "idle" in client.stdout, "the connection", 20)
        time.sleep(0.5)
        before = harness.cpu_ticks(server.pid) + harness.cpu_ticks(client.pid)
        time.sleep(3)
        ticks = harness.cpu_ticks(server.pid) + harness.cpu_ticks(client.pid) - before
        return 100 * ticks / os.sysconf("SC_CLK_TCK") / 3
    finally:
        for process in (client, server):
            if process is not None:
                process.close()


def measurements(here, cable, sealed, folder):
    """Yields (name, unit, measure, peer's name or None, peer's measure)."""
    def udp(way):
        return lambda: program("socket_pingpong", "--udp", way)["median_us"]

    yield "write_1mib", "GB/s", lambda: here.bandwidth("ib_write_bw", MIB, 3000), "tcp_iperf3", here.iperf3
    yield "read_1mib", "GB/s", lambda: here.bandwidth("ib_read_bw", MIB, 3000), "tcp_iperf3", here.iperf3
    yield "send_64kib", "GB/s", lambda: here.bandwidth("ib_send_bw", 65536, 30000), "tcp_iperf3", here.iperf3
    yield "write_rate_8b", "1/s", lambda: here.message_rate("ib_write_bw", 8, 500000), None, None
    yield "send_rate_8b", "1/s", lambda: here.message_rate("ib_send_bw", 8, 300000), None, None
    yield "write_latency_8b", "us", lambda: here.latency("ib_write_lat", 8, 20000), "udp_polling", udp("--poll")
    yield "send_latency_8b", "us", lambda: here.latency("ib_send_lat", 8, 20000), "udp_polling", udp("--poll")
    yield "send_latency_8b_events", "us", lambda: here.latency("ib_send_lat", 8, 5000, "-e"), "udp_blocking", udp("--block")
    if cable is not None:
        yield "write_1mib_cable", "GB/s", lambda: cable.bandwidth("ib_write_bw", MIB, 1000), "tcp_iperf3", cable.iperf3
        yield "write_latency_8b_cable", "us", lambda: cable.latency("ib_write_lat", 8, 10000), None, None
    if sealed is not None:
        def plain(size):
            return lambda: cable.bandwidth("ib_send_bw", size, 10000)

        yield "sealed_send_64kib", "GB/s", lambda: sealed.bandwidth("ib_send_bw", 65536, 10000), "plain", plain(65536)
        yield ("sealed_beside_tls", "GB/s", lambda: sealed.bandwidth("ib_send_bw", 65536, 10000),
               "tls_over_tcp", lambda: sealed.tls(folder))
        yield ("sealed_latency_8b", "us", lambda: sealed.latency("ib_send_lat", 8, 10000),
               "plain", lambda: cable.latency("ib_send_lat", 8, 10000))
    yield "cm_connections", "1/s", lambda: here.connection_rate(2000), None, None
    yield ("cm_connect", "us", lambda: here.cmtime(1)["connect"],
           "tcp_connect", lambda: program("socket_pingpong", "--connect", "--iterations", "2000")["mean_us"])
    yield "idle_cpu", "%", idle_cpu_percent, None, None
    yield "idle_queue_pair", "bytes", lambda: program("queue_pairs", "1000", over_tulle=True)["bytes"], None, None
    yield ("queue_pair_setup", "us", lambda: program("queue_pairs", "1000", over_tulle=True)["setup_us"],
           "tcp_connect", lambda: program("socket_pingpong", "--connect", "--iterations", "2000")["mean_us"])


def measured(measure, peer_measure, rounds):
    values, peer_values = [], []
    for _ in range(rounds):
        values.append(measure())
        if peer_measure is not None:
            peer_values.append(peer_measure())
    return statistics.median(values), statistics.median(peer_values) if peer_values else None


def human(value, unit):
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"


def report(row, as_json):
    if as_json:
        print(json.dumps(row), flush=True)
        return
    peer = ""
    if row["peer"] is not None:
        peer = f"{row['peer']:>14}{human(row['peer_value'], row['unit']):>16}{row['ratio']:>8.2f}"
    print(f"{row['name']:26}{human(row['value'], row['unit']):>16}{peer}", flush=True)


def two_namespaces(key_file=None):
    """Returns two hosts with a cable of MTU 9000 between them, where this machine allows them to be made. With a file
    of keys they seal what they send."""
    try:
        first, second = harness.Namespace(), harness.Namespace()
    except (harness.Unavailable, OSError):
        return None, []
    harness.join(first, second, mtu=9000)
    return Place(first, second, host="10.0.0.1", interface="veth0", key_file=key_file), [first, second]


def main():
    parser = argparse.ArgumentParser(prog="./dev bench live")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each measurement (3)")
    parser.add_argument("--only", default="", help="measurements whose name contains this")
    options = parser.parse_args()
    if not options.json:
        print(f"{'':26}{'Tulle':>16}{'peer':>14}{'':>16}{'ratio':>8}")
    folder = tempfile.TemporaryDirectory(prefix="tulle-bench-")
    key_file = pathlib.Path(folder.name) / "keys"
    key_file.touch(0o600)
    key_file.write_text(secrets.token_hex(32) + "\n")
    cable, namespaces = two_namespaces()
    sealed, more_namespaces = two_namespaces(key_file)
    failed = 0
    try:
        for name, unit, measure, peer, peer_measure in measurements(Place(), cable, sealed, folder.name):
            if options.only not in name:
                continue
            try:
                value, peer_value = measured(measure, peer_measure, options.rounds)
            except (Failed, AssertionError) as error:
                print(f"{name}: {error}", file=sys.stderr)
                failed += 1
                continue
            ratio = value / peer_value if peer_value else None
            report({"name": name, "value": value, "unit": unit, "peer": peer, "peer_value": peer_value, "ratio": ratio},
                   options.json)
    finally:
        for namespace in namespaces + more_namespaces:
            namespace.close()
        folder.cleanup()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
