"""Tests raw packets: whole Ethernet frames through queue pairs, steered by rules, between two hosts and within one."""

import pathlib
import re

from harness import ClientTest, table_rows, wait_until
from unprivileged_test import as_ordinary_user, skip_out_of_reach

FRAMES = pathlib.Path(__file__).resolve().parent / "raw_frames.py"
PYTHON = "/usr/bin/python3"  # Debian's, which has pyverbs
GROUP, OTHER_GROUP = "01:00:5e:01:02:03", "01:00:5e:01:02:04"

# The kernel sends these frames through a packet socket, as for any program. Tulle has no part in them.
SEND = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
    out.bind((sys.argv[1], 0))
    for frame in sys.argv[2:]:
        out.send(bytes.fromhex(frame))
"""
# The kernel's own stack sends this datagram, and leaves the checksum to hardware that is not there.
SEND_UDP = """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hello", ("10.0.0.1", 7777))
"""


def mac_of(net, interface="veth0"):
    return re.search(r"link/ether (\S+)", net.run("ip", "link", "show", "dev", interface)).group(1)


def frame(destination, text, source="02:00:00:00:00:09", kind="88b5"):
    """Returns a frame of a type that is for experiments (IEEE 802)."""
    return destination.replace(":", "") + source.replace(":", "") + kind + text.encode().hex().ljust(100, "0")


def has_flow(net):
    """Returns whether a program in the namespace receives all frames (protocol 0003)."""
    return re.search(r" 0003 ", net.run("cat", "/proc/net/packet")) is not None


class Perftest(ClientTest):
    """Runs perftest's raw Ethernet programs. Their two sides share nothing but frames: if one is lost, the server
    waits on."""

    def setUp(self):
        super().setUp()
        self.first, self.second = self.joined_namespaces()

    def between(self, program, *options):
        here, there = mac_of(self.first), mac_of(self.second)
        options = ["-F", *map(str, options)]
        server = self.start(*self.over_tulle([program, "--server", "-B", here, "-E", there, *options]), net=self.first)
        wait_until(lambda: has_flow(self.first) or not server.running, "the server's rule")
        client = self.start(*self.over_tulle([program, "--client", "-B", there, "-E", here, *options]), net=self.second)
        self.finish(server, client)
        self.assertTrue(table_rows(client.stdout), client.describe())

    def test_bandwidth(self):
        for size in (64, 1500):
            with self.subTest(size=size):
                self.between("raw_ethernet_bw", "-n", 2000, "-s", size)

    def test_post_list(self):
        self.between("raw_ethernet_bw", "-n", 512, "-s", 256, "-l", 8)

    def test_ip_and_ports(self):
        for protocol in ((), ("--tcp",)):
            with self.subTest(protocol=protocol):
                self.between("raw_ethernet_bw", "-n", 500, "-s", 512, "-J", "10.0.0.1", "-j", "10.0.0.2",
                             "-K", 7000, "-k", 7001, *protocol)

    def test_latency(self):
        self.between("raw_ethernet_lat", "-n", 200, "-s", 64)


class Frames(ClientTest):
    def pair(self, *options, net=None, prefix=()):
        return self.start(*prefix, *self.over_tulle([PYTHON, FRAMES, *map(str, options)]), net=net)

    def receiver(self, *options, net=None):
        process = self.pair(*options, net=net)
        wait_until(lambda: "ready" in process.stdout or not process.running, "a receiver to be ready")
        self.assertIn("ready", process.stdout, process.describe())
        return process

    def received(self, process):
        self.assertEqual(0, process.wait(), process.describe())
        return re.findall(r"^received 0 (\S+)$", process.stdout, re.MULTILINE)

    def send(self, *frames, net=None):
        self.assertEqual(0, self.pair("--send", *frames, net=net).wait())

    def test_a_rule_takes_its_frames_and_no_others(self):
        first, second = self.joined_namespaces()
        receiver = self.receiver("--mac", GROUP, "--expect", 2, net=first)
        other = self.receiver("--mac", OTHER_GROUP, "--expect", 1, "--wait", 3, net=first)
        frames = [frame(GROUP, "one"), frame(GROUP, "two")]
        self.run_program(PYTHON, "-c", SEND, "veth0", frames[0], frame(mac_of(first), "no"), frames[1], net=second)
        self.assertEqual(frames, self.received(receiver))
        self.assertEqual([], self.received(other))

    def test_what_is_sent_is_a_frame_of_the_wire(self):
        """A kernel's own socket at the other end sees the frame, to the byte."""
        first, second = self.joined_namespaces()
        receive = ("import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5));"
                   "s.bind(('veth0', 0x88B5)); s.settimeout(20); print('ready', flush=True); print(s.recv(2000).hex())")
        other = self.start(PYTHON, "-c", receive, net=second)
        wait_until(lambda: "ready" in other.stdout, "the socket")
        sent = frame(mac_of(second), "to a kernel")
        self.send(sent, net=first)
        self.assertEqual(0, other.wait(), other.describe())
        self.assertIn(sent, other.stdout)

    def test_within_one_host(self):
        """A frame that the own host is to hear turns round, as in a NIC. A frame for another host does not."""
        first, _ = self.joined_namespaces()
        own, foreign = mac_of(first), "02:00:00:00:00:77"
        to_group = self.receiver("--mac", GROUP, "--expect", 1, net=first)
        to_own = self.receiver("--mac", own, "--expect", 1, net=first)
        to_foreign = self.receiver("--mac", foreign, "--expect", 1, "--wait", 4, net=first)
        frames = [frame(GROUP, "group"), frame(own, "own"), frame(foreign, "foreign")]
        self.send(*frames, net=first)
        self.assertEqual(frames[:1], self.received(to_group))
        self.assertEqual(frames[1:2], self.received(to_own))
        self.assertEqual([], self.received(to_foreign))

    def test_over_loopback(self):
        receivers = [self.receiver("--mac", GROUP, "--expect", 2, "--wait", 4) for _ in range(2)]
        self.send(frame(GROUP, "once"))
        for receiver in receivers:
            self.assertEqual([frame(GROUP, "once")], self.received(receiver))

    def test_sniffer(self):
        first, second = self.joined_namespaces()
        receiver = self.receiver("--kind", "SNIFFER", "--expect", 1000, "--wait", 3, net=first)
        strange = frame("02:00:00:00:00:55", "strange")
        self.run_program(PYTHON, "-c", SEND, "veth0", strange, net=second)
        self.assertIn(strange, self.received(receiver))

    def test_tags_and_checksums_are_what_a_wire_brings(self):
        first, second = self.joined_namespaces()
        receiver = self.receiver("--kind", "SNIFFER", "--expect", 1000, "--wait", 3, net=first)
        tagged = frame(GROUP, "tagged", kind="8100600588b5")
        self.run_program(PYTHON, "-c", SEND, "veth0", tagged, net=second)
        self.run_program(PYTHON, "-c", SEND_UDP, net=second)
        received = self.received(receiver)
        self.assertIn(tagged, received)
        datagrams = [bytes.fromhex(f) for f in received if f.endswith(b"hello".hex())]
        self.assertTrue(datagrams, received)
        for datagram in datagrams:
            ip, udp = datagram[14:34], datagram[34:]
            pseudo = ip[12:20] + bytes([0, 17]) + udp[4:6] + udp + b"\0" * (len(udp) % 2)
            words = sum(int.from_bytes(pseudo[i:i + 2], "big") for i in range(0, len(pseudo), 2))
            self.assertEqual(0xFFFF, words % 0xFFFF or 0xFFFF)
            self.assertNotEqual(b"\0\0", udp[6:8])

    def test_a_frame_that_is_too_long(self):
        sender = self.pair("--send", frame(GROUP, "x" * 1501), net=self.joined_namespaces()[0])
        self.assertEqual(0, sender.wait(), sender.describe())
        self.assertIn("sent 1", sender.stdout)  # IBV_WC_LOC_LEN_ERR

    def test_without_privileges(self):
        """The capabilities have no raw queue pairs, and creating one is refused."""
        skip_out_of_reach(self, as_ordinary_user())
        process = self.pair("--send", frame(GROUP, "no"), prefix=as_ordinary_user())
        self.assertEqual(1, process.wait(), process.describe())
        self.assertIn("queue pairs none", process.stdout)
        self.assertIn("refused 1", process.stderr)  # EPERM
