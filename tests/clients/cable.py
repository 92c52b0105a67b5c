"""Looks at all that leaves over the interfaces of a network namespace, and tells sealed datagrams from others.

The kernel's filters tell them apart, so that nothing is missed at any rate: what is sealed is counted, and all else comes
to a thread. The thread also looks into as many sealed datagrams as it has time for, for bytes that a cipher would not
leave. Interfaces of the namespace cut large sends into datagrams first, so that each is seen as on a wire.
"""

import collections
import ctypes
import fcntl
import os
import pathlib
import re
import select
import socket
import struct
import threading

ROCE_PORT = 4791
SEAL = b"\xfe\x02"  # as in src/live/security/seal.h
SEAL_HEADER_BYTES = 32
MARKS = (b"rdma-ping-",)  # what rping sends
# A cipher leaves sixteen equal bytes in a row once in 2^120 places.
RUN = re.compile(rb"(.)\1{15}", re.DOTALL)
ENDED = "a program that has ended"
STRANGERS = {"forger", "hostile_user"}  # programs of the tests that are built beside Tulle, and forge datagrams
DAMAGED = "own damaged seals"
SENDER = slice(8, 20)  # in a sealed datagram
DOUBTFUL_MAX = 10_000
SENDER_BYTES_MIN = 4  # a fault damages sixteen bytes in a row, at most
NOBODY = "nobody who lives"
PAUSE = 0.05
LOOKS = 48  # sealed datagrams that are looked into at a time

IPV4, ARP, IPV6, VLAN, ROCE_V1 = 0x0800, 0x0806, 0x86DD, 0x8100, 0x8915
OTHER_FRAMES = {ROCE_V1: "frames of RoCE v1"}

SOL_PACKET, PACKET_STATISTICS, SO_ATTACH_FILTER, SO_RCVBUFFORCE = 263, 6, 26, 33
CLONE_NEWNET = 0x40000000
SIOCETHTOOL, GSTRINGS, SSET_INFO, SFEATURES, SS_FEATURES = 0x8946, 0x1B, 0x37, 0x3B, 4

_libc = ctypes.CDLL(None, use_errno=True)


# --- the kernel's filters ------------------------------------------------------------------------------------------


def assemble(lines):
    """Assembles a classic BPF program. A line is (label, operation, constant, label if true, label if false)."""
    operations = {"ldb": 0x30, "ldh": 0x28, "ld": 0x20, "len": 0x80, "ldxb": 0xB1, "ldhx": 0x48, "subx": 0x1C, "jeq": 0x15,
                  "jge": 0x35, "jset": 0x45, "ret": 0x06}
    places = {label: number for number, (label, *_) in enumerate(lines) if label}
    code = b""
    for number, (_, operation, constant, *targets) in enumerate(lines):
        jumps = [0 if target is None else places[target] - number - 1 for target in targets] or [0, 0]
        code += struct.pack("HBBI", operations[operation], *jumps, constant)
    return code


def outgoing_filter(sealed, unsealed):
    """Returns a filter that passes so many bytes of each sealed datagram that leaves, and of all else that does. Address
    resolution and messages of ICMP and IGMP carry no bytes of programs."""
    packet_type, outgoing = 0xFFFFF000 + 4, 4
    return assemble([
        (None, "ldb", packet_type), (None, "jeq", outgoing, None, "drop"),
        (None, "ldh", 12), (None, "jeq", IPV4, "ipv4", None), (None, "jeq", IPV6, "ipv6", None),
        (None, "jeq", ARP, "drop", "open"),
        ("ipv4", "ldb", 23), (None, "jeq", 1, "drop", None), (None, "jeq", 2, "drop", None), (None, "jeq", 17, None, "open"),
        (None, "ldh", 20), (None, "jset", 0x3FFF, "open", None),  # fragments
        (None, "ldxb", 14), (None, "len", 0), (None, "subx", 0), (None, "jge", 24, None, "open"),
        (None, "ldhx", 14), (None, "jeq", ROCE_PORT, "seal4", None), (None, "ldhx", 16), (None, "jeq", ROCE_PORT, None, "open"),
        ("seal4", "ldhx", 22), (None, "jeq", 0xFE02, "sealed", "open"),
        ("ipv6", "ldb", 20), (None, "jeq", 58, "drop", None), (None, "jeq", 17, None, "open"),
        (None, "len", 0), (None, "jge", 64, None, "open"),
        (None, "ldh", 54), (None, "jeq", ROCE_PORT, "seal6", None), (None, "ldh", 56), (None, "jeq", ROCE_PORT, None, "open"),
        ("seal6", "ldh", 62), (None, "jeq", 0xFE02, "sealed", "open"),
        ("open", "ret", unsealed), ("sealed", "ret", sealed), ("drop", "ret", 0),
    ])


def listener(code, buffer_bytes):
    listening = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    holder = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(holder))
    listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    try:
        listening.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, buffer_bytes)
    except PermissionError:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    listening.setblocking(False)
    # From here on, all protocols of all interfaces. Python's own bind() wants one interface.
    address = struct.pack("HHiHBB8s", socket.AF_PACKET, socket.htons(3), 0, 0, 0, 0, b"")
    if _libc.bind(listening.fileno(), address, len(address)) != 0:
        raise OSError(ctypes.get_errno(), "cannot look at all interfaces")
    return listening


def statistics(listening):
    """Returns how many frames the filter has passed since the last call, and how many of them found no room."""
    return struct.unpack("II", listening.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))


# --- interfaces ----------------------------------------------------------------------------------------------------


def ethtool(control, interface, command):
    buffer = ctypes.create_string_buffer(command, len(command))
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(buffer))
    fcntl.ioctl(control, SIOCETHTOOL, request)
    return buffer.raw


def cut_sends(control, interface):
    """Has an interface get single datagrams in place of many in one piece."""
    try:
        question = struct.pack("IIQI", SSET_INFO, 0, 1 << SS_FEATURES, 0)
        count = struct.unpack_from("I", ethtool(control, interface, question), 16)[0]
        names = ethtool(control, interface, struct.pack("III", GSTRINGS, SS_FEATURES, count) + bytes(32 * count))[12:]
        features = [names[32 * i:32 * i + 32].rstrip(b"\0") for i in range(count)]
        place = features.index(b"tx-udp-segmentation")
        blocks = [[0, 0] for _ in range((count + 31) // 32)]
        blocks[place // 32][0] = 1 << place % 32
        ethtool(control, interface, struct.pack("II", SFEATURES, len(blocks)) + b"".join(struct.pack("II", *b) for b in blocks))
    except (OSError, ValueError):
        pass  # it has none to cut, or is gone


# --- processes -----------------------------------------------------------------------------------------------------


def inodes_of_port(protocol, port):
    """Returns the sockets of this thread's namespace that are bound to the port."""
    found = set()
    for table in (protocol, protocol + "6"):
        try:
            text = pathlib.Path(f"/proc/thread-self/net/{table}").read_text()
        except OSError:
            continue
        for line in text.splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port and fields[9] != "0":
                found.add(fields[9])
    return found


def programs_of(namespace):
    """Returns the names of the programs that live in the namespace, but for the host agent and who holds it open."""
    names = set()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{entry}/ns/net").st_ino == namespace:
                names.add(program_name(entry))
        except OSError:
            pass  # it is gone
    return sorted(names - {"sleep", "tulle agent", "?"})


def owners(inodes, namespace):
    """Returns the processes of the namespace that have one of these sockets."""
    wanted, found = {f"socket:[{inode}]" for inode in inodes}, []
    for entry in os.listdir("/proc") if wanted else ():
        if not entry.isdigit():
            continue
        try:
            if os.stat(f"/proc/{entry}/ns/net").st_ino == namespace and any(
                    os.readlink(f"/proc/{entry}/fd/{fd}") in wanted for fd in os.listdir(f"/proc/{entry}/fd")):
                found.append(entry)
        except OSError:
            pass  # it is gone
    return found


def read(path):
    try:
        return pathlib.Path(path).read_bytes()
    except OSError:
        return b""


def program_name(pid):
    words = read(f"/proc/{pid}/cmdline").split(b"\0")
    name = os.path.basename(words[0]).decode(errors="replace") or "?"
    if name.startswith("python"):
        script = next((os.path.basename(word).decode() for word in words[1:] if word.endswith(b".py")), "a script")
        return f"{script} (Python)"
    if name == "tulle" and len(words) > 1:
        name += " " + words[1].decode(errors="replace")
    return name


def is_own(pid, build):
    """Returns whether the process lives and has nothing of Tulle's, or is a stranger."""
    maps = read(f"/proc/{pid}/maps")
    return bool(maps) and (program_name(pid) in STRANGERS or str(build).encode() not in maps)


def may_fall_back(pid):
    """Returns whether a TCP connection of the process may stand for an rsocket, or is the host agent's. `tulle bench`
    and its like are programs that meet by TCP, as perftest's do."""
    return b"librspreload" in read(f"/proc/{pid}/maps") or program_name(pid) == "tulle agent"


# --- the watch -----------------------------------------------------------------------------------------------------


class Watch:
    """Looks at a namespace until it is closed. Then `seen` tells what left."""

    def __init__(self, namespace_fd, inode, build, own=None):
        self.inode, self.build = inode, build
        self.own = own  # says why plain datagrams that no living socket has sent are the test's own
        self.sealed, self.looked, self.missed = 0, 0, 0
        self.kinds = collections.Counter()  # frames that are not sealed
        self.streams = collections.Counter()  # TCP connections by the program that opened them
        self.unowned = 0  # of these, those of whom nobody can tell the owner
        self.stream_bytes, self.fallbacks, self.clear = 0, 0, 0
        self.names, self.fragments, self.failure = {}, {}, ""
        self.senders, self.doubtful = set(), collections.Counter()
        self.is_ended, self.has_begun = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.look, args=(namespace_fd,), daemon=True)
        self.thread.start()
        self.has_begun.wait()
        if self.failure:
            raise OSError(self.failure)

    def look(self, namespace_fd):
        try:
            if _libc.setns(namespace_fd, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "cannot enter the namespace")
            with listener(outgoing_filter(0xFFFF, 0), 1 << 21) as sealed, \
                    listener(outgoing_filter(0, 0x40000), 1 << 26) as unsealed, \
                    socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                self.listen(sealed, unsealed, control)
        except OSError as error:
            self.failure = str(error)
        finally:
            self.has_begun.set()

    def listen(self, sealed, unsealed, control):
        interfaces = set()
        while True:
            is_last = self.is_ended.is_set()
            present = {name for _, name in socket.if_nameindex()}
            for name in present - interfaces:
                cut_sends(control, name)
            interfaces = present
            self.has_begun.set()
            if not is_last:
                select.select([unsealed], [], [], PAUSE)
            self.drain(unsealed, self.judge, 1 << 30 if is_last else 4096)
            self.drain(sealed, self.look_into, LOOKS)
            self.sealed += statistics(sealed)[0]
            self.missed += statistics(unsealed)[1]
            if is_last:
                return self.find_damaged()

    def find_damaged(self):
        """Faults that a test injects damage datagrams after they have been sealed. Their senders are those of others."""
        for (kind, sender), count in self.doubtful.items():
            if any(sum(map(int.__eq__, sender, known)) >= SENDER_BYTES_MIN for known in self.senders):
                self.kinds[DAMAGED] += count
                self.kinds[kind] -= count

    @staticmethod
    def drain(listening, use, most):
        for _ in range(most):
            try:
                use(listening.recv(0x40000))
            except BlockingIOError:
                return

    def look_into(self, frame):
        start = 14 + (4 * (frame[14] & 15) if frame[12:14] == b"\x08\x00" else 40) + 8
        self.looked += 1
        self.senders.add(frame[start:][SENDER])
        body = frame[start + SEAL_HEADER_BYTES:]
        if any(mark in body for mark in MARKS) or RUN.search(body):
            self.clear += 1

    def judge(self, frame):
        kind, start = int.from_bytes(frame[12:14], "big"), 14
        while kind == VLAN:
            kind, start = int.from_bytes(frame[start + 2:start + 4], "big"), start + 4
        if kind == IPV4:
            header = 4 * (frame[start] & 15)
            protocol, key = frame[start + 9], frame[start + 4:start + 6] + frame[start + 12:start + 20]
            fragment = int.from_bytes(frame[start + 6:start + 8], "big")
            end = start + int.from_bytes(frame[start + 2:start + 4], "big")
        elif kind == IPV6:
            header, protocol, key, fragment = 40, frame[start + 6], frame[start + 8:start + 40], 0
            end = start + 40 + int.from_bytes(frame[start + 4:start + 6], "big")
            while protocol in (0, 43, 44, 60):  # options, routing, fragment
                at = start + header
                if protocol == 44:
                    field = int.from_bytes(frame[at + 2:at + 4], "big")
                    fragment, key = field >> 3 | (field & 1) << 13, key + frame[at + 4:at + 8]
                protocol, header = frame[at], header + (8 if protocol == 44 else 8 * (frame[at + 1] + 1))
        else:
            if kind != ARP:
                self.kinds[OTHER_FRAMES.get(kind, f"frames of type {kind:#06x}")] += 1
            return
        body = frame[start + header:end] if end > start else frame[start + header:]
        if protocol == socket.IPPROTO_TCP:
            self.stream(body)
        elif protocol == socket.IPPROTO_UDP:
            if fragment & 0x1FFF:
                self.kinds[self.fragments.get(key, "fragments")] += 1
                return
            found = self.datagram(body)
            if fragment & 0x2000:
                self.fragments[key] = found
            self.kinds[found] += 1
        elif protocol not in (socket.IPPROTO_ICMP, socket.IPPROTO_ICMPV6, socket.IPPROTO_IGMP):
            self.kinds[f"packets of IP protocol {protocol}"] += 1

    def datagram(self, body):
        source, destination = struct.unpack_from("!HH", body) if len(body) >= 8 else (0, 0)
        if body[8:10] == SEAL:
            return "sealed"
        if ROCE_PORT not in (source, destination):
            return f"UDP to port {destination} by {self.sender(source)[1]}"
        if SEAL.startswith(body[8:]):
            return DAMAGED  # it has been cut down to a byte, or to none
        is_tests_own, name = self.sender(source)
        kind = f"own plain: {name}" if is_tests_own else f"plain: {name}"
        if len(self.doubtful) < DOUBTFUL_MAX:
            self.doubtful[kind, body[8:][SENDER]] += 1
        return kind

    def sender(self, port):
        """Returns whether the test itself, and not Tulle, has this UDP port, and the name of the program."""
        if port not in self.names:
            pids = owners(inodes_of_port("udp", port), self.inode)
            name = program_name(pids[0]) if pids else "?"
            if name == "?":
                self.names[port] = bool(self.own), self.own or NOBODY
            else:
                self.names[port] = all(is_own(pid, self.build) for pid in pids), name
        return self.names[port]

    def stream(self, segment):
        if len(segment) < 20:
            return
        (source, destination), flags = struct.unpack_from("!HH", segment), segment[13]
        self.stream_bytes += max(len(segment) - 4 * (segment[12] >> 4), 0)
        if flags & 0x12 != 0x02:  # not the first segment of a connection
            return
        pids = owners(inodes_of_port("tcp", source), self.inode) or owners(inodes_of_port("tcp", destination), self.inode)
        # An attacker passes sockets of its own to others.
        if pids and not self.own and all(may_fall_back(pid) for pid in pids):
            self.fallbacks += 1
        # A connection may have ended before anybody looked. It was one of those programs that are there.
        name = program_name(pids[0]) if pids else "?"
        if name == "?":
            self.unowned += 1
            name = " or ".join(programs_of(self.inode)[:3]) or ENDED
        self.streams[name] += 1

    def close(self):
        self.is_ended.set()
        self.thread.join()

    def seen(self):
        kinds = +self.kinds
        return {"sealed": self.sealed + kinds.pop("sealed", 0), "looked": self.looked, "clear": self.clear,
                "missed": self.missed, "kinds": dict(kinds), "streams": dict(self.streams), "unowned": self.unowned,
                "stream_bytes": self.stream_bytes, "fallbacks": self.fallbacks, "failure": self.failure}
