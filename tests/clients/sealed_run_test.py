"""Tests what a run of ./dev client --sealed sees of a network, and what it makes of it."""

import os
import unittest
import unittest.mock

import cable
import sealed
import sealed_run
from harness import BUILD, ClientTest, join

SEAL = r"b'\xfe\x02'"
SEND = f"""
import socket, sys, time
SEAL = {SEAL}
def udp(family=socket.AF_INET):
    return socket.socket(family, socket.SOCK_DGRAM)
def frame(kind, text, interface="lo"):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
        out.bind((interface, 0))
        out.send(bytes(12) + bytes.fromhex(kind) + text)
"""


class Watched(ClientTest):
    def setUp(self):
        # What this test sends in clear is no matter of a sealed run's own watches.
        self.enterContext(unittest.mock.patch.dict(os.environ))
        os.environ.pop(sealed.SEALED, None)
        super().setUp()

    def seen(self, *scripts, net=None, own=None):
        net = net or self.net
        watch = cable.Watch(net.fd, net.inode, BUILD, own)
        try:
            for script in scripts:
                self.run_program("/usr/bin/python3", "-c", SEND + script, net=net)
        finally:
            watch.close()
        return watch.seen()

    def test_sealed_datagrams_are_counted(self):
        seen = self.seen('for i in range(5): udp().sendto(SEAL + bytes(range(200)), ("127.0.0.1", 4791))',
                         'for i in range(4): udp(socket.AF_INET6).sendto(SEAL + bytes(range(200)), ("::1", 4791))')
        self.assertEqual((9, 9, 0, {}), (seen["sealed"], seen["looked"], seen["clear"], seen["kinds"]))
        self.assertEqual([], sealed_run.leaks(seen))

    def test_each_datagram_of_a_large_send_is_seen(self):
        """The kernel gets eleven datagrams in one piece, of which one in the middle is plain."""
        seen = self.seen('out = udp(); out.setsockopt(17, 103, 1000)\n'  # UDP_SEGMENT
                         'whole = SEAL + bytes(range(250)) * 4\n'
                         'out.sendto(whole[:1000] * 5 + b"plain" * 200 + whole[:1000] * 5, ("127.0.0.1", 4791)); time.sleep(0.3)')
        self.assertEqual(10, seen["sealed"])
        self.assertEqual(1, sum(seen["kinds"].values()), seen)

    def test_what_is_plain_is_seen(self):
        for what, script in (("IPv4", 'udp().sendto(b"plain", ("127.0.0.1", 4791))'),
                             ("IPv6", 'udp(socket.AF_INET6).sendto(b"plain", ("::1", 4791))'),
                             ("another version", r'udp().sendto(b"\xfe\x01" + bytes(99), ("127.0.0.1", 4791))'),
                             ("two bytes", r'udp().sendto(b"\xfe\x00", ("127.0.0.1", 4791))'),
                             ("another port", 'udp().sendto(b"plain", ("127.0.0.1", 4792))'),
                             ("RoCE v1", 'frame("8915", bytes(60))'),
                             ("a frame", 'frame("88b5", bytes(60))'),
                             ("a tagged frame", 'frame("8100000588b5", bytes(60))'),
                             ("a protocol",
                              'socket.socket(socket.AF_INET, socket.SOCK_RAW, 200).sendto(b"x", ("127.0.0.1", 0))')):
            with self.subTest(what):
                seen = self.seen(script)
                self.assertEqual((0, 1), (seen["sealed"], sum(seen["kinds"].values())), seen)
                # The sender may have ended before anybody asked whose it was.
                self.assertEqual(0 if str(seen["kinds"]).startswith("{'own ") else 1, len(sealed_run.leaks(seen)), seen)

    def test_fragments_belong_to_their_datagram(self):
        first, second = self.namespace(), self.namespace()
        join(first, second)
        for body, kinds in (("SEAL + bytes(range(200)) * 20", {"sealed"}), ("b'plain' * 800", {"plain"})):
            with self.subTest(body):
                seen = self.seen(f"udp().sendto({body}, ('10.0.0.2', 4791))", net=first)
                plain = {kind.split(":")[0].removeprefix("own ") for kind in seen["kinds"]}
                self.assertEqual(kinds - {"sealed"}, plain, seen)
                self.assertEqual(3 if kinds == {"sealed"} else 0, seen["sealed"])

    def test_clear_bytes_in_a_seal_are_seen(self):
        for text in (r'b"rdma-ping-7: ABC"', r'b"\xaa" * 16'):
            seen = self.seen(f'udp().sendto(SEAL + bytes(range(60)) + {text} + bytes(range(50)), ("127.0.0.1", 4791)); '
                             'time.sleep(0.2)')
            self.assertEqual((1, 1), (seen["sealed"], seen["clear"]))
            self.assertIn("clear bytes", sealed_run.leaks(seen)[0])

    def test_damaged_seals_are_no_leaks(self):
        """Faults are injected into what has been sealed."""
        sealed_one = ("whole = SEAL + bytes(6) + bytes(range(100, 112)) + bytes(range(60))\n"
                      "to, out = ('127.0.0.1', 4791), udp()\n")
        seen = self.seen(sealed_one + "out.sendto(whole, to); out.sendto(bytes(range(200, 216)) + whole[16:], to)\n"
                         "out.sendto(b'', to); out.sendto(whole[:1], to)")
        self.assertEqual((1, {cable.DAMAGED: 3}, []), (seen["sealed"], seen["kinds"], sealed_run.leaks(seen)))
        seen = self.seen(sealed_one + "out.sendto(whole, to); out.sendto(bytes(range(200, 240)), to)")
        self.assertEqual({1}, set(seen["kinds"].values()))
        self.assertNotIn(cable.DAMAGED, seen["kinds"])

    def test_senders_are_told_apart(self):
        lives = 'out = udp(); out.bind(("127.0.0.9", 50001)); out.sendto(b"plain", ("127.0.0.1", 4791)); time.sleep(0.5)'
        seen = self.seen(lives)
        self.assertEqual({"own plain: a script (Python)": 1}, seen["kinds"])
        self.assertEqual([], sealed_run.leaks(seen))
        # The same by a program that has Tulle's libraries is a leak.
        watch = cable.Watch(self.net.fd, self.net.inode, BUILD)
        library = next((BUILD / "lib").rglob("libibverbs.so.1"))
        load = f"import ctypes; ctypes.CDLL({str(library)!r})\n"
        self.run_program("/usr/bin/python3", "-c", SEND + load + lives)
        watch.close()
        self.assertEqual({"plain: a script (Python)": 1}, watch.seen()["kinds"])
        # A test may be known to send by sockets that nobody has bound.
        raw = 'frame("0800", bytes.fromhex("4500001e0001000040110000") + bytes([127,0,0,9,127,0,0,1]) + ' \
              'bytes.fromhex("c3e812b7000a0000") + b"xy")'
        self.assertEqual({"plain: nobody who lives": 1}, self.seen(raw)["kinds"])
        self.assertEqual({"own plain: the test's raw socket": 1}, self.seen(raw, own="the test's raw socket")["kinds"])

    def test_streams_are_counted_and_named(self):
        seen = self.seen('listener = socket.create_server(("127.0.0.1", 7000))\n'
                         'streams = [socket.create_connection(("127.0.0.1", 7000)) for _ in range(3)]\n'
                         'for each in streams: each.sendall(b"x" * 50)\n'
                         'time.sleep(0.3)')
        self.assertEqual(({}, 150, 0), (seen["kinds"], seen["stream_bytes"], seen["fallbacks"]))
        self.assertEqual({"a script (Python)": 3}, seen["streams"])
        # One that ends at once is a living program's.
        seen = self.seen('listener = socket.create_server(("127.0.0.1", 7000))\n'
                         'socket.create_connection(("127.0.0.1", 7000)).close(); listener.close(); time.sleep(0.3)')
        self.assertEqual({"a script (Python)": 1}, seen["streams"])


class Judgement(unittest.TestCase):
    QUIET = {"streams": {}, "sealed": 0, "clear": 0, "missed": 0, "fallbacks": 0, "failure": "", "kinds": {}}

    def test_verdicts(self):
        busy = {**self.QUIET, "sealed": 7, "streams": {"ib_write_bw": 1}, "unowned": 1}
        fabric = sealed.REFUSALS["datagrams are not sealed on a fabric's host"]
        for expected, outcome, why, seen in (
                ("sealed", "pass", "", busy), ("nothing sent", "pass", "", self.QUIET), ("failed", "fail", "odd", busy),
                ("skipped", "skip", "not installed", self.QUIET), ("refused", "skip", fabric, self.QUIET)):
            self.assertEqual(expected, sealed_run.verdict("group.Class.test", outcome, why, seen)[0])
        for trouble in ({"preloaded": 1, "unowned": 1}, {"clear": 1}, {"missed": 1}, {"fallbacks": 1},
                        {"failure": "odd"}, {"kinds": {"plain: a": 1}}):
            for outcome in ("pass", "skip", "fail"):
                self.assertEqual("leak", sealed_run.verdict("group.Class.test", outcome, fabric, {**busy, **trouble})[0], trouble)
        self.assertEqual("sealed", sealed_run.verdict("a.B.c", "pass", "", {**busy, "kinds": {"own plain: forge.py": 3}})[0])

    def test_refusals(self):
        self.assertIsNone(sealed.refusal_in("tulle: something else"))
        self.assertIn("a fabric", sealed.refusal_in("tulle: TULLE_SECURE has no effect on a host of a software fabric\n"))

    def test_tables_name_a_test_a_class_or_a_group(self):
        for name in ("group.Class.test", "group.Class", "group"):
            self.assertEqual("why", sealed.matching({name: "why"}, "group.Class.test"))
        self.assertIsNone(sealed.matching({"group.Other": "why"}, "group.Class.test"))

    def test_the_record(self):
        row = {**self.QUIET, "looked": 1, "stream_bytes": 9, "streams": {"ib_write_bw": 2}, "reason": ""}
        rows = [{**row, "test": "a.B.one", "verdict": "sealed", "sealed": 5},
                {**row, "test": "a.B.two", "verdict": "leak", "reason": "1 plain: a",
                 "kinds": {"plain: a": 1, "own plain: b": 4}}]
        record = sealed_run.record(rows)
        self.assertEqual((2, {"sealed": 1, "leak": 1}, ["a.B.two: leak: 1 plain: a"]),
                         (record["tests"], record["verdicts"], record["faults"]))
        group = record["classes"]["a.B"]
        self.assertEqual((2, 5, 1, {"b": 4}, {"ib_write_bw": 4}),
                         tuple(group[name] for name in ("tests", "sealed", "plain", "own", "streams")))
        self.assertIn("a.B", sealed_run.table(rows)[1])

    def test_an_entry_for_a_limit_that_is_none_is_told(self):
        before = dict(sealed_run.LIMITS)
        sealed_run.LIMITS.clear()
        sealed_run.LIMITS.update({"a.B": "why", "c": "why", "d": "why"})
        try:
            rows = [{"test": "a.B.one", "verdict": "sealed"}, {"test": "c.D.one", "verdict": "does not apply"},
                    {"test": "c.D.two", "verdict": "sealed"}]
            self.assertEqual(["a.B"], sealed_run.idle_limits(rows))
        finally:
            sealed_run.LIMITS.clear()
            sealed_run.LIMITS.update(before)
