"""Tests IP over InfiniBand between the hosts of a software fabric, with Linux's own programs."""

import re
import signal
import time

import fabric_network_test
import unprivileged_test
from harness import TULLE, cpu_ticks, wait_until

LONGEST = 2044  # bytes of an IP packet, in a group of 2,048 bytes

# Joins a group, and prints what comes to it.
LISTENER = """
import socket, struct, sys
group, wanted = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ":" in group else socket.AF_INET
listener = socket.socket(family, socket.SOCK_DGRAM)
listener.bind(("", 7000))
index = socket.if_nametoindex("ib0")
if family == socket.AF_INET6:
    joined = socket.inet_pton(family, group) + struct.pack("@I", index)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, joined)
elif group.startswith("239"):
    joined = socket.inet_aton(group) + socket.inet_aton("0.0.0.0") + struct.pack("@i", index)
    listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
print("listens", flush=True)
for _ in range(wanted):
    print(listener.recv(100).decode(), flush=True)
"""
# Sends to a group, again and again.
SENDER = """
import socket, struct, sys, time
group = sys.argv[1]
family = socket.AF_INET6 if ":" in group else socket.AF_INET
sender = socket.socket(family, socket.SOCK_DGRAM)
sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
index = socket.if_nametoindex("ib0")
if family == socket.AF_INET6:
    sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
else:
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("@4s4si", bytes(4), bytes(4), index))
for _ in range(200):
    sender.sendto(b"hello", (group, 7000))
    time.sleep(0.05)
"""
# Sends bytes that say where they are, as the other end checks.
STREAM_SERVER = """
import socket
listener = socket.create_server(("10.1.0.4", 7001))
print("listens", flush=True)
connection, _ = listener.accept()
received = 0
while True:
    some = connection.recv(1 << 16)
    if not some:
        break
    wanted = bytes((received + i) % 251 for i in range(len(some)))
    assert some == wanted, received
    received += len(some)
print("received", received, flush=True)
"""
STREAM_CLIENT = """
import socket, time
connection = socket.create_connection(("10.1.0.4", 7001), timeout=60)
sent, block = 0, 251 * 100
data = bytes(i % 251 for i in range(block))
end = time.monotonic() + 6
while time.monotonic() < end:
    connection.sendall(data)
    sent += block
    if sent == block:
        print("flows", flush=True)
    time.sleep(0.002)
connection.close()
print("sent", sent, flush=True)
"""


class Ipoib(fabric_network_test.Network):
    def setUp(self):
        super().setUp()
        self.run_program(*self.prefix, *self.on_host("h0", "/bin/true"), env=self.environment)

    def on(self, host, *command, expect=0, limit=30):
        return self.run_program(*self.prefix, *self.on_host(host, *command), env=self.environment, expect=expect,
                                limit=limit)

    def interface(self, host, name="ib0"):
        return {each["name"]: each for each in self.nodes()[host].get("interfaces", [])}.get(name, {})

    def wait_for_interfaces(self, name="ib0", hosts=("h0", "h1", "h2", "h3")):
        wait_until(lambda: all(self.interface(host, name).get("running") for host in hosts), f"{name} of all hosts")

    def ping(self, host, to, *options, expect=0, count=2):
        output = self.on(host, "ping", "-c", count, "-i", "0.2", "-W", "5", *options, to, expect=expect).stdout
        if expect == 0:
            self.assertIn(f"{count} packets transmitted, {count} received", output)
        return output

    def ipv6_of(self, host, interface="ib0"):
        output = self.on(host, "ip", "-6", "-o", "address", "show", "dev", interface).stdout
        return re.search(r"inet6 (fe80:[0-9a-f:]+)/64", output)[1]


class Programs(Ipoib):
    def setUp(self):
        super().setUp()
        self.wait_for_interfaces()

    def test_the_interface(self):
        output = self.on("h2", "ip", "address", "show", "dev", "ib0").stdout
        self.assertIn(f"mtu {LONGEST}", output)
        self.assertIn("inet 10.1.0.3/16 brd 10.1.255.255", output)
        guid = int(self.nodes()["h2"]["guid"], 16)
        self.assertIn(f"inet6 fe80::200:0:0:{guid & 0xFFFF:x}/64", output)
        self.assertIn("10.1.0.3", self.on("h0", "getent", "hosts", "h2-ib0").stdout)
        self.assertRegex(self.fabric("status").stdout, r"(?m)^  ib0 +running$")

    def test_the_first_program_on_a_host_has_the_interface(self):
        for host in ("h3", "h1", "h2"):
            self.assertIn("dev ib0", self.on(host, "ip", "route", "get", "10.1.0.1").stdout)

    def test_ping_with_the_longest_packets(self):
        """Both families, across both switches, and no longer one with "do not fragment"."""
        self.ping("h0", "h3-ib0", "-M", "do", "-s", LONGEST - 28)
        self.ping("h0", self.ipv6_of("h3") + "%ib0", "-M", "do", "-s", LONGEST - 48)
        refused = self.on("h0", "ping", "-c", 1, "-M", "do", "-s", LONGEST - 27, "h3-ib0", expect=1)
        self.assertRegex(refused.stderr, "[Mm]essage too long")
        # Fragments of a longer one come, too.
        self.ping("h1", "h2-ib0", "-s", 20_000)

    def test_every_pair(self):
        for host in ("h0", "h1", "h2", "h3"):
            for to in ("h0", "h1", "h2", "h3"):
                self.ping(host, f"{to}-ib0", count=1)

    def test_who_is_not_there(self):
        self.assertIn("0 received", self.ping("h0", "10.1.200.200", expect=1, count=1))

    def test_iperf3(self):
        server = self.start(*self.on_host("h3", "iperf3", "-s", "-1", "--forceflush"), env=self.environment)
        wait_until(lambda: "listening" in server.stdout, "iperf3")
        output = self.on("h0", "iperf3", "-c", "h3-ib0", "-n", "100M", "-f", "m").stdout
        self.assertRegex(output, r"[\d.]+ MBytes +\d+ Mbits/sec +receiver")
        server = self.start(*self.on_host("h3", "iperf3", "-s", "-1", "--forceflush"), env=self.environment)
        wait_until(lambda: "listening" in server.stdout, "iperf3")
        output = self.on("h0", "iperf3", "-c", "h3-ib0", "-u", "-b", "20M", "-t", "2").stdout
        self.assertRegex(output, r"0/\d+ \(0%\) +receiver")

    def test_ssh(self):
        for name in ("host", "user"):
            self.run_program("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name)
        (self.folder / "authorized").write_text((self.folder / "user.pub").read_text())
        (self.folder / "sshd_config").write_text(
            f"Port 2222\nHostKey {self.folder}/host\nAuthorizedKeysFile {self.folder}/authorized\nPidFile none\n"
            "StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n")
        self.run_program("mkdir", "-p", "/run/sshd")
        server = self.start(*self.on_host("h3", "/usr/sbin/sshd", "-D", "-e", "-f", self.folder / "sshd_config"),
                            env=self.environment)
        wait_until(lambda: "listening on" in server.stderr, "sshd")
        output = self.on("h0", "ssh", "-p", 2222, "-i", self.folder / "user", "-o", "StrictHostKeyChecking=no",
                         "-o", "UserKnownHostsFile=/dev/null", "h3-ib0", "hostname; echo $SSH_CONNECTION").stdout
        self.assertRegex(output, r"^h3\n10\.1\.0\.1 \d+ 10\.1\.0\.4 2222\n")

    def test_multicast_and_broadcast(self):
        """Only members of a group hear it, once they have joined it as Linux does."""
        for group in ("239.1.2.3", "ff15::77", "10.1.255.255"):
            with self.subTest(group=group):
                listeners = [self.start(*self.on_host(host, "/usr/bin/python3", "-c", LISTENER, group, 3),
                                        env=self.environment) for host in ("h1", "h3")]
                for listener in listeners:
                    wait_until(lambda one=listener: "listens" in one.stdout, "the listener")
                sender = self.start(*self.on_host("h0", "/usr/bin/python3", "-c", SENDER, group), env=self.environment)
                for listener in listeners:
                    self.assertEqual((0, "listens\n" + "hello\n" * 3), (listener.wait(20), listener.stdout))
                sender.end()
        # The group lasts as long as somebody listens.
        listener = self.start(*self.on_host("h1", "/usr/bin/python3", "-c", LISTENER, "239.1.2.3", 3), env=self.environment)
        is_there = lambda: "ff12:401b:ffff::f01:203" in self.tool("h0", "saquery", "-g").stdout  # noqa: E731
        wait_until(is_there, "the group", pause=0.1)
        listener.end()
        wait_until(lambda: not is_there(), "its end", pause=0.1)

    def test_wireshark_reads_it(self):
        path = self.folder / "ipoib.pcapng"
        capture = self.start(TULLE, "capture", "--fabric", "default", "-o", path, env=self.environment)
        wait_until(lambda: path.exists() and path.stat().st_size > 0, "the capture")
        self.ping("h0", "h3-ib0", "-s", 1400)
        self.ping("h1", self.ipv6_of("h3") + "%ib0")
        capture.signal(signal.SIGINT)
        self.assertEqual(130, capture.wait(20), capture.describe())
        tshark = lambda *arguments: self.run_program("tshark", "-r", path, *arguments, limit=60).stdout.splitlines()
        self.assertEqual([], tshark("-Y", "_ws.malformed")[:5])
        arp = tshark("-Y", "arp", "-T", "fields", "-e", "arp.hw.type", "-e", "arp.hw.size", "-e", "arp.opcode")
        self.assertEqual({"32\t20\t1", "32\t20\t2"}, set(arp))
        for shown in ("icmp.type == 8", "icmp.type == 0", "icmpv6.type == 135", "icmpv6.type == 136", "icmpv6.type == 128"):
            self.assertTrue(tshark("-Y", shown), shown)

    def test_an_idle_interface_rests(self):
        self.ping("h0", "h3-ib0")
        before = cpu_ticks(self.up.pid)
        time.sleep(3)
        self.assertLessEqual(cpu_ticks(self.up.pid) - before, 3)

    def test_a_deleted_interface(self):
        """A host's administrator takes it away. Nothing waits for it, and other hosts go on."""
        self.ping("h0", "h3-ib0")
        self.on("h3", "ip", "link", "delete", "ib0")
        self.assertIn("0 received", self.ping("h0", "h3-ib0", expect=1, count=1))
        self.ping("h0", "h2-ib0")
        before = cpu_ticks(self.up.pid)
        time.sleep(2)
        self.assertLessEqual(cpu_ticks(self.up.pid) - before, 3)

    def test_a_flood_does_not_stop_others(self):
        """A host that sends to nobody as fast as it can takes no more than its turn."""
        flood = self.start(*self.on_host("h0", "ping", "-f", "-s", "2000", "10.1.99.99"), env=self.environment)
        self.ping("h1", "h2-ib0")
        self.pair(["ibv_rc_pingpong", "-n", "100"], host="h1", options=("--host", "h2"), server_options=("--host", "h1"),
                  env=self.environment)
        flood.end()

    def test_verbs_and_ip_at_once(self):
        """A program with the port open does not hear the host's IP, nor the other way round."""
        stream = self.start(*self.on_host("h0", "ping", "-i", "0.01", "-c", "200", "h3-ib0"), env=self.environment)
        self.pair(["ib_send_bw", "-F", "-n", "2000", "-c", "UD", "-s", "2048"], host="h0", options=("--host", "h3"),
                  server_options=("--host", "h0"), env=self.environment)
        self.assertEqual(0, stream.wait(20), stream.describe())
        self.assertIn("200 received", stream.stdout)


class Cables(Ipoib):
    topology = 'kind = "leaf-spine"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2'

    def test_a_stream_survives_cuts(self):
        """Each spine goes once. TCP sends again what was lost, and every byte is the right one."""
        self.wait_for_interfaces()
        server = self.start(*self.on_host("h3", "/usr/bin/python3", "-c", STREAM_SERVER), env=self.environment)
        wait_until(lambda: "listens" in server.stdout, "the server")
        client = self.start(*self.on_host("h0", "/usr/bin/python3", "-c", STREAM_CLIENT), env=self.environment)
        wait_until(lambda: "flows" in client.stdout, "the stream")
        for spine in ("spine0", "spine1"):
            self.fabric("cut", "leaf0", spine)
            time.sleep(1)
            self.fabric("join", "leaf0", spine)
            time.sleep(1)
        self.assertEqual(0, client.wait(60), client.describe())
        self.assertEqual(0, server.wait(60), server.describe())
        self.assertEqual(client.stdout.split()[-1], server.stdout.split()[-1])

    def test_a_host_without_its_cable(self):
        self.wait_for_interfaces()
        self.fabric("cut", "h3", "leaf1")
        wait_until(lambda: not self.interface("h3").get("running"), "the interface without a cable")
        self.assertIn("NO-CARRIER", self.on("h3", "ip", "link", "show", "ib0").stdout)
        self.fabric("join", "h3", "leaf1")
        self.wait_for_interfaces()
        wait_until(lambda: self.on("h0", "ping", "-c", 1, "-W", 1, "h3-ib0", expect=None).wait() == 0, "the way back")


class ByOpenSm(Ipoib):
    own_manager = False

    def partitions(self, text):
        guids = [int(self.nodes()[f"h{i}"]["guid"], 16) for i in range(4)]
        path = self.folder / "partitions.conf"
        path.write_text(text.format(*(f"{guid:#x}" for guid in guids)))
        return path

    def test_the_manager_is_restarted(self):
        """Without a manager there is no carrier. What knows its neighbours goes on while there is none, and after it."""
        self.assertFalse(self.interface("h0").get("running"))
        manager, _ = self.bring_up()
        self.wait_for_interfaces()
        self.ping("h0", "h3-ib0")
        manager.signal(signal.SIGKILL)
        manager.wait()
        self.ping("h0", "h3-ib0")
        # The next one gives out other LIDs (-r) and groups.
        (self.folder / "opensm-h0.log").unlink()
        self.start_manager("h0", "-r")
        wait_until(lambda: "SUBNET UP" in (self.folder / "opensm-h0.log").read_text(), "SUBNET UP", pause=0.05)
        for host in ("h1", "h3"):
            wait_until(lambda to=host: self.on("h0", "ping", "-c", 1, "-W", 1, f"{to}-ib0", expect=None).wait() == 0,
                       f"the way to {host}")
            wait_until(lambda to=host: self.on(to, "ping", "-c", 1, "-W", 1, "h0-ib0", expect=None).wait() == 0,
                       f"the way from {host}")

    def test_partitions(self):
        """Each has an interface of its own. Two partitions do not hear each other, although they share addresses."""
        path = self.partitions("Default=0x7fff, ipoib : ALL=full ;\nA=0x0001, ipoib : {0}=full, {1}=full ;\n"
                               "B=0x0002, ipoib : {2}=full, {3}=full ;\n")
        self.start_manager("h0", "-P", path)
        for hosts, name in ((("h0", "h1"), "ib0.8001"), (("h2", "h3"), "ib0.8002")):
            self.wait_for_interfaces(name, hosts)
            for host in hosts:
                self.on(host, "ip", "address", "add", f"10.9.0.{host[1]}/24", "dev", name)
        self.ping("h0", "10.9.0.1")
        self.ping("h2", "10.9.0.3")
        for host, to in (("h0", "10.9.0.2"), ("h3", "10.9.0.1")):
            self.assertIn("0 received", self.ping(host, to, expect=1, count=1))
        self.ping("h0", "h3-ib0")  # in the default partition

    def test_longer_packets(self):
        """The interface has the MTU of the group for broadcasts."""
        path = self.partitions("Default=0x7fff, ipoib, mtu=5 : ALL=full ;\n")
        self.start_manager("h0", "-P", path)
        self.wait_for_interfaces()
        wait_until(lambda: "mtu 4092" in self.on("h0", "ip", "link", "show", "ib0").stdout, "the longer packets")
        wait_until(lambda: "mtu 4092" in self.on("h3", "ip", "link", "show", "ib0").stdout, "the longer packets")
        self.ping("h0", "h3-ib0", "-M", "do", "-s", 4092 - 28)

    def test_a_partition_without_ip(self):
        path = self.partitions("Default=0x7fff, ipoib : ALL=full ;\nA=0x0001 : ALL=full ;\n")
        self.start_manager("h0", "-P", path)
        self.wait_for_interfaces()
        wait_until(lambda: self.interface("h1", "ib0.8001"), "the interface")
        self.assertFalse(self.interface("h1", "ib0.8001")["running"])


class OrdinaryUser(Ipoib):
    def setUp(self):
        if not unprivileged_test.maps_all_users():
            self.skipTest("there is no other user, and a user namespace cannot be entered from one beside it")
        self.prefix = unprivileged_test.as_ordinary_user()
        super().setUp()

    def test_without_privileges(self):
        self.wait_for_interfaces()
        self.ping("h0", "h3-ib0")
        self.ping("h0", self.ipv6_of("h3") + "%ib0")
        self.on("h0", "ip", "address", "add", "10.1.7.7/16", "dev", "ib0")
        wait_until(lambda: self.on("h3", "ping", "-c", 1, "-W", 1, "10.1.7.7", expect=None).wait() == 0, "the new address")
