#!/usr/bin/env python3
"""./dev bench cut: how long a connection stands still when a cable of its way is cut, live and simulated.

A software fabric with the topology of bench/fabric/cut.toml runs an RC connection, and the cable that it uses is cut, once
under the fabric's own subnet manager and once under OpenSM. The simulator runs the same file. Both write captures, and
the figure is the same in all of them: the longest time between two packets with data that reach the receiver.

Prints a row for each, the median of several cuts, and appends them to bench/history.jsonl. With --json, the script prints
one object a line: {"name", "value", "unit", "rounds"}.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import history
from measure import ROOT, harness

SCENARIO = ROOT / "bench" / "fabric" / "cut.toml"
ROUNDS = 5
PORT = 18650
SECONDS = 3  # of data
# A switch sends a trap a second (IBTA 14.2.5.6 calls it SubnetTimeOut): a cut right after another change would wait.
BETWEEN_TRAPS = 1.5
DATA = {6, 7, 8, 10}  # opcodes of RC WRITE: first, middle, last, only
# The capture keeps this much of each packet: up to its BTH, behind a GRH.
KEPT_BYTES = 80
# A packet every 16 us (0.25 GB/s, the rate of the hosts in the file), and no more than 16 that wait for an acknowledgement:
# the connection stands still while its way is cut, as a full one does.
LOAD = ["--rate_limit=0.25", "--rate_units=g", "--rate_limit_type=SW", "--burst_size=1", "-t", "16", "-Q", "1"]


def longest_gap(capture, interface, source, since=0.0):
    """Returns the longest time between two packets with data from one LID, in milliseconds, that ends after `since`. With
    `interface`, those packets count that left by that port."""
    fields = ["frame.time_epoch", "frame.interface_name", "infiniband.lrh.slid", "infiniband.bth.opcode"]
    argv = ["tshark", "-r", capture, "-T", "fields", *(part for field in fields for part in ("-e", field))]
    last, gap = None, 0.0
    for line in subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines():
        at, name, lid, opcode = line.split("\t")
        if not opcode or int(opcode, 0) not in DATA or int(lid, 0) != source:
            continue
        if interface is not None and name != interface:
            continue
        at = float(at)
        if last is not None and at > since:
            gap = max(gap, at - last)
        last = at
    if last is None:
        raise SystemExit(f"cut: {capture} has no packet with data from LID {source}")
    return 1000 * gap


class Fabric:
    """A software fabric with the scenario's topology, in a folder of its own."""

    def __init__(self, folder, has_own_manager):
        self.folder = pathlib.Path(folder)
        self.environment = {"XDG_RUNTIME_DIR": folder, "OSM_CACHE_DIR": folder}
        self.processes = []
        options = [] if has_own_manager else ["--no-manager"]
        self.start(harness.TULLE, "fabric", "up", "--foreground", *options, SCENARIO)
        harness.wait_until(lambda: list(self.folder.glob("tulle/fabric_default_*/socket")), "the fabric", 20)
        if not has_own_manager:
            self.start(*self.on_host("h2", "/usr/sbin/opensm", "-f", self.folder / "opensm.log"))
        harness.wait_until(self.is_active, "active ports", 30, pause=0.1)

    def start(self, *argv):
        process = harness.Process(argv, env=self.environment)
        self.processes.append(process)
        return process

    def tulle(self, *argv):
        process = self.start(harness.TULLE, *argv)
        if process.wait(30) != 0:
            raise SystemExit(process.describe())
        return process.stdout

    def on_host(self, host, *argv):
        return [harness.TULLE, "run", "--host", host, "--", *argv]

    def nodes(self):
        status = json.loads(self.tulle("fabric", "status", "--json"))
        return {node["name"]: node for node in status["hosts"] + status["switches"]}

    def is_active(self):
        return {port["state"] for node in self.nodes().values() for port in node["ports"] if not port["cut"]} == {"active"}

    def close(self):
        for process in reversed(self.processes):
            process.close()

    def spine(self):
        """Returns the spine by which leaf0 sends to h3."""
        nodes = self.nodes()
        output = self.start(*self.on_host("h2", "/usr/sbin/ibtracert", str(nodes["h0"]["lids"][0]), str(nodes["h3"]["lids"][0])))
        output.wait(30)
        found = re.search(r"spine (\d)", output.stdout)
        if not found:
            raise SystemExit(output.describe())
        return f"spine{found[1]}"

    def cut_once(self):
        """Cuts the cable that a connection uses. Returns how long its data stood still."""
        harness.wait_until(self.is_active, "active ports", 30, pause=0.1)
        time.sleep(BETWEEN_TRAPS)
        nodes = self.nodes()
        port = next(port["port"] for port in nodes["leaf1"]["ports"] if port.get("peer") == "h3")
        capture_file = self.folder / "cut.pcapng"
        capture_file.unlink(missing_ok=True)
        argv = ["ib_write_bw", "-F", "-D", str(SECONDS), "-s", "4096", *LOAD, "-p", str(PORT)]
        server = self.start(*self.on_host("h3", *argv))
        harness.wait_until(lambda: harness.listens(server, PORT), "the server", 20)
        capture = self.start(harness.TULLE, "capture", "--fabric", "default", "-s", str(KEPT_BYTES), "-o", capture_file)
        client = self.start(*self.on_host("h0", *argv, "h3"))
        time.sleep(SECONDS / 2)
        spine = self.spine()
        began = time.time()
        self.tulle("fabric", "cut", "leaf0", spine)
        if client.wait(60) != 0 or server.wait(60) != 0:
            raise SystemExit(client.describe() + server.describe())
        capture.signal(signal.SIGINT)
        capture.wait(60)
        self.tulle("fabric", "join", "leaf0", spine)
        return longest_gap(capture_file, f"leaf1 port {port}", nodes["h0"]["lids"][0], began)


def live(has_own_manager):
    with tempfile.TemporaryDirectory() as folder:
        fabric = None
        try:
            fabric = Fabric(folder, has_own_manager)
            return [fabric.cut_once() for _ in range(ROUNDS)]
        finally:
            if fabric is not None:
                fabric.close()


def simulated():
    """Returns the figure for each cut that the connection from host 0 notices. LIDs begin at 1 in a simulation."""
    gaps = []
    with tempfile.TemporaryDirectory() as folder:
        for spine in ("spine0", "spine1"):
            capture = pathlib.Path(folder) / f"{spine}.pcapng"
            subprocess.run([harness.TULLE, "sim", SCENARIO, "--variant", spine, "--capture", capture, "--capture-at",
                            "host 3", "--json"], stdout=subprocess.DEVNULL, check=True)
            gap = longest_gap(capture, None, 1)
            if gap > 1:
                gaps.append(gap)
    return gaps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    arguments = parser.parse_args()
    rows = (("cut: live, the fabric's own manager", lambda: live(True)), ("cut: live, OpenSM", lambda: live(False)),
            ("cut: simulated", simulated))
    for name, measure in rows:
        gaps = measure()
        row = {"name": name, "value": statistics.median(gaps), "unit": "ms", "rounds": len(gaps)}
        history.append(row)
        spread = f"{min(gaps):.1f} to {max(gaps):.1f}"
        said = f"{name:40} {row['value']:8.1f} ms   ({spread}, {len(gaps)} cuts)"
        print(json.dumps(row) if arguments.json else said, flush=True)
    return 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
