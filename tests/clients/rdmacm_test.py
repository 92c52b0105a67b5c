"""The connection manager's library: rdma-core's rdmacm-utils, perftest that connects with it, and rsockets."""

import os
import pathlib
import re
import tempfile

from harness import BUILD, ClientTest, wait_until

CONNECTIONS = BUILD / "bin" / "connections"
RSPRELOAD = BUILD / "lib" / "shim" / "rsocket" / "librspreload.so"


def has_port(process):
    """Whether udpong's UDP port is taken where the process is."""
    table = pathlib.Path(f"/proc/{process.pid}/net/udp").read_text()
    return f":{7174:04X} " in table


class Rdmacm(ClientTest):
    def listeners(self, net=None):
        """How many the connection manager has."""
        agent = self.status(net)["agent"]
        return agent["listeners"] if agent else 0

    def listener(self, *argv, is_ready=None, **keywords):
        """A server over Tulle; back once it listens."""
        before = self.listeners(keywords.get("net"))
        process = self.start(*self.over_tulle(argv), **keywords)

        def ready():
            self.assertTrue(process.running, process.describe())
            return is_ready(process) if is_ready else self.listeners(keywords.get("net")) > before

        wait_until(ready, f"{argv[0]} to listen", pause=0.03)
        return process

    def both(self, server_argv, client_argv, server_ends=True, expect=0, is_ready=None, **keywords):
        server = self.listener(*server_argv, is_ready=is_ready, **keywords)
        client = self.start(*self.over_tulle(client_argv), **keywords)
        if server_ends:
            self.finish(server, client, limit=60, expect=expect)
        else:
            self.assertEqual(expect, client.wait(60), f"{server.describe()}\n{client.describe()}")
            server.end()
        return server, client


class Utilities(Rdmacm):
    def test_rping(self):
        for address in ("127.0.0.1", "::1"):
            for options in ((), ("-q",)):
                with self.subTest(address=address, options=options):
                    argv = ["rping", "-a", address, "-C", "20", "-v", "-V", *options]
                    server, client = self.both([*argv, "-s"], [*argv, "-c"])
                    for process in (server, client):
                        self.assertIn("rdma-ping-19: ", process.stdout, process.describe())

    def test_ucmatose(self):
        argv = ["ucmatose", "-c", "4", "-C", "20", "-S", "3000"]
        server, client = self.both(argv, [*argv, "-s", "127.0.0.1"])
        for process in (server, client):
            self.assertIn("return status 0", process.stdout, process.describe())

    def test_ucmatose_migrates_its_ids(self):
        argv = ["ucmatose", "-c", "2", "-m"]
        server, client = self.both(argv, [*argv, "-s", "127.0.0.1"])
        for process in (server, client):
            self.assertIn("return status 0", process.stdout, process.describe())

    def test_udaddy(self):
        for address in ("127.0.0.1", "::1"):
            with self.subTest(address=address):
                argv = ["udaddy", "-c", "2", "-C", "20", "-S", "1000"]
                server, client = self.both([*argv, "-b", address], [*argv, "-s", address])
                for process in (server, client):
                    self.assertIn("return status 0", process.stdout, process.describe())

    def test_synchronous_endpoints(self):
        server, client = self.both(["rdma_server"], ["rdma_client", "-s", "127.0.0.1"])
        self.assertIn("rdma_server: end 0", server.stdout)
        self.assertIn("rdma_client: end 0", client.stdout)

    def test_cmtime(self):
        _, client = self.both(["cmtime", "-b", "127.0.0.1", "-c", "100"],
                              ["cmtime", "-s", "127.0.0.1", "-c", "100"], server_ends=False)
        self.assertRegex(client.stdout, r"(?m)^disconnect\s*:")

    def test_nobody_listens(self):
        process = self.run_program(*self.over_tulle(["rping", "-c", "-a", "127.0.0.1"]), limit=30, expect=None)
        self.assertNotEqual(0, process.popen.returncode)
        self.assertIn("REJECTED", process.stdout + process.stderr)

    def test_two_hosts(self):
        first, second = self.joined_namespaces()
        server = self.listener("rping", "-s", "-a", "10.0.0.1", "-C", "10", "-V", net=first)
        client = self.start(*self.over_tulle(["rping", "-c", "-a", "10.0.0.1", "-C", "10", "-V"]), net=second)
        self.finish(server, client, limit=60)


class Perftest(Rdmacm):
    """Connects twice: its server listens anew for the second time, and its client does not wait for that."""

    def perftest(self, *argv):
        argv = [*argv, "-R", "-F", "-n", "200"]
        for process in self.both(argv, [*argv, "127.0.0.1"]):
            self.assertRegex(process.stdout, r"(?m)^\s*\d+\s+\d+\s+[\d.]+", process.describe())

    def test_reliable(self):
        self.perftest("ib_send_bw", "-s", "65536")
        self.perftest("ib_write_bw", "-s", "65536")
        self.perftest("ib_read_bw", "-s", "65536", "-q", "4")

    def test_datagrams(self):
        self.perftest("ib_send_bw", "-c", "UD", "-s", "1024")
        self.perftest("ib_send_lat", "-c", "UD", "-s", "64")


class Lifetime(Rdmacm):
    def agent(self):
        return self.status()["agent"]["pid"]

    def test_connections_leave_nothing_behind(self):
        process = self.run_program(*self.over_tulle([CONNECTIONS, "1000"]), limit=120)
        found = re.search(r"descriptors (\d+) (\d+) heap (\d+) (\d+)", process.stdout)
        before, after, heap_before, heap_after = map(int, found.groups())
        self.assertEqual(before, after, process.stdout)
        self.assertLess(heap_after - heap_before, 100_000, process.stdout)

    def test_a_killed_client_is_disconnected(self):
        server = self.listener("rping", "-s", "-a", "127.0.0.1", "-V", "-d")
        client = self.start(*self.over_tulle(["rping", "-c", "-a", "127.0.0.1", "-V"]))
        wait_until(lambda: "ESTABLISHED" in server.stdout, "the connection")
        client.end()
        server.wait(30)
        self.assertIn("DISCONNECT", server.stdout + server.stderr)


class Rsockets(Rdmacm):
    def stream(self, program, *options):
        argv = [program, "-S", "20000", "-C", "20", "-I", "5", "-T", "v"]
        # The server blocks, whatever the client does: one that polls cannot be told from one that is not ready.
        for process in self.both([*argv, "-T", "b", "-b", "127.0.0.1"], [*argv, *options, "-s", "127.0.0.1"]):
            self.assertRegex(process.stdout, r"(?m)^custom\s+\S+\s+20\s+5\s", process.describe())

    def test_streams(self):
        for mode in ("b", "n", "a"):
            with self.subTest(mode=mode):
                self.stream("rstream", "-T", mode)

    def test_keep_alive_and_resolved_addresses(self):
        self.stream("rstream", "-k", "1", "-T", "r", "-T", "b")

    def test_mapped_memory(self):
        for mode in ("b", "a"):
            with self.subTest(mode=mode):
                self.stream("riostream", "-T", mode)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            source, copy = pathlib.Path(folder, "source"), pathlib.Path(folder, "copy")
            source.write_bytes(os.urandom(3_000_001))
            self.both(["rcopy"], ["rcopy", str(source), f"127.0.0.1:{copy}"], server_ends=False)
            self.assertEqual(source.read_bytes(), copy.read_bytes())

    def test_datagrams(self):
        for options in ((), ("-T", "e"), ("-T", "a")):
            with self.subTest(options=options):
                argv = ["udpong", "-S", "500", "-C", "100", *options]
                self.both([*argv, "-b", "127.0.0.1"], [*argv, "-s", "127.0.0.1"], server_ends=False, is_ready=has_port)


class Preloaded(Rdmacm):
    """Programs that know sockets only."""

    SERVER = """
import socket
listener = socket.create_server(("127.0.0.1", 7000))
peer, _ = listener.accept()
while data := peer.recv(65536):
    peer.sendall(data)
"""
    CLIENT = """
import os, socket, time
data = os.urandom(300_000)
peer = socket.create_connection(("127.0.0.1", 7000))
for start in range(0, len(data), 50_000):
    part = data[start:start + 50_000]
    peer.sendall(part)
    back = b""
    while len(back) < len(part):
        back += peer.recv(65536)
    assert back == part
print("mapped" if "librdmacm" in open("/proc/self/maps").read() else "not mapped")
print("over TCP" if ":%04X " % 7000 in open("/proc/net/tcp").read() else "over RDMA")
"""

    def test_echo(self):
        # By the library's path and not by its name: `tulle run` has its own way to preload.
        prefix = ["env", f"LD_PRELOAD={RSPRELOAD}", "/usr/bin/python3", "-c"]
        server = self.listener(*prefix, self.SERVER)
        client = self.start(*self.over_tulle([*prefix, self.CLIENT]))
        self.finish(server, client, limit=60)
        self.assertIn("over RDMA", client.stdout, client.describe())
