"""Tests a software fabric over two machines: network namespaces with a cable of Ethernet between them."""

import json
import pathlib
import re
import signal
import tempfile
import time

from harness import TULLE, ClientTest, cpu_ticks, wait_until

TOPOLOGY = 'kind = "leaf-spine"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2'
# Sends datagrams that begin as those of a fabric do from another port of a machine's address.
STRANGER = """
import os, socket, sys
stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
stranger.bind((sys.argv[1], 0))
for i in range(20000):
    stranger.sendto(b"TuFB" + bytes([1, i % 6, 1, 0]) + os.urandom(i % 1400), (sys.argv[2], 24791))
"""
# Passes datagrams on between alpha (10.0.0.1) and beta, and prints how many it has lost, doubled and held back.
RELAY = """
import random, select, signal, socket, sys
sockets = []
for port in (6001, 6002):
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.bind(("10.0.0.1", port))
    sockets.append(end)
to_alpha, to_beta = sockets
lost = doubled = late = 0
def end(*_):
    print(lost, doubled, late)
    sys.exit()
signal.signal(signal.SIGTERM, end)
random.seed(1)
held = {to_alpha: None, to_beta: None}
print("relays")
while True:
    for source in select.select(sockets, [], [])[0]:
        out, address = (to_beta, ("10.0.0.2", 24791)) if source is to_alpha else (to_alpha, ("10.0.0.1", 24791))
        datagram = source.recv(9000)
        chance = random.random()
        if chance < 0.01:
            lost += 1
            continue
        if chance < 0.02 and held[out] is None:
            late += 1
            held[out] = datagram
            continue
        out.sendto(datagram, address)
        if chance > 0.99:
            doubled += 1
            out.sendto(datagram, address)
        if held[out]:
            out.sendto(held[out], address)
            held[out] = None
"""


# Counts the datagrams between the machines that are sealed, and the others.
SNIFFER = """
import signal, socket, sys
seen = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x800))
counts = [0, 0]
def end(*_):
    print(*counts)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("looks", flush=True)
while True:
    packet = seen.recv(9000)
    # UDP between the ports of fabrics, and no later fragment
    if packet[9] == 17 and packet[20:24] == (24791).to_bytes(2, "big") * 2 and packet[6] & 0x1F == 0:
        counts[packet[28] == 0xFE] += 1
"""


class Machine:
    """A namespace with a process of the fabric."""

    def __init__(self, test, name, net):
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        self.test, self.name, self.net = test, name, net
        self.folder = pathlib.Path(folder.name)
        self.environment = {"XDG_RUNTIME_DIR": folder.name, "OSM_CACHE_DIR": folder.name}
        self.up = None

    def begin(self, file, *options):
        self.up = self.test.start(TULLE, "fabric", "up", "--foreground", *options, file, net=self.net, env=self.environment)
        # A process that was killed leaves its socket behind.
        wait_until(lambda: self.fabric("status", expect=None).wait() == 0 or not self.up.running, "the fabric")
        self.test.assertTrue(self.up.running, self.up.describe())

    def kill(self):
        self.up.signal(signal.SIGKILL)
        self.up.wait()

    def fabric(self, *arguments, expect=0):
        return self.test.run_program(TULLE, "fabric", *arguments, net=self.net, env=self.environment, expect=expect)

    def status(self):
        return json.loads(self.fabric("status", "--json").stdout)

    def nodes(self):
        status = self.status()
        return {node["name"]: node for node in status["hosts"] + status["switches"]}

    def states(self):
        return {port["state"] for node in self.nodes().values() for port in node["ports"]}

    def is_up(self):
        """All ports are active, and the hosts here have IP over InfiniBand."""
        hosts = [node for node in self.status()["hosts"] if node["machine"] == self.name]
        running = [interface["running"] for host in hosts for interface in host.get("interfaces", [])]
        return self.states() == {"active"} and len(running) == len(hosts) and all(running)

    def hears(self, name):
        return {machine["name"]: machine["state"] for machine in self.status()["machines"]}[name]

    def on_host(self, host, *command):
        return [TULLE, "run", "--host", host, "--", *command]

    def start(self, host, *command):
        return self.test.start(*self.on_host(host, *command), net=self.net, env=self.environment)

    def run(self, host, *command, expect=0, limit=30):
        return self.test.run_program(*self.on_host(host, *command), net=self.net, env=self.environment, expect=expect,
                                     limit=limit)


class TwoMachines(ClientTest):
    topology = TOPOLOGY
    options = ()

    def setUp(self):
        super().setUp()
        first, second = self.joined_namespaces()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "fabric.toml"
        self.file.write_text(self.text())
        self.alpha, self.beta = Machine(self, "alpha", first), Machine(self, "beta", second)

    def text(self, **machines):
        machines = {"alpha": "10.0.0.1", "beta": "10.0.0.2", **machines}
        lists = [f'[[machine]]\nname = "{name}"\naddress = "{address}"\n' for name, address in machines.items()]
        return f"[topology]\n{self.topology}\n" + "".join(lists)

    def begin(self):
        for machine in (self.alpha, self.beta):
            machine.begin(self.file, *self.options)

    def wait_until_up(self):
        for machine in (self.alpha, self.beta):
            wait_until(machine.is_up, f"{machine.name} to be up", pause=0.05)

    def pair(self, *argv, server="h2", client="h0", limit=60):
        """Runs a program's server on beta, and its client on alpha, to their ends."""
        started = self.beta.start(server, *argv)
        self.listens(server)
        other = self.alpha.start(client, *argv, server)
        self.finish(started, other, limit=limit)
        return started, other

    def listens(self, host):
        """Waits until a program of beta's host listens at a port of TCP."""
        script = 'awk \'$4 == "0A"\' /proc/net/tcp /proc/net/tcp6'
        wait_until(lambda: self.beta.run(host, "sh", "-c", script).stdout, "the server", pause=0.05)


class Traffic(TwoMachines):
    def setUp(self):
        super().setUp()
        self.begin()
        self.wait_until_up()

    def test_both_see_the_whole_fabric(self):
        nodes = self.alpha.nodes()
        self.assertEqual({"alpha", "beta"}, {node["machine"] for node in nodes.values()})
        self.assertEqual(["alpha", "alpha", "beta", "beta"], [nodes[f"h{i}"]["machine"] for i in range(4)])
        wait_until(lambda: self.beta.nodes()["h0"]["lids"] == nodes["h0"]["lids"], "beta to be told")
        for machine, host in ((self.alpha, "h1"), (self.beta, "h3")):
            found = machine.run(host, "/usr/sbin/ibnetdiscover").stdout
            self.assertEqual({f"h{i} tulle0" for i in range(4)}, set(re.findall(r'# "(h\d tulle0)"', found)))
            self.assertEqual(4, found.count("\nSwitch\t"))
            links = machine.run(host, "/usr/sbin/iblinkinfo").stdout
            self.assertEqual(16, links.count("Active/  LinkUp"))
        self.assertEqual("connected", self.alpha.hears("beta"))
        self.assertEqual("this machine", self.beta.hears("beta"))

    def test_verbs(self):
        for kind in ("rc", "uc", "ud"):
            argv = [f"ibv_{kind}_pingpong", "-n", "1000", "-s", "2048", *(["-c"] if kind != "ud" else [])]
            for process in self.pair(*argv):
                self.assertRegex(process.stdout, r"(?m)^1000 iters in [\d.]+ seconds", process.describe())
        for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw"):
            _, client = self.pair(program, "-F", "-n", "500")
            self.assertRegex(client.stdout, r"(?m)^ \d+ +500 ", client.describe())

    def test_connections_by_name(self):
        """A name of another machine's host is its address of IP over InfiniBand."""
        server = self.beta.start("h3", "rping", "-s", "-C", "20", "-v", "-V", "-a", "10.1.0.4")
        wait_until(lambda: self.beta.nodes()["h3"]["listeners"] == 1, "the server")
        client = self.alpha.run("h0", "rping", "-c", "-C", "20", "-v", "-V", "-a", "h3")
        self.assertIn("rdma-ping-19: ", client.stdout)
        self.assertEqual(0, server.wait(), server.describe())

    def test_multicast(self):
        argv = ["mckey", "-m", "239.1.2.3", "-C", "20"]
        receiver = self.beta.start("h2", "stdbuf", "-oL", *argv)
        wait_until(lambda: "joined" in receiver.stdout or not receiver.running, "the receiver")
        self.alpha.run("h1", *argv, "-s")
        self.assertEqual(0, receiver.wait(30), receiver.describe())
        self.assertIn("data transfers complete", receiver.stdout)

    def test_ip_over_infiniband(self):
        ping = self.alpha.run("h0", "ping", "-c", "3", "-M", "do", "-s", str(2044 - 28), "h2")
        self.assertIn(" 0% packet loss", ping.stdout)
        self.assertIn(" 0% packet loss", self.beta.run("h3", "ping6", "-c", "3", "fe80::200:0:0:1%ib0").stdout)

    def port(self, machine, node, peer):
        return next(port for port in machine.nodes()[node]["ports"] if port["peer"] == peer)

    def test_a_cable_between_machines_is_cut(self):
        """A connection goes on by the other spine, with every byte right."""
        server = self.beta.start("h2", "ibv_rc_pingpong", "-c", "-n", "30000", "-s", "4096")
        self.listens("h2")
        client = self.alpha.start("h0", "ibv_rc_pingpong", "-c", "-n", "30000", "-s", "4096", "h2")

        def sent(port):
            text = self.alpha.run("h0", "/usr/sbin/perfquery", str(self.alpha.nodes()["leaf0"]["lids"][0]), str(port)).stdout
            return int(re.search(r"PortXmitPkts:\.*(\d+)", text)[1])

        before = [sent(3), sent(4)]
        wait_until(lambda: max(sent(3) - before[0], sent(4) - before[1]) > 300, "traffic")
        spine = "spine0" if sent(3) - before[0] > sent(4) - before[1] else "spine1"
        # Either end's machine may cut it.
        machine, leaf = (self.alpha, "leaf1") if spine == "spine0" else (self.beta, "leaf0")
        other = "leaf0" if leaf == "leaf1" else "leaf1"
        machine.fabric("cut", leaf, spine)
        for each in (self.alpha, self.beta):
            is_down = lambda: self.port(each, spine, leaf)["state"] == "down"  # noqa: B023, E731
            wait_until(is_down, f"the port of {spine} to go down")
        self.finish(server, client, limit=60)
        self.assertIn("30000 iters", client.stdout, client.describe())
        self.assertIn("has no end on this machine", (self.beta if machine is self.alpha else self.alpha).fabric(
            "cut", other, spine, expect=2).stderr)
        machine.fabric("join", leaf, spine)
        self.wait_until_up()

    def test_a_machine_dies_and_comes_back(self):
        self.beta.kill()
        wait_until(lambda: self.alpha.hears("beta") == "nothing is received from it", "silence")
        down = {port["state"] for port in self.alpha.nodes()["leaf0"]["ports"] if port["peer"] == "spine1"}
        self.assertEqual({"down"}, down)
        self.assertIn(" 0% packet loss", self.alpha.run("h0", "ping", "-c", "2", "h1-ib0").stdout)
        self.beta.begin(self.file)
        self.wait_until_up()
        self.pair("ibv_rc_pingpong", "-c", "-n", "500")

    def test_a_machine_that_stands_still_for_a_moment(self):
        """Its connections go on."""
        server = self.beta.start("h2", "ibv_rc_pingpong", "-c", "-n", "20000", "-s", "4096")
        self.listens("h2")
        client = self.alpha.start("h0", "ibv_rc_pingpong", "-c", "-n", "20000", "-s", "4096", "h2")
        for machine in (self.alpha, self.beta):
            machine.up.signal(signal.SIGSTOP)
            time.sleep(0.4)
            machine.up.signal(signal.SIGCONT)
        self.finish(server, client, limit=60)

    def test_strangers(self):
        """They are not answered, and packets go on."""
        server = self.beta.start("h2", "ibv_rc_pingpong", "-c", "-n", "5000", "-s", "4096")
        self.listens("h2")
        client = self.alpha.start("h0", "ibv_rc_pingpong", "-c", "-n", "5000", "-s", "4096", "h2")
        self.run_program("/usr/bin/python3", "-c", STRANGER, "10.0.0.2", "10.0.0.1", net=self.beta.net, limit=30)
        self.finish(server, client, limit=60)
        self.assertEqual("connected", self.alpha.hears("beta"))
        self.assertEqual({"active"}, self.alpha.states())

    def test_ip_divides_no_datagram(self):
        """Fragments of strangers could fill the table where the receiver's kernel puts them together."""
        self.pair("ibv_rc_pingpong", "-n", "200", "-s", "65536", "-m", "4096")
        for machine in (self.alpha, self.beta):
            lines = self.run_program("/usr/bin/cat", "/proc/net/snmp", net=machine.net).stdout.splitlines()
            names, values = (line.split() for line in lines if line.startswith("Ip:"))
            counters = dict(zip(names, values))
            self.assertEqual(("0", "0"), (counters["FragCreates"], counters["ReasmReqds"]))

    def test_an_idle_fabric_rests(self):
        before = [cpu_ticks(machine.up.pid) for machine in (self.alpha, self.beta)]
        self.run_program("sleep", "2")
        after = [cpu_ticks(machine.up.pid) for machine in (self.alpha, self.beta)]
        for first, last in zip(before, after, strict=True):
            self.assertLessEqual(last - first, 6)


class OverIpv6(TwoMachines):
    def test_addresses_with_and_without_a_port(self):
        self.file.write_text(self.text(alpha="[fd00::1]:5000", beta="fd00::2"))
        self.begin()
        self.wait_until_up()
        self.pair("ibv_rc_pingpong", "-c", "-n", "500")


class LossyNetwork(TwoMachines):
    def test_credits_survive_losses(self):
        """A relay between the machines loses, doubles and reorders datagrams. Each machine takes it for the other one."""
        relay = self.start("/usr/bin/python3", "-uc", RELAY, net=self.alpha.net)
        wait_until(lambda: "relays" in relay.stdout or not relay.running, "the relay")
        for machine, addresses in ((self.alpha, {"beta": "10.0.0.1:6001"}), (self.beta, {"alpha": "10.0.0.1:6002"})):
            self.file.write_text(self.text(**addresses))
            machine.begin(self.file, "--machine", machine.name)
        self.wait_until_up()
        # Both ends of these programs wait for each other when all is done: otherwise, the acknowledgement of the last
        # message may be lost, and the end that could send it again be gone.
        for program in ("ib_send_bw", "ib_write_bw", "ib_read_bw"):
            _, client = self.pair(program, "-F", "-n", "200", "-q", "2", limit=120)
            self.assertRegex(client.stdout, r"(?m)^ 65536 +400 ", client.describe())
        relay.signal(signal.SIGTERM)
        relay.wait()
        lost, doubled, late = map(int, relay.stdout.split()[1:])
        self.assertTrue(min(lost, doubled, late) > 20, relay.stdout)


class ByOpenSm(TwoMachines):
    options = ("--no-manager",)

    def test_opensm_sets_up_both_machines(self):
        self.begin()
        log = self.beta.folder / "opensm.log"
        self.beta.start("h3", "/usr/sbin/opensm", "-d2", "-f", log)
        wait_until(lambda: log.exists() and "SUBNET UP" in log.read_text(), "SUBNET UP", pause=0.05)
        self.wait_until_up()
        self.pair("ibv_rc_pingpong", "-c", "-n", "500")
        self.alpha.kill()
        wait_until(lambda: self.beta.hears("alpha") == "nothing is received from it", "silence")
        wait_until(lambda: "h0 " not in self.beta.run("h2", "/usr/sbin/ibhosts").stdout, "h0 to be gone")
        self.alpha.begin(self.file, *self.options)
        self.wait_until_up()
        self.pair("ibv_rc_pingpong", "-c", "-n", "500")


class Sealed(TwoMachines):
    """What goes between the machines is sealed."""

    def setUp(self):
        super().setUp()
        key = self.file.with_name("key")
        key.write_text("5a" * 32 + "\n")
        key.chmod(0o600)
        self.options = ("--secure", key)
        self.sniffer = self.start("/usr/bin/python3", "-uc", SNIFFER, net=self.alpha.net)
        wait_until(lambda: "looks" in self.sniffer.stdout or not self.sniffer.running, "the sniffer")
        self.begin()
        self.wait_until_up()

    def test_nothing_goes_in_clear(self):
        self.pair("ib_write_lat", "-F", "-n", "200")
        self.sniffer.signal(signal.SIGTERM)
        self.sniffer.wait()
        plain, sealed = map(int, self.sniffer.stdout.split()[-2:])
        self.assertEqual(0, plain)
        self.assertGreater(sealed, 200)

    def test_strangers_are_not_heard(self):
        """Beta's place is taken by a process without the key, which anybody there may start."""
        self.beta.kill()
        self.options = ()
        self.beta.begin(self.file)
        wait_until(lambda: self.alpha.hears("beta") == "nothing is received from it", "silence", pause=0.05)
        for _ in range(20):
            self.assertEqual("nothing is received from it", self.alpha.hears("beta"))
            time.sleep(0.05)


class BadInput(TwoMachines):
    def refused(self, message, *options, text=None, status=1):
        if text is not None:
            self.file.write_text(text)
        process = self.start(TULLE, "fabric", "up", *options, self.file, net=self.alpha.net, env=self.alpha.environment)
        self.assertEqual(status, process.wait(10), process.describe())
        self.assertIn(message, process.stderr)
        self.assertEqual(1, process.stderr.count("\n"), process.stderr)

    def test_files(self):
        self.refused('machine "gamma": "nowhere" is no IP address', text=self.text(gamma="nowhere"))
        self.refused('machine "gamma": 10.0.0.1:24791 is another machine\'s address already',
                     text=self.text(gamma="10.0.0.1:24791"))
        self.refused('machine "gamma": fd00::1 is of another version of IP than the first address',
                     text=self.text(gamma="fd00::1"))
        self.refused("none of the machines' addresses is this machine's", text=self.text(alpha="10.0.0.7", beta="10.0.0.8"))
        self.refused('there is no machine "delta"', "--machine", "delta", text=self.text())
        self.refused('machine "beta": cannot open a UDP socket at 10.0.0.2: Cannot assign requested address',
                     "--machine", "beta")
        self.refused("has no host or switch", text=self.text() + 'nodes = ["h9"]\n', status=2)
        self.refused("machine.address: is needed", text=self.text() + '[[machine]]\nname = "gamma"\n', status=2)

    def test_a_key_file(self):
        self.refused("cannot use the key file /dev/null", "--secure", "/dev/null", text=self.text(), status=2)
        self.alpha.environment["TULLE_SECURE"] = "/dev/null"
        self.refused("cannot use the key file /dev/null", text=self.text(), status=2)

    def test_names_do_not_steer_a_terminal(self):
        self.file.write_text(self.text().replace('"beta"', '"b\\u001b[31m\\u009bta"'))
        self.alpha.begin(self.file)
        shown = self.alpha.fabric("status").stdout
        self.assertIn("b?[31m?ta", shown)
        self.assertNotRegex(shown, "[\x1b\x9b]")

    def test_files_that_differ_are_named(self):
        self.alpha.begin(self.file)
        self.file.write_text(self.text() + 'nodes = ["h1"]\n')
        self.beta.begin(self.file)
        for machine, other in ((self.alpha, "beta"), (self.beta, "alpha")):
            wait_until(lambda: machine.hears(other) == "its fabric has another file", "the difference", pause=0.05)  # noqa: B023

    def test_hosts_of_other_machines(self):
        self.begin()
        self.assertEqual('tulle: h3 is a host of the machine "beta"\n', self.alpha.run("h3", "true", expect=2).stderr)
        self.assertIn("is up already", self.alpha.fabric("up", self.file, expect=1).stderr)
