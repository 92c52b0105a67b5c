"""Tests the IP network that joins the hosts of a software fabric."""

import os
import pathlib
import re
import signal
import socket
import subprocess

import fabric_test
import unprivileged_test
from harness import TULLE, wait_until

# Prints the name of the host that it runs on to whoever connects.
SERVER = """
import socket
listener = socket.create_server(("0.0.0.0", 80), reuse_port=False)
print("listens", flush=True)
while True:
    connection, _ = listener.accept()
    connection.sendall(socket.gethostname().encode())
    connection.close()
"""
CLIENT = """
import socket, sys
for name in sys.argv[1:]:
    print(name, socket.create_connection((name, 80), timeout=10).recv(64).decode(), sep=":")
"""
# Sends an ICMP echo request through a socket that needs no privileges, where the network allows it.
PING = """
import socket, sys
ping = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
ping.settimeout(10)
ping.sendto(bytes([8, 0, 0, 0, 0, 0, 0, 1]) + b"tulle", (sys.argv[1], 0))
answer, (address, _) = ping.recvfrom(100)
print(answer[0], answer[8:].decode(), address)
"""


class Network(fabric_test.FabricTest):
    own_manager = True

    def keeper(self):
        """Returns the process that makes the hosts' networks. The fabric answers once that is there."""
        self.nodes()
        return int(pathlib.Path(f"/proc/{self.up.pid}/task/{self.up.pid}/children").read_text().split()[0])

    def python(self, host, script, *arguments, **keywords):
        return self.run_program(*self.prefix, *self.on_host(host, "/usr/bin/python3", "-c", script, *arguments),
                                env=self.environment, limit=30, **keywords)

    def serve(self, host):
        server = self.start(*self.prefix, *self.on_host(host, "/usr/bin/python3", "-c", SERVER), env=self.environment)
        wait_until(lambda: "listens" in server.stdout, f"the server on {host}")
        return server


class Hosts(Network):
    def test_each_host_has_a_name_and_an_address(self):
        nodes = self.nodes()
        self.assertEqual([f"10.0.0.{i + 1}" for i in range(4)], [nodes[f"h{i}"]["address"] for i in range(4)])
        self.assertNotIn("address", nodes["switch4"])
        script = 'import socket; print(socket.gethostname(), socket.gethostbyname("h0"), socket.gethostbyname("h3"))'
        self.assertEqual("h2 10.0.0.1 10.0.0.4\n", self.python("h2", script).stdout)
        self.assertRegex(self.fabric("status").stdout, r"(?m)^h1 +host +\w+ +\d+ +10\.0\.0\.2")

    def test_servers_at_one_port_of_all_hosts(self):
        """Each client reaches the host that it names, itself too."""
        for host in ("h0", "h1", "h3"):
            self.serve(host)
        self.assertEqual("h0:h0\nh1:h1\nh3:h3\n", self.python("h3", CLIENT, "h0", "h1", "h3").stdout)
        wait_until(lambda: "ConnectionRefusedError" in self.python("h3", CLIENT, "h2", expect=1).stderr,
                   "the host without a server")

    def test_hosts_reach_nothing_else(self):
        listener = socket.create_server(("0.0.0.0", 0))
        self.addCleanup(listener.close)
        script = f'import socket; socket.create_connection(("127.0.0.1", {listener.getsockname()[1]}), timeout=5)'
        self.assertIn("ConnectionRefusedError", self.python("h0", script, expect=1).stderr)
        script = 'import socket; socket.create_connection(("192.0.2.1", 80), timeout=5)'
        self.assertIn("Network is unreachable", self.python("h0", script, expect=1).stderr)

    def test_programs_stay_in_their_folder(self):
        process = self.start(*self.on_host("h1", "pwd"), env=self.environment, cwd=self.folder)
        self.assertEqual((0, f"{self.folder}\n"), (process.wait(), process.stdout), process.describe())

    def test_a_remote_shell(self):
        """As MPI's launchers use it: words are joined by spaces, and taken apart by the other shell."""
        argv = [TULLE, "fabric", "rsh", "h3", "echo", '"two  words"', ";", "hostname", "--", ";", "exit", "7"]
        self.assertEqual("two  words\nh3\n", self.run_program(*argv[:8], env=self.environment).stdout)
        self.assertEqual(7, self.start(*argv[:4], "exit", "7", env=self.environment).wait())
        # From host to host, too.
        nested = self.run_program(*self.on_host("h0", *argv[:4], "hostname"), env=self.environment)
        self.assertEqual("h3\n", nested.stdout)

    def test_a_stopped_keeper_does_not_keep_the_fabric(self):
        keeper = self.keeper()
        os.kill(keeper, signal.SIGSTOP)
        self.fabric("down")
        self.assertEqual(0, self.up.wait(10))
        self.assertFalse(pathlib.Path(f"/proc/{keeper}").exists())

    def test_nothing_stays_behind(self):
        """Neither processes nor interfaces. A program that is still there stays alone in its host's namespaces."""
        keeper = self.keeper()
        server = self.serve("h1")
        self.assertNotRegex(self.run_program("ip", "link").stdout, r"(?m)^\d+: (fabric|h\d)")
        self.fabric("down")
        self.assertEqual(0, self.up.wait())
        wait_until(lambda: not pathlib.Path(f"/proc/{keeper}").exists(), "the end of the keeper")
        wait_until(lambda: "eth0" not in pathlib.Path(f"/proc/{server.pid}/net/dev").read_text(), "the end of the bridge")
        self.assertNotEqual(os.readlink(f"/proc/{server.pid}/ns/net"), os.readlink("/proc/self/ns/net"))
        server.end()


class LargeFabric(Network):
    topology = 'kind = "leaf-spine"\nleaves = 8\nspines = 2\nhosts_per_leaf = 9'

    def test_hosts_are_made_when_they_are_entered(self):
        """Those that are there go on without the process that makes them, and others are refused with one line."""
        self.serve("h0")
        self.python("h1", "")
        keeper = self.keeper()
        os.kill(keeper, signal.SIGKILL)
        self.assertEqual("h0:h0\n", self.python("h1", CLIENT, "h0").stdout)
        refused = self.python("h2", "", expect=1)
        self.assertEqual("tulle: the fabric cannot make the network of h2: the process that makes the hosts' networks has "
                         "ended\n", refused.stderr)
        self.assertEqual(82, len(self.nodes()))


class ManyHosts(Network):
    topology = 'kind = "leaf-spine"\nleaves = 8\nspines = 2\nhosts_per_leaf = 8'

    def test_all_at_once(self):
        script = f'seq 0 63 | xargs -P 16 -I HOST {TULLE} run --host hHOST -- sh -c "hostname; ip -o -4 address show eth0"'
        output = self.run_program("sh", "-c", script, env=self.environment, limit=60).stdout
        addresses = re.findall(r"inet (10\.0\.0\.\d+)/16", output)
        self.assertEqual({f"10.0.0.{i + 1}" for i in range(64)}, set(addresses))
        self.assertEqual(64, len(addresses))
        self.assertEqual({f"h{i}" for i in range(64)}, set(re.findall(r"(?m)^h\d+$", output)))


class SharedNetwork(fabric_test.FabricTest):
    options = ("--shared-network",)
    own_manager = True

    def test_hosts_share_this_machines(self):
        name = self.run_program(*self.on_host("h2", "hostname"), env=self.environment).stdout
        self.assertEqual(socket.gethostname(), name.strip())
        self.assertNotIn("address", self.nodes()["h2"])
        self.pair(["ibv_rc_pingpong", "-n", "100"], options=("--host", "h3"), server_options=("--host", "h0"),
                  env=self.environment)


class Surroundings(fabric_test.FabricTest):
    """What machines lack or forbid."""

    own_manager = True

    def setUp(self):
        super().setUp()
        self.fabric("down")

    def up_and_down(self, *prefix, env=None):
        environment = {**self.environment, **(env or {})}
        process = self.run_program(*prefix, TULLE, "fabric", "up", env=environment)
        self.addCleanup(subprocess.run, [TULLE, "fabric", "down"], env={**os.environ, **self.environment}, check=False)
        last = process.stdout.splitlines()[-1]
        self.run_program(*prefix, TULLE, "run", "--host", "h1", "--", "/bin/true", env=environment)
        self.fabric("down")
        return last

    def test_with_networks(self):
        self.assertEqual("They have IP over InfiniBand (ib0), in which h0 is 10.1.0.1.", self.up_and_down())

    def test_without_a_file_for_interfaces(self):
        hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/net; exec "$@"',
                "sh"]
        last = self.up_and_down(*hide)
        self.assertEqual("They have no IP over InfiniBand: /dev/net/tun: No such file or directory.", last)

    def test_without_namespaces(self):
        forbid = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
                  'echo 0 >/proc/sys/user/max_net_namespaces; exec "$@"', "sh"]
        last = self.up_and_down(*forbid)
        self.assertEqual("Its hosts share this machine's IP network: cannot make namespaces: No space left on device.", last)

    def test_on_a_full_disk(self):
        """What can work at another time is a failure, which a script sees."""
        full = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=4k none "$XDG_RUNTIME_DIR"; '
                'head -c 8192 /dev/zero > "$XDG_RUNTIME_DIR/fill" 2>/dev/null; exec "$@"', "sh"]
        process = self.run_program(*full, TULLE, "fabric", "up", env=self.environment, expect=1)
        self.assertRegex(process.stderr, r"cannot make the hosts' networks: cannot write .*/hosts: No space left on device "
                                         r"\(--shared-network goes without\)")

    def test_without_the_command_ip(self):
        last = self.up_and_down(env={"PATH": str(self.folder)})
        self.assertEqual("Its hosts share this machine's IP network: cannot run `ip`, which the package iproute2 has: No such "
                         "file or directory.", last)


class OrdinaryUser(Network):
    """A fabric of a user without privileges: all is in a user namespace."""

    def setUp(self):
        if not unprivileged_test.maps_all_users():
            self.skipTest("there is no other user, and a user namespace cannot be entered from one beside it")
        self.prefix = unprivileged_test.as_ordinary_user()
        super().setUp()

    def test_without_privileges(self):
        self.serve("h0")
        self.assertEqual("h0:h0\n", self.python("h3", CLIENT, "h0").stdout)
        self.assertEqual("0 tulle 10.0.0.1\n", self.python("h3", PING, "h0").stdout)
        user = self.run_program(*self.prefix, "id", "-u").stdout
        self.assertEqual(user, self.run_program(*self.prefix, *self.on_host("h3", "id", "-u"), env=self.environment).stdout)

    def test_opensm_has_a_folder(self):
        """The machine's folder for its cache is root's."""
        environment = {key: value for key, value in self.environment.items() if key != "OSM_CACHE_DIR"}
        log = self.folder / "opensm.log"
        manager = self.start(*self.prefix, *self.on_host("h0", "/usr/sbin/opensm", "-d2", "-f", log), env=environment)
        wait_until(lambda: self.nodes()["h0"]["subnet_manager"] or not manager.running, "OpenSM", pause=0.1)
        self.assertTrue(manager.running, manager.describe())
        cache = self.own / "opensm"
        wait_until(lambda: list(cache.iterdir()), "its cache", pause=0.1)
        self.assertEqual((0o40700, self.own.stat().st_uid), (cache.stat().st_mode, cache.stat().st_uid))
        manager.signal(signal.SIGTERM)
        manager.wait()
        self.fabric("down")
        self.assertFalse(cache.exists())

    def test_verbs(self):
        self.pair(["ibv_rc_pingpong", "-n", "100"], host="h0", prefix=self.prefix, options=("--host", "h3"),
                  server_options=("--host", "h0"), env=self.environment)

    def test_from_host_to_host(self):
        """A program has the capabilities to change its host's network, and to go on to another host."""
        show = self.on_host("h0", "ip", "link", "set", "eth0", "mtu", "9000")
        self.run_program(*self.prefix, *show, env=self.environment)
        nested = self.on_host("h0", TULLE, "fabric", "rsh", "h3", "hostname")
        self.assertEqual("h3\n", self.run_program(*self.prefix, *nested, env=self.environment).stdout)
