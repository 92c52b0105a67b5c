"""Tests programs that know sockets only, whose calls librspreload replaces by those of rsockets."""

import os
import pathlib
import re
import signal
import tempfile
import unittest

import rdma_cm
from harness import BUILD, ClientTest, wait_until

HERE = pathlib.Path(__file__).resolve().parent / "preloaded"
RSPRELOAD = BUILD / "lib" / "shim" / "rsocket" / "librspreload.so"
# LD_PRELOAD has the library's path and not its name, since `tulle run` has its own way to preload.
PRELOADED = ("env", f"LD_PRELOAD={RSPRELOAD}", "/usr/bin/python3")
CONNECTIONS, ROUNDS = 8, 20


class Servers(ClientTest):
    def serve(self, mode):
        """Returns how often the server woke."""
        server = rdma_cm.start_server(self, [*PRELOADED, HERE / "server.py", mode, str(CONNECTIONS)])
        client = self.start(*self.over_tulle([*PRELOADED, HERE / "client.py", str(CONNECTIONS), str(ROUNDS)]))
        self.finish(server, client, limit=60)
        self.assertIn("over RDMA", client.stdout, client.describe())
        return int(re.search(r"wakes (\d+)", server.stdout)[1])

    def test_levels(self):
        self.serve("level")

    def test_edges(self):
        # A server to which EPOLLOUT is reported over and over wakes a hundred times as often.
        self.assertLess(self.serve("edge"), 20 * CONNECTIONS * ROUNDS)

    def test_one_shot(self):
        self.serve("one_shot")

    def test_asyncio(self):
        self.serve("asyncio")


class Option(ClientTest):
    def test_tulle_run_preloads_it(self):
        client = self.run_program(*self.over_tulle(["/usr/bin/python3", "-c", self.SCRIPT], ("--rsockets",)))
        self.assertEqual("True b'x'", client.stdout.strip(), client.describe())

    SCRIPT = """
import socket, threading
listener = socket.create_server(("127.0.0.1", 7000))
thread = threading.Thread(target=lambda: listener.accept()[0].sendall(b"x"))
thread.start()
peer = socket.create_connection(("127.0.0.1", 7000))
thread.join()
print(":%04X " % 7000 not in open("/proc/net/tcp").read(), peer.recv(1))
"""


class Forks(ClientTest):
    CLIENT = """
import socket
first = socket.create_connection(("127.0.0.1", 7000))
first.sendall(b"a")
assert first.recv(1) == b"b"
second = socket.create_connection(("127.0.0.1", 7000))
assert second.recv(1) == b"c"
"""

    def test_a_child_ends_no_connection_of_its_parent(self):
        server = rdma_cm.start_server(self, [*PRELOADED, HERE / "forks.py"])
        client = self.start(*self.over_tulle([*PRELOADED, "-c", self.CLIENT]))
        self.finish(server, client, limit=60)
        self.assertIn("child 0", server.stdout, server.describe())


class Deaths(ClientTest):
    """A program learns that its peer was killed, also when it waits for data."""

    VICTIM = """
import os, signal, socket
listener = socket.create_server(("127.0.0.1", 7000))
peer, _ = listener.accept()
peer.recv(1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    SURVIVOR = """
import socket
peer = socket.create_connection(("127.0.0.1", 7000))
peer.sendall(b"a")
try:
    print("received", peer.recv(1))
except ConnectionError as problem:
    print("received", problem)
"""

    def test_of_a_server(self):
        rdma_cm.start_server(self, [*PRELOADED, "-c", self.VICTIM])
        client = self.run_program(*self.over_tulle([*PRELOADED, "-c", self.SURVIVOR]), limit=20)
        self.assertIn("received", client.stdout, client.describe())


class Calls(ClientTest):
    def test_calls(self):
        program = self.run_program(*self.over_tulle([*PRELOADED, HERE / "calls.py"]), limit=60)
        self.assertEqual(11, program.stdout.count("ok "), program.describe())
        self.assertIn("of the parent", program.stdout)


class Interrupted(ClientTest):
    """What calls and other threads do to a socket in use leaves no number in the table, and nothing in clear."""

    def interrupted(self, case, options=()):
        program = self.run_program(*self.over_tulle([BUILD / "bin/interrupted", case, "7000"], ("--rsockets", *options)))
        self.assertEqual("ok", program.stdout.strip(), program.describe())

    def test_a_thread_that_is_cancelled(self):
        self.interrupted("cancel")

    def test_a_handler_that_closes_a_socket(self):
        self.interrupted("handle")

    def test_a_handler_that_jumps(self):
        self.interrupted("leap")

    def test_a_signal_that_a_wait_lets_through(self):
        self.interrupted("mask")

    def test_a_thread_that_comes_to_a_call_cancelled(self):
        self.interrupted("pend")

    def test_threads_that_are_cancelled_anywhere(self):
        self.interrupted("sweep")

    def test_a_socket_in_use_that_is_replaced(self):
        self.interrupted("replace")

    def test_a_child_of_the_system_call(self):
        self.interrupted("clone")

    def test_a_handler_that_uses_the_socket_of_the_call(self):
        self.interrupted("same")

    def test_handlers_that_interrupt_malloc(self):
        self.interrupted("tick")

    def test_sealed_programs(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("5" * 64 + "\n")
            keys.flush()
            for case in ("cancel", "clone", "leap", "pend", "replace", "seal"):
                with self.subTest(case):
                    self.interrupted(case, ("--secure", keys.name))


class LikeTcp(ClientTest):
    """Calls do what they do over TCP."""

    def compare(self, case):
        command = [BUILD / "bin/like_tcp", case, "7000"]
        plain = self.run_program(*command, limit=60)
        self.assertEqual("ok", plain.stdout.strip(), plain.describe())
        program = self.run_program(*self.over_tulle(command, ("--rsockets",)), limit=60)
        self.assertEqual("ok", program.stdout.strip(), program.describe())

    def test_a_process_without_descriptors_for_what_it_accepts(self):
        self.compare("accept")

    def test_a_socket_that_is_shut_for_writing(self):
        self.compare("shut")

    def test_connect_to_nobody_or_from_a_listener(self):
        self.compare("connect")

    def test_flags_of_datagrams(self):
        self.compare("datagrams")

    def test_flags(self):
        self.compare("flags")

    def test_signals_whose_handlers_restart_calls(self):
        self.compare("interrupted")

    def test_files_that_are_sent(self):
        self.compare("sendfile")


class Stopped(ClientTest):
    """A client that stops, or is hostile, cannot hold up a server that closes its connection."""

    SERVER = """
import select, socket, time
listener = socket.create_server(("127.0.0.1", 7000))
peer, _ = listener.accept()
peer.setblocking(False)
assert peer.recv(1, socket.MSG_WAITALL) if select.select([peer], [], [], 10)[0] else False
time.sleep(0.5)  # the client has stopped itself
peer.send(b"x" * 100_000)
began = time.monotonic()
peer.close()
print("closed in", time.monotonic() - began, flush=True)
"""
    CLIENT = """
import os, signal, socket
peer = socket.create_connection(("127.0.0.1", 7000))
peer.sendall(b"a")
os.kill(os.getpid(), signal.SIGSTOP)
total = 0
while data := peer.recv(65536):
    total += len(data)
print("received", total)
"""

    def test_a_client_that_stops(self):
        server = rdma_cm.start_server(self, [*PRELOADED, "-c", self.SERVER])
        client = self.start(*self.over_tulle([*PRELOADED, "-c", self.CLIENT]))
        wait_until(lambda: "closed in" in server.stdout or not server.running, "the server")
        self.assertLess(float(server.stdout.split()[2]), 1, server.describe())
        client.signal(signal.SIGCONT)
        self.finish(server, client, limit=30)
        self.assertRegex(client.stdout, r"received [1-9]", client.describe())


@unittest.skipIf(os.geteuid() != 0, "chroot() is root's")
class Roots(ClientTest):
    """A server that changes its root serves on, and makes connections of its own."""

    SERVER = """
import encodings.idna, os, socket, sys
listener = socket.create_server(("127.0.0.1", 7000))
os.chroot(sys.argv[1])
peer, _ = listener.accept()
peer.sendall(peer.recv(1))
with socket.create_connection(("127.0.0.1", 7001)) as late:
    print("later", late.recv(1))
"""
    CLIENT = """
import socket
listener = socket.create_server(("127.0.0.1", 7001))
peer = socket.create_connection(("127.0.0.1", 7000))
peer.sendall(b"a")
print("first", peer.recv(1))
listener.accept()[0].sendall(b"b")
"""

    def test_a_server_below_an_empty_root(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        server = rdma_cm.start_server(self, [*PRELOADED, "-c", self.SERVER, folder.name])
        client = self.start(*self.over_tulle([*PRELOADED, "-c", self.CLIENT]))
        self.finish(server, client, limit=30)
        self.assertIn("first b'a'", client.stdout, client.describe())
        self.assertIn("later b'b'", server.stdout, server.describe())


class Fallback(ClientTest):
    """A server without RDMA is reached over TCP."""

    SERVER = """
import socket
taken = socket.create_server(("127.0.0.2", 7006))
with socket.create_server(("127.0.0.1", 7000)) as listener:
    print("listening", flush=True)
    peer, _ = listener.accept()
    peer.sendall(peer.recv(100))
"""
    CLIENT = """
import select, socket
peer = socket.socket()
poller = select.epoll()
poller.register(peer, select.EPOLLOUT)
peer.connect(("127.0.0.1", 7000))
assert poller.poll(5) == [(peer.fileno(), select.EPOLLOUT)]
poller.modify(peer, select.EPOLLIN)
peer.sendall(b"x" * 100)
assert poller.poll(5) == [(peer.fileno(), select.EPOLLIN)]
assert peer.recv(100)
print("echoed")
"""

    def served(self, script):
        server = self.start("/usr/bin/python3", "-c", self.SERVER)
        wait_until(lambda: "listening" in server.stdout or not server.running, "the server")
        client = self.run_program(*self.over_tulle([*PRELOADED, "-c", script]), limit=30)
        self.assertIn("echoed", client.stdout, client.describe())
        self.assertEqual(0, server.wait(), server.describe())

    def test_a_socket_that_epoll_watched_before(self):
        self.served(self.CLIENT)

    BOUND = """
import errno, socket
OPTIONS = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
           (socket.SOL_SOCKET, socket.SO_OOBINLINE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
           (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77)]
LINGER = bytes([1, 0, 0, 0, 9, 0, 0, 0])

def prepared(address):
    made = socket.socket()
    for level, option, value in OPTIONS:
        made.setsockopt(level, option, 1 - value if value == 1 else value)
        made.setsockopt(level, option, value)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50_000)
    made.bind(address)
    return made

first = prepared(("127.0.0.2", 7005))
try:
    first.connect(("127.0.0.1", 7001))  # nobody listens there
    raise SystemExit("connected")
except ConnectionRefusedError:
    assert first.getsockname() == ("127.0.0.2", 7005), first.getsockname()
for _ in range(2):
    try:
        second = socket.socket()
        second.bind(("127.0.0.2", 7006))
        second.connect(("127.0.0.1", 7000))
        raise SystemExit("connected from a port in use")
    except OSError as problem:
        assert problem.errno == errno.EADDRINUSE, problem
peer = prepared(("127.0.0.2", 0))
name = peer.getsockname()
assert name[1] != 0, name
peer.connect(("127.0.0.1", 7000))
assert peer.getsockname() == name, (peer.getsockname(), name)
for level, option, value in OPTIONS:
    assert peer.getsockopt(level, option) == value, (level, option)
assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == LINGER
assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 100_000
peer.sendall(b"x" * 100)
assert peer.recv(100)
print("echoed")
"""

    def test_a_socket_with_an_address_and_options(self):
        self.served(self.BOUND)
