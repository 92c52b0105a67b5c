#!/usr/bin/env python3
"""./dev bench live: measures the live device beside plain sockets, on this machine and at the same time.

Each figure is the median of several runs. A measurement and its peers take turns, so that all see the same machine. Each
row is appended to bench/history.jsonl with the commit and the machine.
With --json, the script prints one object a line: {"name", "value", "unit", "rounds", "peers": {name: {"value",
"ratio"}}}. A ratio is Tulle's value divided by the peer's.
"""

import argparse
import functools
import json
import os
import pathlib
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time

import history
from measure import Failed, Place, harness, program

MIB = 1 << 20
PORT = 18600
CABLE_MTU = 9000


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


class Row:
    """A measurement, and what else is measured in the same turns to set it beside."""

    def __init__(self, name, unit, measure, **peers):
        self.name, self.unit, self.measure, self.peers = name, unit, measure, peers

    def medians(self, rounds):
        """Returns the median, and those of the peers by name."""
        measures = {"": self.measure, **self.peers}
        values = {name: [] for name in measures}
        for _ in range(rounds):
            for name, measure in measures.items():
                values[name].append(measure())
        medians = {name: statistics.median(found) for name, found in values.items()}
        return medians.pop(""), medians


def field(name, *command, **options):
    """Returns a measurement: what one of our own programs prints under that name."""
    return lambda: program(*map(str, command), **options)[name]


def transfers(here):
    """Yields rows of what moves many bytes between two processes of one host."""
    for size, iterations, text in (65536, 30000, "64kib"), (MIB, 3000, "1mib"):
        for verb in "write", "read", "send":
            yield Row(f"{verb}_{text}", "GB/s", functools.partial(here.bandwidth, f"ib_{verb}_bw", size, iterations),
                      memcpy=field("gb_per_second", "memory_limits", "copy", size), tcp_iperf3=here.iperf3)


def small_messages(here):
    limits = {"process_vm": field("us", "memory_limits", "--count", 20000, "visit", 8),
              "cache_line": field("us", "memory_limits", "--count", 100000, "line"),
              "udp_polling": field("median_us", "socket_pingpong", "--udp", "--poll")}
    yield Row("write_rate_8b", "1/s", lambda: here.message_rate("ib_write_bw", 8, 500000))
    yield Row("send_rate_8b", "1/s", lambda: here.message_rate("ib_send_bw", 8, 300000))
    yield Row("write_latency_8b", "us", lambda: here.latency("ib_write_lat", 8, 20000), **limits)
    yield Row("send_latency_8b", "us", lambda: here.latency("ib_send_lat", 8, 20000), **limits)
    yield Row("send_latency_8b_events", "us", lambda: here.latency("ib_send_lat", 8, 5000, "-e"),
              udp_blocking=field("median_us", "socket_pingpong", "--udp", "--block"))


def under_ucx(here):
    """Yields rows of UCX's tests over Tulle's verbs, beside UCX's own way between processes of one host."""
    tests = {"tag_latency": "tag_lat", "am_latency": "ucp_am_lat", "tag_bandwidth": "tag_bw", "put_bandwidth": "ucp_put_bw"}
    sizes = {8: ("8b", 100000), 4096: ("4kib", 50000), 65536: ("64kib", 10000), MIB: ("1mib", 2000)}
    for name, test in tests.items():
        for size, (text, iterations) in sizes.items():
            def measure(over_tulle, run=(test, size, iterations), is_rate="bandwidth" in name):
                return here.ucx(*run, over_tulle)[1 if is_rate else 0]
            yield Row(f"ucx_{name}_{text}", "GB/s" if "bandwidth" in name else "us", functools.partial(measure, True),
                      ucx_shared_memory=functools.partial(measure, False))


# For each MPI: its compiler, and the environment and options by which its ranks meet in its own shared memory.
MPIS = {"openmpi": ("mpicc.openmpi", {}, ["--mca", "pml", "ob1", "--mca", "btl", "self,vader"]),
        "mpich": ("mpicc.mpich", {"UCX_TLS": "posix,cma,self"}, [])}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def mpi_pair(name, size, iterations, over_tulle, what):
    """Returns what two ranks of bench/live/mpi_pairs.c print under that name."""
    compiler, environment, options = MPIS[name]
    built = harness.BUILD / f"mpi_pairs_{name}"
    source = pathlib.Path(__file__).resolve().parent / "live" / "mpi_pairs.c"
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        # GCC takes what MPICH calls MPI_STATUSES_IGNORE for an array without elements.
        subprocess.run([compiler, "-O2", "-Wno-stringop-overflow", "-o", built, source], check=True)
    command = [f"mpirun.{name}", *([] if over_tulle else options), "-n", "2", built, str(size), str(iterations)]
    if over_tulle:
        command = [harness.TULLE, "run", "--interface", "lo", "--", *command]
    done = subprocess.run(list(map(str, command)), env={**os.environ, **AS_ROOT, **({} if over_tulle else environment)},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if done.returncode != 0 or not done.stdout.strip().startswith("{"):
        raise Failed(f"{name}: {done.stderr.strip().splitlines()[-1:] or done.stdout}")
    return json.loads(done.stdout)[what]


def fi_pingpong(place, folder, over_tulle, size, iterations):
    """Returns the microseconds of half a round trip of fi_pingpong, over the verbs provider or libfabric's own shared
    memory. The verbs provider takes no loopback interface, and listens on what `localhost` resolves to: that is the
    place's address, in a mount namespace of its own."""
    hosts = pathlib.Path(folder) / "hosts"
    hosts.write_text(f"{place.host} localhost\n")
    prefix = ["unshare", "--mount", "sh", "-c", f'mount --bind {hosts} /etc/hosts && exec "$@"', "sh"]
    provider = ["verbs;ofi_rxm"] if over_tulle else ["shm"]
    argv = ["fi_pingpong", "-p", *provider, "-e", "rdm", "-I", str(iterations), "-S", str(size)]
    command = [*prefix, *([harness.TULLE, "run", *place.options, "--"] if over_tulle else []), *argv]
    output = place.pair(command, [*command, place.host], 47592)
    lines = [line.split() for line in output.splitlines() if re.match(r"\d", line)]
    if len(lines) != 1:
        raise Failed(f"fi_pingpong -p {provider[0]} -S {size}: no result: {output}")
    return float(lines[0][6])  # the column usec/xfer


SIZES_OF_OTHERS = {8: ("8b", 20000), 65536: ("64kib", 5000), MIB: ("1mib", 1000)}


def under_mpi():
    """Yields rows of MPIs over Tulle, beside their own ways between processes of one host."""
    for size, (text, iterations) in SIZES_OF_OTHERS.items():
        for name in MPIS:
            what, unit = ("latency_us", "us") if size == 8 else ("gb_per_second", "GB/s")
            def measure(over_tulle, run=(name, size, iterations), what=what):
                return mpi_pair(*run, over_tulle, what)
            kind = "latency" if size == 8 else "bandwidth"
            yield Row(f"mpi_{name}_{kind}_{text}", unit, functools.partial(measure, True),
                      own_shared_memory=functools.partial(measure, False))


def under_libfabric(place, folder):
    """Yields rows of libfabric over Tulle, beside its own shared memory, between processes of one host."""
    for size, (text, iterations) in SIZES_OF_OTHERS.items():
        measure = functools.partial(fi_pingpong, place, folder, size=size, iterations=iterations)
        yield Row(f"libfabric_latency_{text}", "us", functools.partial(measure, True),
                  own_shared_memory=functools.partial(measure, False))


def side_by_side(here):
    """Yields rows of many queue pairs at once, and of a small exchange beside a large transfer."""
    yield Row("write_64kib_1000_queue_pairs", "GB/s", lambda: here.bandwidth("ib_write_bw", 65536, 100, "-q", 1000),
              one_queue_pair=lambda: here.bandwidth("ib_write_bw", 65536, 30000))
    for text, options in ("polling", ()), ("events", ("-e",)):
        def alone(options=options):
            return here.slow_latency("ib_send_lat", 8, 5000, *options)
        yield Row(f"send_latency_8b_p99_beside_bulk_{text}", "us", lambda alone=alone: here.beside_bulk(alone), alone=alone)


def exchanges():
    """Yields rows of programs that sleep until something comes."""
    shapes = {"64b": (2000, ()), "4kib": (2000, ("--request", 4096, "--answer", 4096)),
              "256kib": (500, ("--request", 262144, "--answer", 262144)), "storage_128kib": (1000, ("--data", 131072))}
    for text, (count, options) in shapes.items():
        alone = ("exchanges", "--count", count, *options)
        many = ("exchanges", "--count", 8 * count, "--depth", 16, *options)
        yield Row(f"exchange_{text}", "us", field("median_us", *alone, over_tulle=True),
                  tcp=field("median_us", *alone, "--tcp"))
        yield Row(f"exchanges_{text}_16", "1/s", field("per_second", *many, over_tulle=True),
                  tcp=field("per_second", *many, "--tcp"))


def over_cable(cable):
    yield Row("write_1mib_cable", "GB/s", lambda: cable.bandwidth("ib_write_bw", MIB, 1000), tcp_iperf3=cable.iperf3,
              segmented_udp=lambda: cable.segmented_udp(CABLE_MTU - 100))
    for verb in "write", "send":
        yield Row(f"{verb}_latency_8b_cable", "us", functools.partial(cable.latency, f"ib_{verb}_lat", 8, 10000),
                  udp_polling=cable.udp_pingpong)
    yield Row("processor_per_gib_cable", "s",
              lambda: cable.processor_seconds(lambda: cable.bandwidth("ib_send_bw", MIB, 4096, "-e")) / 4,
              tcp_iperf3=lambda: cable.processor_seconds(lambda: cable.iperf3("-n", "4G")) / 4)


def over_lossy_cable(cable, selective):
    """Yields rows of a network that loses packets, with selective repeat."""
    def write(place):
        return place.bandwidth("ib_write_bw", MIB, 500)

    for share, text in (0.001, "0.1"), (0.01, "1"):
        yield Row(f"write_1mib_loss_{text}_percent", "GB/s",
                  lambda share=share: selective.losing(share, lambda: write(selective)),
                  lossless=lambda: selective.losing(0, lambda: write(selective)),
                  go_back_n=lambda share=share: cable.losing(share, lambda: write(cable)),
                  tcp_iperf3=lambda share=share: cable.losing(share, cable.iperf3),
                  tcp_lossless=lambda: cable.losing(0, cable.iperf3))


def over_sealed_cable(sealed, cable, folder):
    def plain(size):
        return lambda: cable.bandwidth("ib_send_bw", size, 10000)

    yield Row("sealed_send_64kib", "GB/s", lambda: sealed.bandwidth("ib_send_bw", 65536, 10000), plain=plain(65536))
    yield Row("sealed_beside_tls", "GB/s", lambda: sealed.bandwidth("ib_send_bw", 65536, 10000),
              tls_over_tcp=lambda: sealed.tls(folder))
    yield Row("sealed_latency_8b", "us", lambda: sealed.latency("ib_send_lat", 8, 10000),
              plain=lambda: cable.latency("ib_send_lat", 8, 10000))


def slowest_call(kind):
    return max(program("verbs_calls", kind, over_tulle=True).values())


def control(here):
    tcp_connect = field("mean_us", "socket_pingpong", "--connect", "--iterations", "2000")
    yield Row("cm_connections", "1/s", lambda: here.connection_rate(2000))
    yield Row("cm_connect", "us", lambda: here.cmtime(1)["connect"], tcp_connect=tcp_connect)
    yield Row("queue_pair_setup", "us", field("setup_us", "queue_pairs", 1000, over_tulle=True), tcp_connect=tcp_connect)
    for kind in "queries", "objects", "registration":
        yield Row(f"slowest_call_{kind}", "us", functools.partial(slowest_call, kind))
    yield Row("idle_cpu", "%", idle_cpu_percent)
    yield Row("idle_queue_pair", "bytes", field("bytes", "queue_pairs", 1000, over_tulle=True))


def with_shared_memory(place):
    """Yields the rows that differ where peers map each other's registered memory (--share-memory)."""
    for row in *transfers(place), *small_messages(place), *under_ucx(place):
        row.name += "_shared"
        yield row


def rows(here, cable, selective, sealed, folder):
    yield from transfers(here)
    yield from small_messages(here)
    yield from under_ucx(here)
    yield from under_mpi()
    yield from with_shared_memory(Place(options=["--share-memory"]))
    yield from side_by_side(here)
    yield from exchanges()
    if cable is not None:
        one_host = Place(cable.server_net, cable.server_net, host=cable.host, interface="veth0")
        yield from under_libfabric(one_host, folder)
        yield from over_cable(cable)
        yield from over_lossy_cable(cable, selective)
    if sealed is not None:
        yield from over_sealed_cable(sealed, cable, folder)
    yield from control(here)


def human(value, unit):
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"


def report(row, as_json):
    if as_json:
        print(json.dumps(row), flush=True)
        return
    first = f"{row['name']:26}{human(row['value'], row['unit']):>16}"
    for name, peer in row["peers"].items():
        print(f"{first:42}{name:>20}{human(peer['value'], row['unit']):>16}{peer['ratio']:>8.2f}")
        first = ""
    if first:
        print(first)
    sys.stdout.flush()


def two_namespaces():
    """Returns two namespaces with a cable between them, or none where this machine does not allow them to be made."""
    try:
        first, second = harness.Namespace(), harness.Namespace()
    except (harness.Unavailable, OSError):
        return []
    harness.join(first, second, mtu=CABLE_MTU)
    return [first, second]


def place_in(namespaces, *options):
    """Returns the two hosts at the ends of the cable, which run programs with those options of `tulle run`."""
    return Place(*namespaces, host="10.0.0.1", interface="veth0", options=options) if namespaces else None


def main():
    parser = argparse.ArgumentParser(prog="./dev bench live")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each measurement (3)")
    parser.add_argument("--only", default="", help="measurements whose name contains this")
    parser.add_argument("--history", type=pathlib.Path, default=history.FILE, help="the file to append to")
    parser.add_argument("--no-history", action="store_true", help="append nothing")
    options = parser.parse_args()
    if not options.json:
        print(f"{'':26}{'Tulle':>16}{'peer':>20}{'':>16}{'ratio':>8}")
    folder = tempfile.TemporaryDirectory(prefix="tulle-bench-")
    key_file = pathlib.Path(folder.name) / "keys"
    key_file.touch(0o600)
    key_file.write_text(secrets.token_hex(32) + "\n")
    namespaces, sealed_namespaces = two_namespaces(), two_namespaces()
    cable = place_in(namespaces)
    selective = place_in(namespaces, "--recovery", "selective-repeat")
    sealed = place_in(sealed_namespaces, "--secure", key_file)
    failed = 0
    try:
        for each in rows(Place(), cable, selective, sealed, folder.name):
            if options.only not in each.name:
                continue
            try:
                value, peers = each.medians(options.rounds)
            except (Failed, AssertionError) as error:
                print(f"{each.name}: {error}", file=sys.stderr)
                failed += 1
                continue
            row = {"name": each.name, "value": value, "unit": each.unit, "rounds": options.rounds,
                   "peers": {name: {"value": peer, "ratio": value / peer} for name, peer in peers.items()}}
            report(row, options.json)
            if not options.no_history:
                history.append({"live": row.pop("name"), **row}, options.history)
    finally:
        for namespace in namespaces + sealed_namespaces:
            namespace.close()
        folder.cleanup()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
