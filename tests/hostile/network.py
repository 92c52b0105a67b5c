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
    loopback    the stranger is a program of the target, over its loopback
    sealed      the honest programs run with `tulle run --secure`; the stranger also repeats what it overheard as it was,
                and draws from all PSNs
    requests    requests for connections alone, to real listeners, from addresses without number

Without a seal the network is trusted: whoever has the peer's address, a queue pair's number, a PSN that is expected and, for
memory, a key, is taken for the peer. The stranger draws keys and PSNs at random. In the phases without a seal it leaves out
the PSNs that the honest programs use from the peer's address, as well as datagrams of unreliable transports, which have no
order that would refuse them.

Only datagrams that programs or the agent received count: those that were sent, less all that the target's kernel dropped.
The pace follows the target, which has to keep up.

The honest connections that are timed go to another listener than the forged requests. A listener whose
backlog is full of requests drops further ones, as Linux does, and their senders repeat them after 4.3 s.
"""

import argparse
import array
import contextlib
import ctypes
import datetime
import json
import math
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
sys.path[:0] = [str(HERE.parent / "clients"), str(HERE.parent.parent / "tools")]

import harness  # noqa: E402
import run as clients  # noqa: E402
from commit import commit  # noqa: E402

RECORD = harness.ROOT / "docs" / "reliability" / "hostile_network.json"
FORGER = harness.BUILD / "bin" / "forger"
SOAK = harness.BUILD / "bin" / "soak"
TARGETS = "10.0.0.1,fd00::1"
PEERS = "10.0.0.2,fd00::2"
STRANGERS = "10.64.0.0,fd64::"
INSIDERS = "127.64.0.0,fd65::"
LISTENER, BESIEGED, HOARDER = 18710, 18711, 18712
LEARN_SECONDS = 1.0  # after which the stranger has overheard more
PHASES = {"plain": 0.4, "captured": 0.3, "loopback": 0.1, "sealed": 0.2}  # shares of the datagrams
WEIGHTS = {
    "random bytes": 20, "random bytes, the peer's address": 10, "truncated packets": 5, "longest datagrams": 1,
    "well-formed packets": 20, "well-formed packets, the peer's address": 20, "mutated copies": 8,
    "mutated copies, the peer's address": 8, "batches": 1, "management datagrams": 2, "connection messages": 3,
    "connection messages, the peer's address": 1, "requests for connections": 1,
}
SEALED_WEIGHTS = {**WEIGHTS, "exact copies": 10, "exact copies, the peer's address": 10}
REQUEST_WEIGHTS = {"requests for connections": 1}
INWARD, OUTWARD = "connections to the target", "connections to the peer"
TO_BESIEGED = "connections to the listener that strangers ask for, too"
# An accepted request for a connection is answered until the peer confirms the answer. The host agent does so for few
# addresses that have proven nothing (src/management/cm/unasked_messages.h).
WITH_REQUESTS = ("connection messages", "requests for connections")
UNASKED_AT_ONCE, MANAGEMENT_BYTES = 64, 280
MEMORY_GOAL_KIB = 64 * 1024
CONNECT_GOAL_S, CONNECTIONS_MIN = 2.0, 5
CAPTURE_BYTES_MAX = 1 << 30  # the file is then begun anew
# Counters of the target's programs, the host agent's own port not among them
COUNTERS = ("packets_received", "received_truncated", "received_unknown_opcode", "received_bad_version", "received_bad_icrc",
            "received_unknown_queue_pair", "duplicate_requests", "sequence_naks_sent", "dropped_packets", "unsealed_drops")
FINISH_LIMIT = 120  # seconds in which honest programs end once the flood has
RECORDED_FROM = 1_000_000  # datagrams


def say(text):
    print(f"hostile network: {text}", file=sys.stderr, flush=True)


# --- the hosts -----------------------------------------------------------------------------------------------------


class Gone(Exception):
    """A host agent does not live any more, so that there is nothing to measure."""


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
        self.processes = set()
        self.callback(self.end_all)

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
        target.run("ip", "-6", "route", "add", "local", "fd65::/64", "dev", "lo")
        stranger.run("ip", "route", "add", "local", "10.64.0.0/10", "dev", "lo")
        stranger.run("ip", "-6", "route", "add", "local", "fd64::/64", "dev", "lo")
        stranger.run("ip", "route", "add", "10.0.0.1/32", "via", "10.1.0.1")
        stranger.run("ip", "-6", "route", "add", "fd00::1/128", "via", "fd01::1")

    def start(self, net, *argv):
        process = harness.Process(argv, net=net)
        self.processes.add(process)
        return process

    def agent(self, net):
        told = self.status(net)["agent"]
        if told is None:
            raise Gone(f"The host agent of the {'target' if net is self.target else 'peer'} is gone.")
        return told

    def end(self, process):
        """Ends a process. Its number may become another's, so nothing remembers it."""
        process.close()
        self.processes.discard(process)

    def end_all(self):
        for process in list(self.processes):
            self.end(process)

    def status(self, net):
        process = harness.Process([harness.TULLE, "status", "--json"], net=net)
        try:
            if process.wait(20) != 0:
                raise AssertionError(process.describe())
            return json.loads(process.stdout)
        finally:
            process.close()


def overhear(net, interface, most=2000, seconds=0.1):
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


def peak_kib(pid):
    path = pathlib.Path(f"/proc/{pid}/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", path.read_text()) if path.exists() else None
    if found is None:  # it is dead, and may be waited for
        raise Gone("A host agent is gone.")
    return int(found[1])


# --- honest programs -----------------------------------------------------------------------------------------------


class Honest:
    """A program that works again and again until it is told to stop: a server and a client that must both succeed."""

    def __init__(self, place, name, server, client, says, port=None):
        self.place, self.name, self.server_of, self.client_of, self.says, self.port = place, name, server, client, says, port
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
        if self.client_waits and self.is_ready():
            self.processes += (self.client_of(self.rounds),)
            self.client_waits = False
        failed = next((each for each in self.processes if each.popen.poll() not in (None, 0)), None)
        if failed is not None:
            self.fault = f"{self.name}: a program failed in round {self.rounds}.\n{failed.describe()}"
        elif not self.client_waits and not any(each.running for each in self.processes):
            self.finish_round()
        return bool(self.fault) or not self.processes

    def is_ready(self):
        if self.port is None:
            return time.monotonic() > self.began + 0.5  # there is no other way to know
        return harness.listens(self.processes[0], self.port)

    def finish_round(self):
        for each in self.processes:
            found = re.search(self.says, each.stdout)
            if found is None:
                self.fault = f"{self.name}: a program did not say that all is well.\n{each.describe()}"
                return
            self.operations += int(found[1]) if found.groups() else 1
            self.place.end(each)
        self.rounds += 1
        self.processes = ()
        if not self.stopping:
            self.start()


class Honesty:
    """All honest programs of a phase. Ports differ by name, since a pair may begin while another's sockets close."""

    def __init__(self, place, options, folder, light, is_whole):
        self.place, self.options, self.folder = place, options, folder
        target, peer = place.target, place.peer
        self.hoard = {}
        self.latencies = {name: folder / f"latencies-{i}" for i, name in enumerate((INWARD, OUTWARD, TO_BESIEGED))}
        for path in self.latencies.values():
            path.touch()
        self.listeners = [place.start(net, *self.over(SOAK, "server", f"{address}:{port}"))
                          for net, address, port in ((target, "10.0.0.1", LISTENER), (peer, "10.0.0.2", LISTENER),
                                                     (target, "::", BESIEGED))]  # both families
        self.hoarder = place.start(target, *self.over(SOAK, "hoard", f":::{HOARDER}"))
        harness.wait_until(lambda: [(place.status(net)["agent"] or {}).get("listeners") for net in (target, peer)] == [3, 1],
                           "the listeners", pause=0.05)
        rounds = 3 if light else 40  # of the mix of operations
        self.programs = [
            self.integrity("every operation, IPv4", 18601, target, peer, "10.0.0.1", 0, 0, rounds),
            self.connections(INWARD, peer, "10.0.0.1", LISTENER, 20),
            self.connections(OUTWARD, target, "10.0.0.2", LISTENER, 20),
        ]
        if is_whole:
            self.programs += [
                self.integrity("every operation, IPv6", 18602, target, peer, "fd00::1", 2, 1, rounds),
                self.integrity("every operation, loopback by packets", 18603, target, target, "10.0.0.1", 0, 0, rounds,
                               "--no-direct"),
                self.streams("rsockets", target, peer, "10.0.0.1"),
            ]
        if not light:
            self.programs.append(self.connections(TO_BESIEGED, peer, "10.0.0.1", BESIEGED, 1))

    def over(self, *argv, more=()):
        return [harness.TULLE, "run", *self.options, *more, "--", *map(str, argv)]

    def integrity(self, name, port, at, other, address, gid, other_gid, rounds, *more):
        def argv(number, index):
            return self.over(harness.INTEGRITY, "-p", port, "-g", index, "-s", number + 1, "-P", 0, "-l", "-e",
                             "-n", rounds, more=["--no-offload", *more])

        return Honest(self.place, name, lambda number: self.place.start(at, *argv(number, gid)),
                      lambda number: self.place.start(other, *argv(number, other_gid), address),
                      r"(?m)^ok: (\d+) operations", port)

    def streams(self, name, at, other, address):
        argv = ["-T", "v", "-S", "4096", "-C", "20", "-I", "5", "-p", "18604"]
        return Honest(self.place, name, lambda number: self.place.start(at, *self.over("rstream", "-b", address, *argv)),
                      lambda number: self.place.start(other, *self.over("rstream", "-s", address, *argv)),
                      r"(?s)bytes.*Gb/sec.*\d")

    def connections(self, name, at, address, port, count):
        class Client(Honest):
            def start(self):  # its server is one of the listeners
                self.processes = (self.client_of(self.rounds),)
                self.client_waits = False

            def finish_round(self):
                self.operations += count
                self.place.end(self.processes[0])
                self.rounds += 1
                self.processes = ()
                if not self.stopping:
                    self.start()

        argv = self.over(SOAK, "client", f"{address}:{port}", count, self.latencies[name])
        return Client(self.place, name, None, lambda number: self.place.start(at, *argv), "")

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
        self.hoarder.signal(signal.SIGTERM)
        if self.hoarder.wait(harness.LIMIT) != 0:
            found.append(f"The listener that gives nothing up failed.\n{self.hoarder.describe()}")
        else:
            self.hoard = {what: int(count) for what, count in re.findall(r"(\w+) (\d+)", self.hoarder.stdout)}
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
        """Returns {program: how long its connections took so far, in microseconds}."""
        times = {}
        for name, path in self.latencies.items():
            values = array.array("I")
            values.frombytes(path.read_bytes())
            times[name] = list(values)
        return times


# --- the flood -----------------------------------------------------------------------------------------------------


def kind_names():
    return subprocess.run([FORGER, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()


class Stranger:
    """The forger, and what it overhears. In the phase `loopback` it is a program of the target itself, and the peer is
    the target."""

    def __init__(self, place, name, weights, seed, folder, linger, lasting):
        self.place, self.folder, self.lasting = place, folder / "stranger", lasting
        is_inside = name == "loopback"
        self.overhears = "lo" if is_inside else "veth0"
        self.folder.mkdir()
        self.learn()
        names = kind_names()
        kinds = ",".join(f"{names.index(kind)}={weight}" for kind, weight in weights.items())
        ports = [BESIEGED, HOARDER] if name == "requests" else [BESIEGED]
        interface, sources, peers = ("lo", INSIDERS, TARGETS) if is_inside else ("wild0", STRANGERS, PEERS)
        argv = [FORGER, "--interface", interface, "--target", TARGETS, "--source", sources, "--peer", peers,
                "--counters", f"/proc/{place.target.holder.pid}/net", "--kinds", kinds, "--count", 1 << 40, "--seed", seed,
                "--knowledge", self.folder, "--ports", ",".join(map(str, ports)), "--linger", linger]
        if name == "sealed":
            argv.append("--sealed")
        self.process = place.start(place.target if is_inside else place.stranger, *argv)

    def learn(self):
        """Lets the stranger overhear what passes between the target and its peer. It gets all queue pair numbers of
        the target's programs that it sees, and from the peer's address sends to those of the program that checks every
        byte, whose PSNs are known."""
        samples, overheard = overhear(self.place.target, self.overhears)
        # Clients that live for a moment would be gone.
        processes = [process for process in self.place.status(self.place.target)["processes"]
                     if process["command"] != "soak" or process["pid"] in self.lasting]
        numbers = {each for each in overheard for process in processes
                   if process["first_qp"] <= each < process["first_qp"] + process["qp_count"]}
        numbers |= {process["first_qp"] + i for process in processes for i in range(4)}
        connected = {each for each in numbers for process in processes if process["command"] == "integrity"
                     and process["first_qp"] <= each < process["first_qp"] + process["qp_count"]}
        lines = [" ".join(map(str, sorted(each)[:256])) for each in (numbers, connected)]
        for name, content in (("samples", samples), ("queue-pairs", "\n".join(lines).replace(" ", ",").encode() + b"\n")):
            (self.folder / "new").write_bytes(content)
            (self.folder / "new").rename(self.folder / name)

    def sent(self):
        path = self.folder / "progress"
        return int.from_bytes(path.read_bytes(), "little") if path.exists() else 0

    def stop(self, meanwhile):
        """Ends the flood, and returns what the forger counted."""
        self.process.signal(signal.SIGTERM)
        while self.process.running:
            meanwhile()
            time.sleep(0.02)
        if self.process.wait() != 0:
            raise AssertionError(f"The stranger failed.\n{self.process.describe()}")
        return json.loads(self.process.stdout)


def dropped(net):
    """Returns how many datagrams or fragments a host has lost before any program saw them: in interfaces, in the queue
    behind them, in IP, for want of room in sockets, and where no program has the queue pair number (the sockets' filter
    refuses them)."""
    folder = pathlib.Path(f"/proc/{net.holder.pid}/net")
    snmp = (folder / "snmp").read_text()
    counts = {}
    for protocol in ("Ip", "Udp"):
        names, values = re.findall(rf"(?m)^{protocol}: (.*)$", snmp)
        counts |= {protocol + name: int(value) for name, value in zip(names.split(), values.split())}
    counts |= {name: int(value) for name, value in re.findall(r"(?m)^(\w+)\s+(\d+)$", (folder / "snmp6").read_text())}
    devices = sum(int(fields[3]) for fields in (line.split(":")[1].split() for line in
                                                (folder / "dev").read_text().splitlines()[2:]))
    before_ip = sum(int(line.split()[1], 16) for line in pathlib.Path("/proc/net/softnet_stat").read_text().splitlines())
    in_ip = sum(counts[version + name] for version in ("Ip", "Ip6")
                for name in ("InHdrErrors", "InAddrErrors", "InDiscards", "ReasmFails"))
    return {"in_interfaces": devices + before_ip, "in_ip": in_ip,
            "no_room": counts["UdpRcvbufErrors"] + counts["Udp6RcvbufErrors"],
            "no_program": counts["UdpInErrors"] + counts["Udp6InErrors"]
            - counts["UdpRcvbufErrors"] - counts["Udp6RcvbufErrors"]}


class Phase:
    """One phase, from the honest programs' start to their end."""

    def __init__(self, name, weights, seed, folder, light=False):
        self.name, self.weights, self.seed, self.folder, self.light = name, weights, seed, folder, light
        self.result = {"phase": name}

    def run(self, wanted, linger):
        options = []
        if self.name == "sealed":
            key = self.folder / "key"
            key.touch(mode=0o600)
            key.write_text(random.Random(self.seed).randbytes(32).hex() + "\n")
            options = ["--secure", key]
        with Place() as place:
            self.place = place
            # The host agent has most to do in the last phase, so fewer programs take processors from it.
            is_whole = not self.light and self.name != "requests"
            self.honesty = Honesty(place, options, self.folder, self.light, is_whole)
            agents = [place.agent(net)["pid"] for net in (place.target, place.peer)]
            try:
                faults = self.flood(wanted, linger)
                self.result["agent_peak_kib"] = max(peak_kib(pid) for pid in agents)
            except Gone as gone:
                faults = [str(gone)]
            faults += self.honesty.finish()
            self.finish(agents, faults)
        return self.result

    def flood(self, wanted, linger):
        """Lets the stranger send until programs have received as much as is wanted. Returns the faults."""
        place, path = self.place, self.folder / "capture.pcapng"
        before = self.honest_rate(0.1 if self.light else 3.0)
        capture = place.start(place.target, harness.TULLE, "capture", "-o", path, "-s", "64") if self.name == "captured" else None
        dropped_before = dropped(place.target)
        connected_before = self.honesty.connect_times()
        lasting = {each.pid for each in (*self.honesty.listeners, self.honesty.hoarder)}
        stranger = Stranger(place, self.name, self.weights, self.seed, self.folder, linger, lasting)
        counted_before = place.agent(place.target)["counters"]
        packets, began = self.honest_packets(), time.monotonic()
        learned, processed, faults = began, 0, []
        while (processed < wanted or not self.has_connected(connected_before)) and not faults:
            faults = self.honesty.tick()
            time.sleep(0.02)
            if not stranger.process.running:
                return [f"The stranger ended early.\n{stranger.process.describe()}"]
            if time.monotonic() > learned + LEARN_SECONDS:
                stranger.learn()
                learned = time.monotonic()
            lost = {name: count - dropped_before[name] for name, count in dropped(place.target).items()}
            processed = stranger.sent() - sum(lost.values())
            if time.monotonic() > began + 120 + wanted / 2000:
                faults.append(f"The target received only {processed:,} of {stranger.sent():,} datagrams.")
            if capture and path.exists() and path.stat().st_size > CAPTURE_BYTES_MAX:
                os.truncate(path, 0)
        seconds = time.monotonic() - began
        rate = (self.honest_packets() - packets) / seconds
        times = {name: values[len(connected_before[name]):] for name, values in self.honesty.connect_times().items()}
        counted = place.agent(place.target)["counters"]
        told = stranger.stop(self.honesty.tick)
        if capture:
            faults += self.end_capture(capture, path)
        self.result.update({
            "sent": sum(each["datagrams"] for each in told["kinds"]), "processed": processed, "dropped": lost,
            "seconds": round(seconds, 1), "refused_by_own_kernel": told["refused"], "answers_missed": told["answers_missed"],
            "counters": {name: count - counted_before[name] for name, count in counted.items() if name in COUNTERS},
            "linger_s": linger, "kinds": told["kinds"], "connections": {name: summary(each) for name, each in times.items()},
            "honest_packets_a_second": {"before": before, "during": round(rate)}})
        return faults

    def has_connected(self, before):
        """Returns whether enough connections were made since the flood began."""
        times = self.honesty.connect_times()
        return all(len(times[name]) >= len(before[name]) + CONNECTIONS_MIN for name in (INWARD, OUTWARD))

    def end_capture(self, capture, path):
        capture.signal(signal.SIGINT)
        if capture.wait(60) != 128 + signal.SIGINT:
            return [f"The capture failed.\n{capture.describe()}"]
        self.result["capture"] = capture.stderr.strip().splitlines()[-1:]
        return [] if path.stat().st_size else ["The capture captured nothing."]

    def honest_rate(self, seconds):
        """Lets the honest programs run by themselves, and returns how many packets a second they send."""
        harness.wait_until(lambda: self.honesty.tick() or self.has_connected(dict.fromkeys(self.honesty.latencies, ())),
                           "the first connections")
        first, began = self.honest_packets(), time.monotonic()
        while time.monotonic() < began + seconds:
            self.honesty.tick()
            time.sleep(0.02)
        return round((self.honest_packets() - first) / (time.monotonic() - began))

    def honest_packets(self):
        return sum(self.place.agent(net)["counters"]["packets_sent"]
                   for net in (self.place.target, self.place.peer))

    def finish(self, agents, faults):
        alive = [(self.place.status(net)["agent"] or {}).get("pid") for net in (self.place.target, self.place.peer)]
        if alive != agents:
            faults.append(f"The host agents were processes {agents}, and are now {alive}.")
        self.result["honest"] = {program.name: {"rounds": program.rounds, "operations": program.operations}
                                 for program in self.honesty.programs}
        self.result["hoard"] = self.honesty.hoard
        self.result["faults"] = faults


def summary(times):
    ordered = sorted(times)
    return {"count": len(ordered), "p50_us": percentile(ordered, 0.5), "p99_us": percentile(ordered, 0.99),
            "max_us": ordered[-1] if ordered else 0}


def percentile(ordered, share):
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


# --- judging -------------------------------------------------------------------------------------------------------


def faults_of(result, datagrams, requests):
    """Returns sentences about what must never happen."""
    found = []
    phases = {phase["phase"]: phase for phase in result["phases"]}
    forged = sum(phase.get("processed", 0) for name, phase in phases.items() if name != "requests")
    if forged < datagrams:
        found.append(f"Tulle received {forged:,} forged datagrams, not {datagrams:,}.")
    if phases["requests"].get("processed", 0) < requests:
        found.append(f"Tulle received {phases['requests'].get('processed', 0):,} forged requests, not {requests:,}.")
    for name, phase in phases.items():
        found += [f"{name}: {each}" for each in [*phase["faults"], *phase_faults(phase)]]
    return found


def phase_faults(phase):
    found = [f"{program}: not one round was finished." for program, counts in phase["honest"].items() if not counts["rounds"]]
    if phase.get("agent_peak_kib", 0) >= MEMORY_GOAL_KIB:
        found.append(f"A host agent took {phase['agent_peak_kib']:,} KiB.")
    if "kinds" not in phase:
        return found
    if phase["answers_missed"]:
        found.append(f"{phase['answers_missed']} answers were not counted, so nothing is known of them.")
    unasked = UNASKED_AT_ONCE + round(phase["seconds"] + phase["linger_s"]) + 1
    for kind in phase["kinds"]:
        what = f"{kind['kind']}, {kind['family']}"
        if kind["answered_longer"]:
            found.append(f"{what}: {kind['answered_longer']} addresses got a longer datagram than any they sent.")
        allowed = unasked if kind["kind"] in WITH_REQUESTS else 0
        if kind["answered_bytes"] > kind["asked_bytes"] + allowed * MANAGEMENT_BYTES or kind["answered_more"] > allowed:
            found.append(f"{what}: {kind['answered_bytes']:,} bytes answer {kind['asked_bytes']:,} bytes, and "
                         f"{kind['answered_more']:,} addresses got more than they sent.")
    for program in (INWARD, OUTWARD):
        times = phase["connections"][program]
        if not times["count"] or times["p99_us"] > CONNECT_GOAL_S * 1e6:
            found.append(f"{program} took too long: {times}.")
    return found


def measure(datagrams, requests, seed, shares=PHASES, light=False, linger=10.0):
    """Runs all phases. Returns the record, without date and commit."""
    began = time.monotonic()
    plan = [(name, math.ceil(datagrams * share), SEALED_WEIGHTS if name == "sealed" else WEIGHTS)
            for name, share in shares.items()] + [("requests", requests, REQUEST_WEIGHTS)]
    phases = []
    for number, (name, wanted, weights) in enumerate(plan):
        with tempfile.TemporaryDirectory() as folder:
            phase = Phase(name, weights, seed + number, pathlib.Path(folder), light).run(wanted, linger)
        phases.append(phase)
        say(f"{name}: {phase.get('processed', 0):,} of {phase.get('sent', 0):,} forged datagrams received in "
            f"{phase.get('seconds', 0)} s, {len(phase['faults'])} faults")
    return {"seed": seed, "seconds": round(time.monotonic() - began), "phases": phases}


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
