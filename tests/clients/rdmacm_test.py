"""Tests the connection manager's library: rdma-core's rdmacm-utils, perftest that connects with it, and rsockets."""

import errno
import os
import pathlib
import re
import signal
import tempfile
import time

import frame
import rdma_cm
import rdmacm_utils
from harness import BUILD, ClientTest, wait_until

HERE = pathlib.Path(__file__).resolve().parent
CONNECTIONS = BUILD / "bin" / "connections"
UDPONG_PORT = 7174

# Destroys channels that a thread waits at, each with an id, and opens files, which get the channels' descriptors if these
# were closed. Prints what the descriptors are afterwards.
DESTROYS = """
import ctypes, os, threading, time
cm = ctypes.CDLL("librdmacm.so.1", use_errno=True)
cm.rdma_create_event_channel.restype = ctypes.c_void_p
files = []
for _ in range(10):
    channel = ctypes.c_void_p(cm.rdma_create_event_channel())
    id = ctypes.c_void_p()
    assert cm.rdma_create_id(channel, ctypes.byref(id), None, 0x106) == 0
    event = ctypes.c_void_p()
    thread = threading.Thread(target=cm.rdma_get_cm_event, args=(channel, ctypes.byref(event)), daemon=True)
    thread.start()
    time.sleep(0.05)
    cm.rdma_destroy_id(id)
    cm.rdma_destroy_event_channel(channel)
    files += [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]
    time.sleep(0.05)
    print("waits" if thread.is_alive() else "returned")
print({os.readlink(f"/proc/self/fd/{file}") for file in files})
"""


class Rdmacm(ClientTest):
    def listener(self, *argv, **keywords):
        return rdma_cm.start_server(self, argv, **keywords)

    def both(self, server_argv, client_argv, **keywords):
        return rdma_cm.pair(self, server_argv, client_argv, **keywords)


class Calls(ClientTest):
    def test_calls(self):
        self.run_program(*self.over_tulle(["/usr/bin/python3", HERE / "cm_calls.py"]))

    def test_calls_without_memory(self):
        process = self.run_program(*self.over_tulle([BUILD / "bin" / "scarce_memory"]))
        self.assertIn("allocations failed in turn", process.stdout)


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
        rdmacm_utils.cmtime(self, frame.one_host(self))

    def test_nobody_listens(self):
        process = self.run_program(*self.over_tulle(["rping", "-c", "-a", "127.0.0.1"]), limit=30, expect=None)
        self.assertNotEqual(0, process.popen.returncode)
        self.assertIn("REJECTED", process.stdout + process.stderr)

    def test_one_server_of_many_clients(self):
        """The clients begin one after the other, since this rping forgets a request that another follows at once."""
        server = self.listener("rping", "-s", "-P", "-q", "-a", "127.0.0.1")
        argv = self.over_tulle(["rping", "-c", "-q", "-v", "-V", "-C", "500", "-a", "127.0.0.1"])
        clients = []
        for _ in range(5):
            client = self.start(*argv)
            wait_until(lambda client=client: "ping data" in client.stdout or not client.running, "the first ping")
            clients.append(client)
        for client in clients:
            self.assertEqual(0, client.wait(), f"{client.describe()}\n{server.describe()}")
        self.assertTrue(server.running, server.describe())

    def test_many_connections_at_once(self):
        argv = ["ucmatose", "-c", "100", "-C", "2"]
        server, client = self.both(argv, [*argv, "-s", "127.0.0.1"])
        for process in (server, client):
            self.assertIn("return status 0", process.stdout, process.describe())

    def test_multicast(self):
        """For each address family, runs a receiver with a sender on the same host, and one with a sender on another
        host. The senders wait for three seconds."""
        first, second = self.joined_namespaces()
        pairs = []
        for sender_net, last in ((first, 1), (second, 2)):
            for group, prefix in ((f"239.1.2.{last}", "10.0.0."), (f"ff0e::{last}", "fd00::")):
                argv = ["stdbuf", "-oL", "mckey", "-c", "1", "-C", "10", "-m", group, "-b"]
                receiver = self.start(*self.over_tulle([*argv, f"{prefix}1"]), net=first)
                wait_until(lambda: "joined" in receiver.stdout or not receiver.running, "mckey to join")
                sender = self.start(*self.over_tulle([*argv, f"{prefix}{last}", "-s"]), net=sender_net)
                pairs.append((receiver, sender))
        for receiver, sender in pairs:
            self.finish(receiver, sender)
            self.assertIn("data transfers complete", receiver.stdout, receiver.describe())

    def test_shared_receive_queue_over_xrc(self):
        server, client = self.both(["rdma_xserver", "-c", "x"], ["rdma_xclient", "-c", "x", "-s", "127.0.0.1"])
        self.assertIn("rdma_xserver: end 0", server.stdout, server.describe())
        self.assertIn("rdma_xclient: end 0", client.stdout, client.describe())

    def test_two_hosts(self):
        first, second = self.joined_namespaces()
        for address in ("10.0.0.1", "fd00::1"):
            with self.subTest(address=address):
                argv = ["rping", "-a", address, "-C", "10", "-V"]
                self.both([*argv, "-s"], [*argv, "-c"], server_net=first, client_net=second)


class Perftest(Rdmacm):
    """Runs perftest, which connects twice. Its server listens anew for the second time, and its client does not wait
    for that."""

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

    def test_a_channel_that_is_destroyed_while_a_thread_waits_there(self):
        """rping and mckey do so at their end. The thread waits on, as in a kernel's call, and touches nothing that has been
        freed or closed."""
        process = self.run_program(*self.over_tulle(["/usr/bin/python3", "-c", DESTROYS]), limit=20)
        self.assertEqual("waits\n" * 10 + "{'/dev/null'}\n", process.stdout, process.describe())

    def test_a_killed_client_is_disconnected(self):
        server = self.listener("rping", "-s", "-a", "127.0.0.1", "-V", "-d")
        client = self.start(*self.over_tulle(["rping", "-c", "-a", "127.0.0.1", "-V"]))
        wait_until(lambda: "ESTABLISHED" in server.stdout, "the connection")
        client.end()
        server.wait(30)
        self.assertIn("DISCONNECT", server.stdout + server.stderr)

    def test_a_killed_listener(self):
        """The connected peer of a killed listener is told. A client that asks while it dies, or later, is refused at
        once."""
        first, second = self.joined_namespaces()
        for host, server_net, client_net in (("127.0.0.1", None, None), ("10.0.0.1", first, second)):
            with self.subTest(host=host):
                server = self.listener("rping", "-s", "-P", "-a", host, net=server_net)
                client = self.over_tulle(["stdbuf", "-oL", "rping", "-c", "-a", host, "-d"])
                connected = self.start(*client, net=client_net)
                wait_until(lambda: "ESTABLISHED" in connected.stdout, "the connection")
                # The server takes the request and answers no more.
                server.signal(signal.SIGSTOP)
                connecting = self.start(*client, net=client_net)
                wait_until(lambda: "ROUTE_RESOLVED" in connecting.stdout, "the second to connect")
                server.end()
                connected.wait(10)
                self.assertIn("DISCONNECTED", connected.stdout + connected.stderr, connected.describe())
                began = time.monotonic()
                late = self.start(*client, net=client_net)
                for process in (connecting, late):
                    self.assertNotEqual(0, process.wait(10), process.describe())
                    self.assertIn("REJECTED", process.stdout + process.stderr, process.describe())
                self.assertLess(time.monotonic() - began, 10)


class Forked(Rdmacm):
    def test_children_connect_by_themselves(self):
        """A child has devices of its own, with queue pair numbers that no other process has."""
        argv = [BUILD / "bin" / "forked", "7175"]
        server = self.start(*self.over_tulle(argv))
        wait_until(lambda: "listening" in server.stdout, "the server")
        client = self.run_program(*self.over_tulle([*argv, 4]), limit=30)
        lines = [line.split(" ", 2) for line in client.stdout.splitlines()]
        self.assertEqual(["parent", *["child"] * 4, "parent"], [line[0] for line in lines], client.describe())
        self.assertEqual({"success"}, {line[2] for line in lines}, client.describe())
        of_children = {number for who, number, _ in lines if who == "child"}
        self.assertEqual(4, len(of_children), client.describe())
        self.assertFalse(of_children & {number for who, number, _ in lines if who == "parent"}, client.describe())


class Rsockets(Rdmacm):
    def stream(self, program, *options):
        argv = [program, "-S", "20000", "-C", "20", "-I", "5", "-T", "v"]
        # The server blocks, whatever the client does: the test cannot tell a server that polls from one that is not
        # ready.
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
                self.both([*argv, "-b", "127.0.0.1"], [*argv, "-s", "127.0.0.1"], server_ends=False,
                          is_ready=rdma_cm.binds(UDPONG_PORT))
