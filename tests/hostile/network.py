"""Floods a host with forged datagrams while honest programs work there, and judges what becomes of them.

    hostile.py network [--datagrams N] [--requests N] [--seed S] [--record]

Three network namespaces are three hosts: the target and its peer, joined by a cable, and a stranger with a cable of its own
to the target. Honest programs run on the target and the peer: one that checks every byte of every operation, by packets
over both families and over the target's loopback; streams over rsockets, verified; connections by the host agents, timed,
in both directions. The stranger (tests/hostile/forger) sends random bytes, well-formed packets, mutated copies of what it
overheard, batches, management datagrams and messages of the connection manager, 0 to 65,527 bytes long, over IPv4 and IPv6,
from addresses of its own and from the connected peer's. The phases are:

    plain       as described
    captured    `tulle capture` runs on the target meanwhile
    sealed      the honest programs run with `tulle run --secure`; the stranger also repeats what it overheard as it was,
                and draws from all PSNs
    requests    requests for connections alone, to real listeners, from addresses without number

Without a seal the network is trusted: whoever has the peer's address, a queue pair's number, a PSN that is expected and, for
memory, a key, is taken for the peer. The stranger draws keys and PSNs at random. In the phases without a seal it leaves out
the PSNs that the honest programs use from the peer's address, as well as datagrams of unreliable transports, which have no
order that would refuse them.

Only datagrams that programs or the agent received count (InDatagrams of the target, less what honest programs sent to it),
not those that the kernel dropped. The pace follows the target, which has to keep up.
"""

import argparse
import array
import contextlib
import ctypes
import datetime
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "clients")]

import harness  # noqa: E402
import run as clients  # noqa: E402

RECORD = harness.ROOT / "docs" / "reliability" / "hostile_network.json"
FORGER = harness.BUILD / "bin" / "forger"
SOAK = harness.BUILD / "bin" / "soak"
TARGETS = "10.0.0.1,fd00::1"
PEERS = "10.0.0.2,fd00::2"
STRANGERS = "10.64.0.0,fd64::"
LISTENER = 18710
ROUND = 250_000  # datagrams for which the stranger uses what it overheard once
PHASES = {"plain": 0.45, "captured": 0.35, "sealed": 0.2}  # shares of the datagrams
WEIGHTS = {
    "random bytes": 20, "random bytes, the peer's address": 10, "truncated packets": 5, "longest datagrams": 1,
    "well-formed packets": 20, "well-formed packets, the peer's address": 20, "mutated copies": 8,
    "mutated copies, the peer's address": 8, "batches": 1, "management datagrams": 2, "connection messages": 3,
    "connection messages, the peer's address": 1, "requests for connections": 1,
}
SEALED_WEIGHTS = {**WEIGHTS, "exact copies": 10, "exact copies, the peer's address": 10}
REQUEST_WEIGHTS = {"requests for connections": 1}
MEMORY_GOAL_KIB = 64 * 1024
CONNECT_GOAL_S = 2.0
FINISH_LIMIT = 180  # seconds in which honest programs end once the flood has
RECORDED_FROM = 1_000_000  # datagrams


def say(text):
    print(f"hostile network: {text}", file=sys.stderr, flush=True)


# --- the hosts -----------------------------------------------------------------------------------------------------


class Place(contextlib.ExitStack):
    """The three hosts."""

    def __init__(self):
        super().__init__()
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self.target, self.peer, self.stranger = (self.namespace() for _ in range(3))
            harness.join(self.target, self.peer)
            self.add_strangers_cable()
            undo.pop_all()

    def namespace(self):
        net = harness.Namespace()
        self.callback(net.close)
        return net

    def add_strangers_cable(self):
        target, stranger = self.target, self.stranger
        target.run("ip", "link", "add", "wild0", "type", "veth", "peer", "name", "wild0", "netns",
                   str(stranger.holder.pid))
        stranger.run("sh", "-c", "for each in all default; do echo 0 > /proc/sys/net/ipv6/conf/$each/accept_dad; done")
        for host, net in enumerate((target, stranger), start=1):
            # Datagrams with the peer's address come from the stranger's cable.
            net.run("sh", "-c", "for each in all wild0; do echo 0 > /proc/sys/net/ipv4/conf/$each/rp_filter; done")
            net.run("ip", "address", "add", f"10.1.0.{host}/24", "dev", "wild0")
            net.run("ip", "-6", "address", "add", f"fd01::{host}/64", "dev", "wild0", "nodad")
            net.run("ip", "link", "set", "wild0", "up")
        for net in (target, stranger):
            harness.wait_until(lambda net=net: "state UP" in net.run("ip", "link", "show", "dev", "wild0"), "the cable")
        target.run("ip", "route", "add", "10.64.0.0/10", "via", "10.1.0.2")
        target.run("ip", "-6", "route", "add", "fd64::/64", "via", "fd01::2")
        stranger.run("ip", "route", "add", "local", "10.64.0.0/10", "dev", "lo")
        stranger.run("ip", "-6", "route", "add", "local", "fd64::/64", "dev", "lo")
        stranger.run("ip", "route", "add", "10.0.0.1/32", "via", "10.1.0.1")
        stranger.run("ip", "-6", "route", "add", "fd00::1/128", "via", "fd01::1")

    def start(self, net, *argv, prefix=()):
        process = harness.Process([*prefix, *argv], net=net)
        self.callback(process.close)
        return process

    def status(self, net):
        process = harness.Process([harness.TULLE, "status", "--json"], net=net)
        try:
            if process.wait(20) != 0:
                raise AssertionError(process.describe())
            return json.loads(process.stdout)
        finally:
            process.close()


def overhear(net, interface, most=2000, seconds=0.3):
    """Returns UDP payloads that came to port 4791 over an interface, as the forger reads them, and their destinations'
    queue pair numbers."""
    opened = []

    def enter():
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(net.fd, harness.CLONE_NEWNET) == 0:
            opened.append(socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3)))

    thread = threading.Thread(target=enter)  # the namespace is the thread's own
    thread.start()
    thread.join()
    found, numbers = bytearray(), set()
    with opened[0] as packets:
        packets.bind((interface, 3))
        packets.settimeout(0.02)
        ends = time.monotonic() + seconds
        while most > 0 and time.monotonic() < ends:
            try:
                packet, about = packets.recvfrom(5000)
            except TimeoutError:
                continue
            header = (packet[0] & 15) * 4 if packet[0] >> 4 == 4 else 40
            protocol = packet[9] if packet[0] >> 4 == 4 else packet[6]
            udp = packet[header:header + 8]
            payload = packet[header + 8:]
            if protocol != socket.IPPROTO_UDP or int.from_bytes(udp[2:4], "big") != 4791 or not 16 <= len(payload) < 4200:
                continue
            found += len(payload).to_bytes(2, "big") + payload
            most -= 1
            if about[2] != socket.PACKET_OUTGOING:
                numbers.add(int.from_bytes(payload[5:8], "big"))
    return bytes(found), numbers


def udp_counters(net):
    """Returns {"received": ..., "lost": ..., "refused": ...} of both families: what programs received, what found no
    room in their sockets, and what the kernel dropped for another reason."""
    folder = pathlib.Path(f"/proc/{net.holder.pid}/net")
    names, values = re.findall(r"(?m)^Udp: (.*)$", (folder / "snmp").read_text())
    old = dict(zip(names.split(), map(int, values.split())))
    new = {name: int(value) for name, value in re.findall(r"(?m)^Udp6(\w+)\s+(\d+)$", (folder / "snmp6").read_text())}
    both = {name: old[name] + new[name] for name in ("InDatagrams", "InErrors", "RcvbufErrors")}
    return {"received": both["InDatagrams"], "lost": both["RcvbufErrors"],
            "refused": both["InErrors"] - both["RcvbufErrors"]}


def peak_kib(pid):
    return int(re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


# --- honest programs -----------------------------------------------------------------------------------------------


class Honest:
    """A program that works again and again until it is told to stop: a server and a client that must both succeed."""

    def __init__(self, name, place, server, client, says):
        self.name, self.place, self.server_of, self.client_of, self.says = name, place, server, client, says
        self.rounds = self.operations = 0
        self.fault = None
        self.processes = ()
        self.stopping = False
        self.start()

    def start(self):
        self.began = time.monotonic()
        self.processes = (self.server_of(self.rounds),)
        self.client_waits = True

    def tick(self):
        """Returns whether the program is done."""
        if self.fault or not self.processes:
            return True
        if self.client_waits and time.monotonic() > self.began + 0.5:
            self.processes += (self.client_of(self.rounds),)
            self.client_waits = False
        failed = next((each for each in self.processes if each.popen.poll() not in (None, 0)), None)
        if failed is not None:
            self.fault = f"{self.name}: a program failed in round {self.rounds}.\n{failed.describe()}"
        elif not self.client_waits and not any(each.running for each in self.processes):
            self.finish_round()
        return bool(self.fault) or not self.processes

    def finish_round(self):
        for each in self.processes:
            found = re.search(self.says, each.stdout)
            if found is None:
                self.fault = f"{self.name}: a program did not say that all is well.\n{each.describe()}"
                return
            self.operations += int(found[1]) if found.groups() else 1
            each.close()
        self.rounds += 1
        self.processes = ()
        if not self.stopping:
            self.start()


class Honesty:
    """All honest programs of a phase. Ports differ by name, since a pair may begin while another's sockets close."""

    def __init__(self, place, options, folder, light):
        self.place, self.options, self.folder = place, options, folder
        target, peer = place.target, place.peer
        self.latencies = [folder / "to-target", folder / "to-peer"]
        self.listeners = [place.start(net, *self.over(SOAK, "server", f"{address}:{LISTENER}"))
                          for net, address in ((target, "10.0.0.1"), (peer, "10.0.0.2"))]
        harness.wait_until(lambda: all((place.status(net)["agent"] or {}).get("listeners") for net in (target, peer)),
                           "the listeners")
        self.programs = [
            self.integrity("every operation, IPv4", 18601, target, peer, "10.0.0.1", 0, 0),
            self.connections("connections to the target", peer, "10.0.0.1", 0),
            self.connections("connections to the peer", target, "10.0.0.2", 1),
        ]
        if not light:
            self.programs += [
                self.integrity("every operation, IPv6", 18602, target, peer, "fd00::1", 2, 1),
                self.integrity("every operation, loopback by packets", 18603, target, target, "10.0.0.1", 0, 0,
                               "--no-direct"),
                self.streams("rsockets", target, peer, "10.0.0.1"),
            ]

    def over(self, *argv, more=()):
        return [harness.TULLE, "run", *self.options, *more, "--", *map(str, argv)]

    def integrity(self, name, port, at, other, address, gid, other_gid, *more):
        def argv(number, index):
            return self.over(harness.INTEGRITY, "-p", port, "-g", index, "-s", number + 1, "-P", 0, "-l", "-e", "-n", 5,
                             more=["--no-offload", *more])

        return Honest(name, self.place, lambda number: self.place.start(at, *argv(number, gid)),
                      lambda number: self.place.start(other, *argv(number, other_gid), address),
                      r"(?m)^ok: (\d+) operations")

    def streams(self, name, at, other, address):
        argv = ["-T", "v", "-S", "4096", "-C", "20", "-I", "5", "-p", "18604"]
        return Honest(name, self.place,
                      lambda number: self.place.start(at, *self.over("rstream", "-b", address, *argv)),
                      lambda number: self.place.start(other, *self.over("rstream", "-s", address, *argv)),
                      r"(?s)bytes.*Gb/sec.*\d")

    def connections(self, name, at, address, which):
        class Client(Honest):
            def start(self):  # its server is one of the listeners
                self.processes = (self.client_of(self.rounds),)
                self.client_waits = False

            def finish_round(self):
                self.operations += 20
                self.processes[0].close()
                self.rounds += 1
                self.processes = ()
                if not self.stopping:
                    self.start()

        self.latencies[which].touch()
        argv = self.over(SOAK, "client", f"{address}:{LISTENER}", 20, self.latencies[which])
        return Client(name, self.place, None, lambda number: self.place.start(at, *argv), "")

    def tick(self):
        for program in self.programs:
            program.tick()
        return self.faults()

    def faults(self):
        found = [program.fault for program in self.programs if program.fault]
        return found + [f"A listener ended.\n{each.describe()}" for each in self.listeners
                        if not each.running and not any(program.stopping for program in self.programs)]

    def finish(self):
        """Lets each program end its round."""
        for program in self.programs:
            program.stopping = True
        ends = time.monotonic() + FINISH_LIMIT
        while not all([program.tick() for program in self.programs]):
            if time.monotonic() > ends:
                slow = [f"{program.name}\n" + "\n".join(each.describe() for each in program.processes)
                        for program in self.programs if program.processes and not program.fault]
                return self.faults() + [f"The program does not end: {each}" for each in slow]
            time.sleep(0.02)
        found = self.faults()
        for each in self.listeners:
            if each.running:
                each.signal(signal.SIGTERM)
                if each.wait(harness.LIMIT) != 0:
                    found.append(f"A listener failed.\n{each.describe()}")
            said = re.search(r"failed (\d+)", each.stdout)
            if said is None or int(said[1]):
                found.append(f"A listener saw wrong messages.\n{each.describe()}")
        return found

    def connect_times(self):
        """Returns the times of all connections, in microseconds."""
        values = array.array("I")
        for path in self.latencies:
            values.frombytes(path.read_bytes())
        return list(values)


# --- the flood -----------------------------------------------------------------------------------------------------


class Totals(dict):
    """Adds up what the forger prints: {(kind, family): counts}."""

    SUMS = ("datagrams", "bytes", "addresses", "asked_bytes", "answered_bytes", "answered_more", "answered_longer")

    def __init__(self):
        super().__init__()
        self.refused = self.missed = self.foreign = 0
        self.seconds = 0.0

    def add(self, told):
        self.refused += told["refused"]
        self.missed += told["answers_missed"]
        self.foreign += told["foreign_answers"]
        self.seconds += told["seconds"]
        for each in told["kinds"]:
            counts = self.setdefault((each["kind"], each["family"]), dict.fromkeys(self.SUMS, 0))
            for name in self.SUMS:
                counts[name] += each[name]

    def sent(self):
        return sum(each["datagrams"] for each in self.values())


def kind_names():
    return subprocess.run([FORGER, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()


class Phase:
    """One phase, from the honest programs' start to their end."""

    def __init__(self, name, weights, seed, folder, light=False):
        self.name, self.weights, self.seed, self.folder, self.light = name, weights, seed, folder, light
        self.totals = Totals()
        self.is_sealed = name == "sealed"
        self.result = {"phase": name}

    def run(self, wanted, linger=0.3, round_size=ROUND):
        options = []
        if self.is_sealed:
            key = self.folder / "key"
            key.touch(mode=0o600)
            key.write_text(random.Random(self.seed).randbytes(32).hex() + "\n")
            options = ["--secure", key]
        with Place() as place:
            self.place = place
            self.honesty = Honesty(place, options, self.folder, self.light)
            agents = [place.status(net)["agent"]["pid"] for net in (place.target, place.peer)]
            faults = self.flood(wanted, linger, round_size)
            self.measure(agents)
            faults += self.honesty.finish()
            self.finish(agents, faults)
        return self.result, faults

    def flood(self, wanted, linger, round_size):
        place = self.place
        quiet = self.watch(2.0)
        before, sent_before = udp_counters(place.target), self.honest_packets()
        capture = None
        if self.name == "captured":
            capture = place.start(place.target, harness.TULLE, "capture", "-o", self.folder / "capture.pcapng", "-s", "96")
        rounds, faults, processed, began = 0, [], 0, time.monotonic()
        while processed < wanted and not faults:
            left = min(wanted - processed, round_size)
            faults += self.one_round(rounds, max(left, 1000), linger)
            now = udp_counters(place.target)
            honest = self.honest_packets() - sent_before
            last, processed = processed, now["received"] - before["received"] - honest
            rounds += 1
            if capture and (self.folder / "capture.pcapng").stat().st_size > 1 << 30:
                os.truncate(self.folder / "capture.pcapng", 0)
            if self.totals.sent() > 100_000 + 40 * wanted or (processed <= last and rounds > 50):
                faults.append(f"The target receives next to nothing of what is sent: {processed:,} datagrams.")
        if capture:
            capture.signal(signal.SIGINT)
            if capture.wait(60) != 0:
                faults.append(f"The capture failed.\n{capture.describe()}")
            self.result["captured_bytes"] = (self.folder / "capture.pcapng").stat().st_size
        self.result.update({
            "processed": processed, "seconds": round(time.monotonic() - began, 1), "rounds": rounds,
            "lost_in_sockets": now["lost"] - before["lost"], "dropped_by_kernel": now["refused"] - before["refused"],
            "honest_packets": honest, "operations_a_second_before": quiet,
            "operations_a_second": self.rate_since(self.flood_began)})
        return faults

    def watch(self, seconds):
        """Lets the honest programs run by themselves, and returns how many packets a second they exchange."""
        ends = time.monotonic() + seconds
        first, at = self.honest_packets(), time.monotonic()
        while time.monotonic() < ends:
            self.honesty.tick()
            time.sleep(0.02)
        self.flood_began = (self.honest_packets(), time.monotonic())
        return round((self.flood_began[0] - first) / (self.flood_began[1] - at))

    def rate_since(self, began):
        return round((self.honest_packets() - began[0]) / (time.monotonic() - began[1]))

    def honest_packets(self):
        """Returns how many packets honest programs have sent, the agents' messages included (eight a connection)."""
        packets = sum(self.place.status(net)["agent"]["counters"]["packets_sent"]
                      for net in (self.place.target, self.place.peer))
        return packets + 8 * sum(path.stat().st_size // 4 for path in self.honesty.latencies)

    def one_round(self, number, count, linger):
        place = self.place
        samples, numbers = overhear(place.target, "veth0")
        path = self.folder / "samples"
        path.write_bytes(samples)
        processes = place.status(place.target)["processes"]
        mine = {process["pid"] for process in processes if process["command"] == "integrity"}
        numbers |= {process["first_qp"] + i for process in processes for i in range(4)}
        connected = {each for each in numbers for process in processes if process["pid"] in mine
                     and process["first_qp"] <= each < process["first_qp"] + process["qp_count"]}
        names = kind_names()
        kinds = ",".join(f"{names.index(name)}={weight}" for name, weight in self.weights.items())
        argv = [FORGER, "--interface", "wild0", "--target", TARGETS, "--source", STRANGERS, "--peer", PEERS,
                "--counters", f"/proc/{place.target.holder.pid}/net", "--kinds", kinds, "--count", count,
                "--seed", self.seed * 1000 + number, "--samples", path, "--ports", LISTENER, "--linger", linger,
                "--queue-pairs", ",".join(map(str, sorted(numbers)[:256])),
                "--peer-queue-pairs", ",".join(map(str, sorted(connected)[:256]))]
        forger = place.start(place.stranger, *argv, *(["--sealed"] if self.is_sealed else []))
        faults = []
        while forger.running and not faults:
            faults = self.honesty.tick()
            time.sleep(0.02)
        if not faults:
            if forger.wait(10) != 0:
                return [f"The stranger failed.\n{forger.describe()}"]
            self.totals.add(json.loads(forger.stdout))
        forger.close()
        return faults

    def measure(self, agents):
        self.result["agent_peak_kib"] = max(peak_kib(pid) if pathlib.Path(f"/proc/{pid}").exists() else 0 for pid in agents)

    def finish(self, agents, faults):
        alive = [(self.place.status(net)["agent"] or {}).get("pid") for net in (self.place.target, self.place.peer)]
        if alive != agents:
            faults.append(f"The host agents were processes {agents}, and are now {alive}.")
        times = sorted(self.honesty.connect_times())
        self.result.update({
            "sent": self.totals.sent(), "refused": self.totals.refused, "answers_missed": self.totals.missed,
            "kinds": [{"kind": kind, "family": family, **counts} for (kind, family), counts in self.totals.items()],
            "honest": {program.name: {"rounds": program.rounds, "operations": program.operations}
                       for program in self.honesty.programs},
            "connections": {"count": len(times), "p50_us": percentile(times, 0.5), "p99_us": percentile(times, 0.99),
                            "max_us": times[-1] if times else 0},
            "faults": faults})


def percentile(ordered, share):
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


# --- judging -------------------------------------------------------------------------------------------------------


def faults_of(result, datagrams, requests):
    """Returns sentences about what must never happen."""
    found = []
    phases = {phase["phase"]: phase for phase in result["phases"]}
    forged = sum(phase["processed"] for name, phase in phases.items() if name != "requests")
    if forged < datagrams:
        found.append(f"Tulle received {forged:,} forged datagrams, not {datagrams:,}.")
    if phases["requests"]["processed"] < requests:
        found.append(f"Tulle received {phases['requests']['processed']:,} forged requests, not {requests:,}.")
    for name, phase in phases.items():
        found += [f"{name}: {fault}" for fault in phase["faults"]]
        if phase["answers_missed"]:
            found.append(f"{name}: {phase['answers_missed']} answers were not counted, so nothing is known of them.")
        for kind in phase["kinds"]:
            what = f"{name}: {kind['kind']}, {kind['family']}"
            if kind["answered_longer"]:
                found.append(f"{what}: {kind['answered_longer']} addresses got a longer datagram than any they sent.")
            if kind["answered_bytes"] > kind["asked_bytes"]:
                found.append(f"{what}: {kind['answered_bytes']:,} bytes answer {kind['asked_bytes']:,} bytes.")
        for program, counts in phase["honest"].items():
            if not counts["rounds"]:
                found.append(f"{name}: {program}: not one round was finished.")
        if phase["agent_peak_kib"] >= MEMORY_GOAL_KIB:
            found.append(f"{name}: a host agent took {phase['agent_peak_kib']:,} KiB.")
        if not phase["connections"]["count"] or phase["connections"]["p99_us"] > CONNECT_GOAL_S * 1e6:
            found.append(f"{name}: honest connections: {phase['connections']}.")
    return found


def measure(datagrams, requests, seed, light=False):
    """Runs all phases. Returns the record, without date and commit."""
    began = time.monotonic()
    phases = []
    plan = [(name, round(datagrams * share), SEALED_WEIGHTS if name == "sealed" else WEIGHTS)
            for name, share in PHASES.items()] + [("requests", requests, REQUEST_WEIGHTS)]
    plan[2] = (plan[2][0], datagrams - plan[0][1] - plan[1][1], plan[2][2])
    for number, (name, wanted, weights) in enumerate(plan):
        with tempfile.TemporaryDirectory() as folder:
            phase, faults = Phase(name, weights, seed + number, pathlib.Path(folder), light).run(wanted)
        phases.append(phase)
        say(f"{name}: {phase['processed']:,} of {phase['sent']:,} forged datagrams received in {phase['seconds']} s, "
            f"{len(faults)} faults")
    return {"seed": seed, "seconds": round(time.monotonic() - began), "phases": phases}


def commit():
    done = subprocess.run(["git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"], cwd=harness.ROOT,
                          capture_output=True, text=True)
    return done.stdout.strip()


def main(arguments):
    parser = argparse.ArgumentParser(prog="./dev hostile network", description=__doc__.partition("\n")[0])
    parser.add_argument("--datagrams", type=int, default=10_000_000, metavar="N",
                        help="forged datagrams that Tulle receives (%(default)s)")
    parser.add_argument("--requests", type=int, default=1_000_000, metavar="N",
                        help="forged requests for connections that it receives beside these (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="draws the datagrams (%(default)s)")
    parser.add_argument("--record", action="store_true",
                        help=f"write {RECORD.relative_to(harness.ROOT)}; runs of {RECORDED_FROM:,} datagrams do so anyway")
    options = parser.parse_args(arguments)
    if options.datagrams < 1000 or options.requests < 1000:
        parser.error("at least 1,000 datagrams and requests, please")
    clients.become_root_of_a_namespace()
    for program in (harness.TULLE, FORGER, SOAK, harness.INTEGRITY):
        if not program.exists():
            sys.exit(f"hostile network: {program} was not built; ./dev hostile builds it")
    result = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "commit": commit()}
    try:
        result |= measure(options.datagrams, options.requests, options.seed)
    except harness.Unavailable as reason:
        sys.exit(f"hostile network: {reason}")
    found = faults_of(result, options.datagrams, options.requests)
    if options.record or options.datagrams >= RECORDED_FROM:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(json.dumps({**result, "faults": found}, indent=1) + "\n")
    else:
        print(json.dumps(result, indent=1))
    for fault in found:
        print(f"hostile network: {fault}", file=sys.stderr)
    return 1 if found else 0
