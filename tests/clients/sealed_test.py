"""Looks at the cable between two hosts whose programs seal what they send: nothing of theirs goes over it in clear."""

import json
import pathlib
import signal
import tempfile

from harness import BUILD, ClientTest, wait_until

RSPRELOAD = BUILD / "lib" / "shim" / "rsocket" / "librspreload.so"
SIZES = ("-S", "10000", "-C", "10")  # both ends of a stream need the same
MARK = "rdma-ping-"  # rping sends this text
# Prints, at the end, how many frames of each kind went over the cable, and how many had the mark in them.
OBSERVER = """
import collections, json, signal, socket, sys
cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
cable.bind(("veth0", 0))
kinds = collections.Counter()
def end(*_):
    print(json.dumps(kinds), flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("looks", flush=True)
while True:
    frame = cable.recv(65536)
    if sys.argv[1].encode() in frame:
        kinds["mark"] += 1
    kind = frame[12:14]
    if kind not in (b"\\x08\\x00", b"\\x86\\xdd"):
        continue  # ARP
    protocol, start = (frame[23], 14 + 4 * (frame[14] & 15)) if kind == b"\\x08\\x00" else (frame[20], 54)
    if protocol not in (6, 17):
        continue  # ICMP, IGMP
    port = int.from_bytes(frame[start + 2:start + 4], "big")
    data = frame[start + 8:]
    if protocol == 6:
        kinds["TCP"] += 1
    elif port != 4791:
        kinds["UDP"] += 1
    else:
        kinds["sealed" if data[:2] == b"\\xfe\\x02" else "plain"] += 1
"""
ECHO = """
import socket
listener = socket.create_server(("10.0.0.1", 7000))
while True:
    peer, _ = listener.accept()
    while data := peer.recv(65536):
        peer.sendall(data)
"""
ASK = """
import socket
peer = socket.create_connection(("10.0.0.1", 7000), timeout=5)
peer.sendall(b"rdma-ping-" * 1000)
assert peer.recv(10) == b"rdma-ping-"
"""

# Clears its environment before it uses the device, and after the host agent has left.
CLEARS = """
import os, subprocess, sys, time
from pyverbs.device import Context
tulle = os.environ["TULLE_EXECUTABLE"]
del os.environ["TULLE_SECURE"]
while "No host agent" not in subprocess.run([tulle, "status"], capture_output=True, text=True).stdout:
    time.sleep(0.1)
context = Context(name="tulle0")
print("opened", flush=True)
time.sleep(60)
"""


class Sealed(ClientTest):
    def setUp(self):
        super().setUp()
        self.first, self.second = self.joined_namespaces()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.keys = pathlib.Path(folder.name) / "keys"
        self.keys.write_text("5" * 64 + "\n")
        self.keys.chmod(0o600)
        self.observer = self.start("/usr/bin/python3", "-c", OBSERVER, MARK, net=self.second)
        wait_until(lambda: "looks" in self.observer.stdout, "the observer")

    def sealed(self, *argv):
        return self.over_tulle([str(each) for each in argv], ("--secure", self.keys))

    def frames(self):
        """Returns how many frames of each kind went over the cable."""
        self.observer.signal(signal.SIGTERM)
        self.observer.wait()
        return json.loads(self.observer.stdout.splitlines()[-1])

    def runs(self, server, client):
        """Runs the client until it has found the server. Returns the frames of both."""
        self.start(*self.sealed(*server), net=self.first)
        wait_until(lambda: self.run_program(*self.sealed(*client), net=self.second, expect=None, limit=20).wait() == 0,
                   "the client", pause=0.2)
        return self.frames()

    def test_programs_of_librdmacm(self):
        for server, client in ((("rping", "-s", "-P", "-a", "10.0.0.1"), ("rping", "-c", "-C", "10", "-v", "-a", "10.0.0.1")),
                               (("udaddy",), ("udaddy", "-s", "10.0.0.1")),
                               (("rstream", *SIZES), ("rstream", *SIZES, "-s", "10.0.0.1")),
                               (("riostream", *SIZES), ("riostream", *SIZES, "-s", "10.0.0.1"))):
            with self.subTest(program=client[0]):
                self.setUp()
                frames = self.runs(server, client)
                self.assertEqual({"sealed"}, set(frames), frames)
                self.assertGreater(frames["sealed"], 10)

    def test_a_group(self):
        argv = ("mckey", "-m", "239.1.1.1", "-C", "10")
        receiver = self.start(*self.sealed("stdbuf", "-oL", *argv, "-b", "10.0.0.1"), net=self.first)
        wait_until(lambda: "joined" in receiver.stdout or not receiver.running, "the receiver")
        self.run_program(*self.sealed(*argv, "-s", "-b", "10.0.0.2"), net=self.second, limit=30)
        self.assertEqual(0, receiver.wait(30), receiver.describe())
        frames = self.frames()
        self.assertEqual({"sealed"}, set(frames), frames)

    def test_a_plain_program_is_seen(self):
        """The observer sees what is not sealed: this is what the other tests rest on."""
        self.start(*self.over_tulle(["rping", "-s", "-P", "-a", "10.0.0.1"]), net=self.first)
        argv = ["rping", "-c", "-C", "10", "-v", "-a", "10.0.0.1"]
        wait_until(lambda: self.run_program(*self.over_tulle(argv), net=self.second, expect=None).wait() == 0, "the client")
        frames = self.frames()
        self.assertGreater(frames["plain"], 10)
        self.assertGreater(frames["mark"], 10)
        self.assertNotIn("sealed", frames)

    def test_sockets_of_streams_do_not_fall_back_to_tcp(self):
        preloaded = ("env", f"LD_PRELOAD={RSPRELOAD}", "/usr/bin/python3", "-c")
        frames = self.runs((*preloaded, ECHO), (*preloaded, ASK))
        self.assertEqual({"sealed"}, set(frames), frames)
        # Now the other end has TCP alone.
        self.setUp()
        server = self.start("/usr/bin/python3", "-c", ECHO, net=self.first)
        wait_until(lambda: self.first.run("ss", "-Hltn").count(":7000"), "the server")
        client = self.run_program(*self.sealed(*preloaded, ASK), net=self.second, expect=1, limit=30)
        self.assertRegex(client.stderr, "TimeoutError|ConnectionRefusedError")
        self.assertTrue(server.running)
        self.assertEqual(set(), set(self.frames()) - {"sealed"})

    def test_a_program_that_clears_its_environment(self):
        environment = {"TULLE_IDLE_EXIT": "1"}
        program = self.start(*self.sealed("/usr/bin/python3", "-c", CLEARS), net=self.first, env=environment)
        wait_until(lambda: "opened" in program.stdout or not program.running, "the device")
        plain = self.run_program(*self.over_tulle(["ibv_devinfo"]), net=self.first, env={"TULLE_SECURE": ""}, expect=None,
                                 limit=20)
        self.assertIn("the running host agent seals its datagrams", plain.stderr, program.describe())

    def test_raw_packets_and_roce_v1_are_refused(self):
        for option, program in (("v2", "raw_ethernet_bw"), ("v1", "ibv_rc_pingpong")):
            with self.subTest(program=program):
                argv = {"raw_ethernet_bw": ("raw_ethernet_bw", "--client", "-B", "02:00:00:00:00:01", "-E",
                                            "02:00:00:00:00:02", "-F", "-n", "5"),
                        "ibv_rc_pingpong": ("ibv_rc_pingpong", "-g", "0")}[program]
                options = ("--secure", self.keys, "--roce", option)
                refused = self.run_program(*self.over_tulle(argv, options), net=self.first, expect=None, limit=20)
                self.assertNotEqual(0, refused.wait(), refused.describe())
        self.assertEqual(set(), set(self.frames()))

    def test_sockets_of_datagrams_are_refused(self):
        """They find one another by UDP."""
        server = self.run_program(*self.sealed("udpong", "-b", "10.0.0.1"), net=self.first, expect=None, limit=20)
        self.assertIn("not supported", server.stdout + server.stderr)
        client = self.run_program(*self.sealed("udpong", "-s", "10.0.0.1"), net=self.second, expect=None, limit=20)
        self.assertIn("not supported", client.stdout + client.stderr)
        self.assertEqual(set(), set(self.frames()) - {"sealed"})
