"""Tests a software InfiniBand fabric: OpenSM and infiniband-diags as they are, on hosts of its own."""

import json
import os
import pathlib
import re
import shlex
import signal
import socket
import tempfile
import unittest

from harness import TULLE, ClientTest, cpu_ticks, wait_until

TOOLS = "/usr/sbin/"


def errors_in(log):
    """Returns what OpenSM's log has of errors, without ERR 1B10: a host's IP sends to the group of routers, which nobody
    has made."""
    return [line for line in log.read_text().splitlines() if "ERR" in line and "ERR 1B10" not in line]


def accepts(path):
    """Returns True if connections to a socket are accepted. It has its name a moment before."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


class FabricTest(ClientTest):
    """A test with a fabric of its own, whose socket lies in a folder of the test."""

    topology = None  # lines of a scenario's [topology]
    own_manager = False  # the fabric has a subnet manager of its own
    options = ()  # of `tulle fabric up`

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        if self.prefix:
            self.folder.chmod(0o1777)  # those programs run as another user
        # OpenSM keeps what it has learnt of a fabric, which is none of the next one.
        self.environment = {"XDG_RUNTIME_DIR": folder.name, "OSM_CACHE_DIR": folder.name}
        arguments = [*self.options, *([] if self.own_manager else ["--no-manager"])]
        if self.topology:
            (self.folder / "fabric.toml").write_text(f"[topology]\n{self.topology}\n")
            arguments.append(self.folder / "fabric.toml")
        self.up = self.start(*self.prefix, TULLE, "fabric", "up", "--foreground", *arguments, env=self.environment)
        self.own = self.folder / "tulle" / f"fabric_default_{self.net.inode}"
        wait_until(lambda: accepts(self.own / "socket"), "the fabric")

    def fabric(self, *arguments, expect=0):
        command = [*self.prefix, TULLE, "fabric", *arguments]
        return self.run_program(*command, env=self.environment, expect=expect)

    def on_host(self, host, *command):
        return [TULLE, "run", "--host", host, "--", *command]

    def tool(self, host, name, *arguments, expect=0):
        command = self.on_host(host, TOOLS + name, *arguments)
        return self.run_program(*command, env=self.environment, expect=expect, limit=30)

    def nodes(self):
        status = json.loads(self.fabric("status", "--json").stdout)
        return {node["name"]: node for node in status["hosts"] + status["switches"]}

    def states(self):
        return {port["state"] for node in self.nodes().values() for port in node["ports"]}

    def start_manager(self, host="h0", *arguments):
        """Starts OpenSM with a log (-f) that is written at once (-d2)."""
        log = self.folder / f"opensm-{host}.log"
        manager = self.start(*self.on_host(host, TOOLS + "opensm", "-d2", "-f", log, *arguments), env=self.environment)
        wait_until(lambda: log.exists() and "Entering" in log.read_text(), "OpenSM", pause=0.05)
        return manager, log

    def bring_up(self):
        manager, log = self.start_manager()
        wait_until(lambda: "SUBNET UP" in log.read_text(), "SUBNET UP", pause=0.05)
        wait_until(lambda: self.states() == {"active"}, "active ports")
        return manager, log


class WithoutManager(FabricTest):
    def test_what_the_file_says_is_what_is_found(self):
        found = self.tool("h2", "ibnetdiscover", "-p").stdout
        links = set()
        for line in found.splitlines():
            ends = re.findall(r"(SW|CA)\s+\d+\s+(\d+)\s+0x([0-9a-f]{16})", line)
            if len(ends) == 2:
                links.add(frozenset((guid, port) for _, port, guid in ends))
        nodes = self.nodes()
        wanted = set()
        for node in nodes.values():
            for port in node["ports"]:
                ends = ((node["guid"], port["port"]), (nodes[port["peer"]]["guid"], port["peer_port"]))
                wanted.add(frozenset((guid[2:], str(number)) for guid, number in ends))
        self.assertEqual(wanted, links)
        self.assertEqual(5, len(links))

    def test_hosts_have_an_infiniband_port(self):
        output = self.tool("h1", "ibstat").stdout
        for line in ("CA 'tulle0'", "State: Initializing", "Physical state: LinkUp", "Rate: 100", "Base lid: 0",
                     "Link layer: InfiniBand"):
            self.assertIn(line, output)

    def test_a_host_has_a_device_whose_port_is_not_active(self):
        output = self.run_program(*self.on_host("h1", "ibv_devinfo"), env=self.environment).stdout
        for line in ("PORT_INIT (2)", "port_lid:\t\t0", "link_layer:\t\tInfiniBand"):
            self.assertIn(line, output)

    def test_there_is_one_fabric_of_a_name(self):
        again = self.fabric("up", expect=1)
        self.assertIn('the fabric "default" is up already; `tulle fabric down` ends it', again.stderr)
        self.assertEqual(6, len(self.nodes()))

    def test_down_ends_it(self):
        self.fabric("down")
        self.assertEqual(0, self.up.wait())
        self.assertEqual([], list(self.own.iterdir()))
        self.assertIn("no fabric runs at", self.fabric("status", expect=1).stderr)
        self.assertIn("no fabric runs at", self.tool("h0", "ibstat", expect=1).stderr)

    def test_wrong_use_says_what_is_right(self):
        choices = "choose from up, down, status, list, rsh, cut, join"
        for arguments, message in (((), "a command is missing"), (("exec",), 'unknown command "fabric exec"'),
                                   (("exec", "h0"), 'unknown command "fabric exec"'),
                                   (("cut", "h1"), "OTHER_END is required")):
            with self.subTest(arguments=arguments):
                wrong = self.fabric(*arguments, expect=2)
                self.assertIn(message, wrong.stderr)
                self.assertEqual(1, wrong.stderr.count("\n"))
                if not arguments or arguments[0] == "exec":
                    self.assertIn(choices, wrong.stderr)

    def test_what_has_no_effect_on_a_host_is_refused(self):
        keys = self.folder / "keys"
        keys.write_text("00" * 32 + "\n")
        for options in (("--faults", "drop=0.5"), ("--secure", keys), ("--interface", "eth0"), ("--roce", "v1"),
                        ("--agent", "@other"), ("--no-offload",), ("--no-direct",), ("--share-memory",)):
            with self.subTest(options=options):
                argv = [TULLE, "run", "--host", "h0", *options, "--", "true"]
                wrong = self.run_program(*argv, env=self.environment, expect=2)
                self.assertEqual(f"tulle: {options[0]} has no effect on a host of a software fabric\n", wrong.stderr)
        for variable, value in (("TULLE_FAULTS", "drop=0.5"), ("TULLE_SECURE", str(keys))):
            wrong = self.run_program(*self.on_host("h0", "true"), env={**self.environment, variable: value}, expect=2)
            self.assertIn(f"{variable} has no effect", wrong.stderr)
        inner = self.on_host("h0", TULLE, "run", "--faults", "drop=0.5", "--", "true")
        self.run_program(*inner, env=self.environment, expect=2)
        self.run_program(TULLE, "run", "--host", "h0", "--recovery", "selective-repeat", "--busy-poll", "0", "--", "true",
                         env=self.environment)

    def test_fabrics_are_listed_and_dead_ones_go(self):
        name = f"fabric_default_{self.net.inode}"
        listed = json.loads(self.fabric("list", "--json").stdout)
        self.assertEqual([{"name": "default", "switches": 2, "hosts": 4, "process": self.up.pid,
                           "network_namespace": str(self.net.inode), "is_here": True}], listed)
        self.assertIn("this one", self.fabric("list").stdout)
        on_host = self.run_program(*self.on_host("h1", TULLE, "fabric", "list", "--json"), env=self.environment)
        self.assertEqual(listed, json.loads(on_host.stdout), "a host knows it by the same name")
        self.run_program(*self.on_host("h1", TULLE, "fabric", "status", "--name", "default"), env=self.environment)
        files = self.folder / "tulle"
        trees = [each for each in files.iterdir() if name in each.name and each.name != name]
        self.assertTrue(trees, "of the programs on hosts")
        self.up.signal(signal.SIGKILL)
        self.up.wait()
        self.assertIn("No fabric is up", self.fabric("list").stdout)
        self.assertEqual([], [each for each in files.iterdir() if name in each.name])

    def test_names_are_those_of_a_network_namespace(self):
        other = self.namespace()
        up = self.start(*self.prefix, TULLE, "fabric", "up", "--foreground", net=other, env=self.environment)
        listed = lambda: json.loads(self.fabric("list", "--json").stdout)  # noqa: E731
        wait_until(lambda: len(listed()) == 2, "the other fabric")
        self.assertEqual({str(self.net.inode): True, str(other.inode): False},
                         {each["network_namespace"]: each["is_here"] for each in listed()})
        self.run_program(*self.prefix, TULLE, "fabric", "down", net=other, env=self.environment)
        self.assertEqual(0, up.wait())
        self.assertEqual(6, len(self.nodes()), "this one is still up")

    def test_a_killed_fabric_is_in_nobodys_way(self):
        self.up.signal(signal.SIGKILL)
        self.up.wait()
        again = self.fabric("up")
        self.assertIn('The fabric "default" is up', again.stdout)
        self.fabric("down")

    def test_unknown_names(self):
        for arguments, message in (
            (("cut", "h9", "switch4"), 'the fabric has no host or switch "h9"'),
            (("cut", "h0", "h1"), "no cable joins h0 and h1"),
            (("cut", "h0:2", "switch4"), 'h0 has the ports 1 to 1, and not "2"'),
        ):
            self.assertIn(message, self.fabric(*arguments, expect=2).stderr)
        self.assertIn('the fabric has no host "switch4"; its hosts are h0 to h3',
                      self.tool("switch4", "ibstat", expect=2).stderr)


    @unittest.skipIf(os.geteuid() != 0, "only root has other users to test with")
    def test_another_user_is_refused(self):
        """Even where the folder lets him in."""
        address = self.own / "socket"
        for each in (self.folder, address.parent.parent, address.parent):
            each.chmod(0o755)
        address.chmod(0o777)
        asks = ("import os, socket, sys; os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534); "
                "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); "
                "s.settimeout(10); print(s.recv(1000))")
        self.assertIn("this fabric belongs to user 0",
                      self.run_program("/usr/bin/python3", "-c", asks, address).stdout)
        self.assertEqual(6, len(self.nodes()))


class Managed(FabricTest):
    def test_opensm_brings_it_up_and_rests(self):
        manager, log = self.bring_up()
        nodes = self.nodes()
        lids = [lid for node in nodes.values() for lid in node["lids"]]
        self.assertEqual(len(nodes), len(set(lids)))
        self.assertTrue(nodes["h0"]["subnet_manager"])
        self.assertFalse(nodes["h1"]["subnet_manager"])
        self.assertEqual([], errors_in(log))
        before = cpu_ticks(self.up.pid), cpu_ticks(manager.pid)
        self.run_program("sleep", "1")
        after = cpu_ticks(self.up.pid), cpu_ticks(manager.pid)
        self.assertLessEqual(after[0] - before[0], 2)
        self.assertLessEqual(after[1] - before[1], 5)

    def test_diagnostics(self):
        self.bring_up()
        nodes = self.nodes()
        lid = {name: str(node["lids"][0]) for name, node in nodes.items()}
        self.assertIn("SMINFO_MASTER", self.tool("h3", "sminfo").stdout)
        self.assertIn(f"sm lid {lid['h0']} ", self.tool("h3", "sminfo").stdout)
        path = self.tool("h3", "ibtracert", lid["h3"], lid["h0"]).stdout
        for name in ("switch 4", "switch 5", "h0 tulle0"):
            self.assertIn(name, path)
        self.assertIn("6 valid lids dumped", self.tool("h3", "ibroute", lid["switch4"]).stdout)
        self.assertEqual(10, self.tool("h3", "saquery", "-x").stdout.count("LinkRecord"))
        self.assertEqual(6, self.tool("h3", "saquery", "-N").stdout.count("NodeRecord"))
        self.assertIn("ff12:401b:ffff::ffff:ffff", self.tool("h3", "saquery", "-g").stdout)
        self.assertEqual(10, self.tool("h3", "iblinkinfo").stdout.count("Active/  LinkUp"))
        self.assertIn("0 bad nodes found", self.tool("h3", "ibqueryerrors").stdout)
        self.assertEqual(4, self.tool("h3", "ibhosts").stdout.count("Ca\t:"))
        self.assertEqual(2, self.tool("h3", "ibswitches").stdout.count("Switch\t:"))
        self.assertIn("switch 4", self.tool("h3", "smpquery", "nodedesc", lid["switch4"]).stdout)
        self.assertIn("Peer PortInfo", self.tool("h3", "ibportstate", lid["switch5"], "3").stdout)

    def test_counters_are_read_and_taken_back(self):
        self.bring_up()
        lid = str(self.nodes()["switch4"]["lids"][0])

        def packets(*arguments):
            output = self.tool("h1", "perfquery", *arguments, lid, "3").stdout
            return int(re.search(r"PortXmitPkts:\.*(\d+)", output).group(1))

        def after_reset():
            self.tool("h1", "perfquery", "-R", lid, "3")
            return packets()

        self.assertGreater(packets(), 10)
        # The answers to these two questions themselves do not pass by this port. OpenSM's next sweep may.
        wait_until(lambda: after_reset() < 5, "a counter that was taken back")

    def test_a_cut_is_counted_at_both_ends(self):
        """IBTA 16.1.3.5: LinkDownedCounter."""
        self.bring_up()
        nodes = self.nodes()
        peer, far_port = next((port["peer"], port["peer_port"]) for port in nodes["h3"]["ports"])

        def downed(node, port):
            lid = str(self.nodes()[node]["lids"][0])
            output = self.tool("h0", "perfquery", lid, str(port)).stdout
            return int(re.search(r"LinkDownedCounter:\.*(\d+)", output).group(1))

        self.assertEqual((0, 0), (downed("h3", 1), downed(peer, far_port)))
        for cuts in (1, 2):
            self.fabric("cut", "h3", peer)
            wait_until(lambda: "down" in self.states(), "the cut")
            self.fabric("join", "h3", peer)
            wait_until(lambda: self.states() == {"active"}, "active ports")
            self.assertEqual((cuts, cuts), (downed("h3", 1), downed(peer, far_port)))
        counter = "/sys/class/infiniband/tulle0/ports/1/counters/link_downed"
        self.assertEqual("2", self.run_program(*self.on_host("h3", "cat", counter), env=self.environment).stdout.strip())

    def test_ibping(self):
        self.bring_up()
        server = self.start(*self.on_host("h1", TOOLS + "ibping", "-S"), env=self.environment)
        lid = str(self.nodes()["h1"]["lids"][0])
        wait_until(lambda: self.nodes()["h1"]["programs"] == 1, "the server")
        self.assertIn("3 received, 0% packet loss", self.tool("h2", "ibping", "-c", "3", "-f", lid).stdout)
        server.end()
        wait_until(lambda: self.nodes()["h1"]["programs"] == 0, "its end")
        self.assertIn("100% packet loss", self.tool("h2", "ibping", "-c", "2", "-t", "100", lid, expect=None).stdout)

    def test_a_manager_disables_and_enables_a_port(self):
        self.bring_up()
        lid = str(self.nodes()["switch5"]["lids"][0])
        self.tool("h0", "ibportstate", lid, "1", "disable")
        wait_until(lambda: self.nodes()["h2"]["ports"][0]["state"] == "down", "the link to go")
        self.assertEqual(3, self.tool("h0", "ibhosts").stdout.count("Ca\t:"))
        self.tool("h0", "ibportstate", lid, "1", "enable")
        wait_until(lambda: self.states() == {"active"}, "the link to come back")

    def test_a_cable_is_cut_and_joined(self):
        self.bring_up()
        self.fabric("cut", "h3", "switch5")
        self.assertTrue(self.nodes()["h3"]["ports"][0]["cut"])
        log = self.folder / "opensm-h0.log"
        wait_until(lambda: "Removed port" in log.read_text(), "the manager to hear of it")
        self.fabric("join", "h3:1", "switch5:2")
        wait_until(lambda: self.states() == {"active"}, "the link to come back")

    def test_a_fabric_that_is_killed_takes_no_processor(self):
        """OpenSM receives in a loop, whatever the error."""
        manager, _ = self.bring_up()
        self.up.end()
        self.run_program("sleep", "0.5")
        before = cpu_ticks(manager.pid)
        self.run_program("sleep", "1")
        self.assertLess(cpu_ticks(manager.pid) - before, os.sysconf("SC_CLK_TCK") / 4)
        manager.end()
        # What the killed process left behind is in nobody's way.
        again = self.start(TULLE, "fabric", "up", "--foreground", env=self.environment)
        wait_until(lambda: self.run_program(TULLE, "fabric", "status", env=self.environment, expect=None).wait() == 0,
                   "the next fabric")
        self.assertEqual(6, len(self.nodes()))
        again.signal(signal.SIGTERM)
        self.assertEqual(0, again.wait())

    def test_a_pipe_of_whoever_starts_it_ends(self):
        """No process of the fabric's keeps what its starter reads from."""
        environment = {**self.environment, "XDG_RUNTIME_DIR": str(self.folder)}
        self.addCleanup(lambda: self.run_program(TULLE, "fabric", "down", "--name", "piped", env=environment,
                                                 expect=None))
        shell = f"{shlex.quote(str(TULLE))} fabric up --name piped 2>&1 | cat"
        self.run_program("sh", "-c", shell, env=environment, limit=30)

    def test_the_managers_key_keeps_others_out(self):
        (self.folder / "opensm.conf").write_text("m_key 0x1234\nm_key_protection_level 2\nm_key_lease_period 60\n")
        _, log = self.start_manager("h0", "-F", self.folder / "opensm.conf")
        wait_until(lambda: "SUBNET UP" in log.read_text(), "SUBNET UP", pause=0.05)
        lid = str(self.nodes()["switch5"]["lids"][0])
        self.assertIn("Mkey:", self.tool("h3", "smpquery", "-y", "0x1234", "portinfo", lid, "0").stdout)
        refused = self.tool("h3", "smpquery", "-t", "100", "portinfo", lid, "0", expect=255)
        # It gives up either when nothing has come, or when the fabric says so, whichever is first.
        self.assertIn("_do_madrpc failed", refused.stderr)
        # Setting a port's state without the key has no effect, and the manager hears of it.
        self.tool("h3", "ibportstate", "-t", "100", lid, "1", "disable", expect=255)
        self.assertEqual({"active"}, self.states())
        wait_until(lambda: "Bad M_Key" in log.read_text() or "num:256" in log.read_text(), "the report", pause=0.1)

    def test_another_manager_takes_over(self):
        first, _ = self.bring_up()
        # By default, a standby asks the master every ten seconds, and four times in vain.
        settings = self.folder / "opensm.conf"
        settings.write_text("sminfo_polling_timeout 500\npolling_retry_number 4\n")
        _, log = self.start_manager("h3", "-F", settings)
        wait_until(lambda: "Entering STANDBY state" in log.read_text(), "the standby", pause=0.05)
        wait_until(lambda: self.nodes()["h3"]["subnet_manager"], "its flag")
        first.signal(signal.SIGKILL)
        wait_until(lambda: not self.nodes()["h0"]["subnet_manager"], "the flag to go")
        wait_until(lambda: "Entering MASTER state" in log.read_text(), "the new master", pause=0.2)


class OwnManager(FabricTest):
    own_manager = True

    def lid(self, name):
        return str(self.nodes()[name]["lids"][0])

    def test_ports_are_active_at_once_and_the_fabric_rests(self):
        wait_until(lambda: self.states() == {"active"}, "active ports", pause=0.05)
        nodes = self.nodes()
        self.assertEqual(len(nodes), len({lid for node in nodes.values() for lid in node["lids"]}))
        self.run_program("sleep", "11")  # the first light sweep takes back what the switches have noted
        before = cpu_ticks(self.up.pid)
        self.run_program("sleep", "1")
        self.assertLessEqual(cpu_ticks(self.up.pid) - before, 2)

    def test_diagnostics(self):
        lid = self.lid
        self.assertIn("SMINFO_MASTER", self.tool("h3", "sminfo").stdout)
        self.assertIn(f"sm lid {lid('switch4')} ", self.tool("h3", "sminfo").stdout)
        path = self.tool("h3", "ibtracert", lid("h3"), lid("h0")).stdout
        for name in ("switch 4", "switch 5", "h0 tulle0"):
            self.assertIn(name, path)
        self.assertIn("6 valid lids dumped", self.tool("h3", "ibroute", lid("switch4")).stdout)
        self.assertEqual(10, self.tool("h3", "iblinkinfo").stdout.count("Active/  LinkUp"))
        self.assertEqual(4, self.tool("h3", "ibhosts").stdout.count("Ca\t:"))
        self.assertIn("0 bad nodes found", self.tool("h3", "ibqueryerrors").stdout)

    def test_saquery(self):
        lid = self.lid
        asks = lambda *arguments: self.tool("h3", "saquery", *arguments).stdout
        self.assertEqual(36, asks("-p").count("PathRecord"))
        self.assertEqual(6, asks("-N").count("NodeRecord"))
        self.assertEqual(10, asks("-x").count("LinkRecord"))
        self.assertEqual(12, asks("PIR").count("PortInfoRecord"))
        self.assertEqual(2, asks("SWIR").count("SwitchInfoRecord"))
        self.assertEqual(2, asks("LFTR").count("LFT Record"))
        self.assertIn("ff12:401b:ffff::ffff:ffff", asks("-g"))
        self.assertIn("SMState...............3", asks("SMIR"))
        self.assertIn("Class version............2", asks("-c"))
        self.assertEqual("", asks("-S"))
        path = asks("--src-to-dst", f"{lid('h1')}:{lid('h2')}")
        self.assertEqual(1, path.count("PathRecord"))
        for value in (f"dlid....................{lid('h2')}\n", f"slid....................{lid('h1')}\n",
                      "mtu.....................0x85", "rate....................0x90", "num_path_revers.........0x80"):
            self.assertIn(value, path)
        self.assertIn(f"{lid('h1')}\n", asks("-L", "h1 tulle0"))

    def test_programs_cannot_set_nodes_up(self):
        """The manager's key is not known to anybody else."""
        wait_until(lambda: self.states() == {"active"}, "active ports", pause=0.05)
        for key in ((), ("-y", "0x1")):
            self.tool("h3", "ibportstate", "-t", "100", *key, self.lid("switch5"), "1", "disable", expect=255)
        self.assertEqual({"active"}, self.states())
        shown = self.tool("h3", "smpquery", "-K", "portinfo", self.lid("switch5"), "0").stdout
        self.assertRegex(shown, r"Mkey:\.+0x0{16}\n")
        self.assertRegex(shown, r"ProtectBits:\.+1\n")

    def test_ibping(self):
        self.start(*self.on_host("h1", TOOLS + "ibping", "-S"), env=self.environment)
        wait_until(lambda: self.nodes()["h1"]["programs"] == 1, "the server")
        self.assertIn("3 received, 0% packet loss", self.tool("h2", "ibping", "-c", "3", "-f", self.lid("h1")).stdout)

    def test_a_cable_is_cut_and_joined(self):
        before = self.lid("h3")
        self.fabric("cut", "h3", "switch5")
        wait_until(lambda: self.tool("h0", "saquery", "-N").stdout.count("NodeRecord") == 5, "the host to go")
        self.fabric("join", "h3", "switch5")
        wait_until(lambda: self.states() == {"active"}, "the link to come back")
        wait_until(lambda: self.tool("h0", "saquery", "-N").stdout.count("NodeRecord") == 6, "the host to come back")
        self.assertEqual(before, self.lid("h3"))

    def test_opensm_takes_over_and_is_replaced(self):
        """OpenSM has precedence on any host. When it is killed, the fabric's own manager is master again."""
        wait_until(lambda: self.states() == {"active"}, "the own manager's sweep", pause=0.05)  # it is master then
        manager, log = self.start_manager("h3")
        wait_until(lambda: "Entering MASTER state" in log.read_text(), "OpenSM to be master", pause=0.05)
        wait_until(lambda: "SUBNET UP" in log.read_text(), "SUBNET UP", pause=0.05)
        self.assertIn(f"sm lid {self.lid('h3')} ", self.tool("h0", "sminfo").stdout)
        own = self.tool("h0", "sminfo", self.lid("switch4")).stdout
        self.assertIn("SMINFO_STANDBY", own)
        managers = [(name, node["master"]) for name, node in self.nodes().items() if node["subnet_manager"]]
        self.assertEqual([("h3", True), ("switch4", False)], managers)
        before = cpu_ticks(self.up.pid)
        self.run_program("sleep", "3")  # the standby polls in between, and rests otherwise
        self.assertLessEqual(cpu_ticks(self.up.pid) - before, 6)
        self.assertEqual([], errors_in(log))
        self.assertEqual({"active"}, self.states())
        manager.signal(signal.SIGKILL)
        asks = lambda: self.tool("h0", "sminfo", "-t", "100", expect=None).stdout
        wait_until(lambda: f"sm lid {self.lid('switch4')} " in asks() and "SMINFO_MASTER" in asks(), "the own manager",
                   pause=0.2)
        self.assertEqual(36, self.tool("h0", "saquery", "-p").stdout.count("PathRecord"))
        self.assertEqual({"active"}, self.states())


class KnownKey(FabricTest):
    """The manager's key is given, for tools and other managers."""

    own_manager = True
    key = "0x1b2c3d4e5f607182"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "key"
        path.write_text(self.key + "\n")
        path.chmod(0o600)
        self.options = ("--manager-key", path)
        super().setUp()
        wait_until(lambda: self.states() == {"active"}, "active ports", pause=0.05)

    def test_tools_that_know_it_change_nodes(self):
        port = [str(self.nodes()["switch5"]["lids"][0]), "2"]  # to h3
        self.tool("h0", "ibportstate", "-t", "100", *port, "disable", expect=255)
        self.tool("h0", "ibportstate", "-y", self.key, *port, "disable")
        wait_until(lambda: self.nodes()["h3"]["ports"][0]["state"] == "down", "the link to go")
        self.tool("h0", "ibportstate", "-y", self.key, *port, "enable")
        wait_until(lambda: self.states() == {"active"}, "the link to come back")

    def test_an_opensm_that_knows_it_takes_over(self):
        settings = self.folder / "opensm.conf"
        settings.write_text(f"m_key {self.key}\nsm_key {self.key}\nm_key_protection_level 1\n")
        manager, log = self.start_manager("h0", "-F", settings)
        wait_until(lambda: "SUBNET UP" in log.read_text(), "SUBNET UP", pause=0.05)
        self.assertEqual({"active"}, self.states())
        sm_lid = self.nodes()["h0"]["lids"][0]
        wait_until(lambda: f"sm lid {sm_lid} " in self.tool("h3", "sminfo").stdout, "OpenSM to be the master")
        manager.end()
        own_lid = self.nodes()["switch4"]["lids"][0]
        wait_until(lambda: f"sm lid {own_lid} " in self.tool("h3", "sminfo", expect=None).stdout,
                   "the fabric's own manager")

    def test_an_opensm_that_does_not_know_it_changes_nothing(self):
        _, log = self.start_manager("h0")
        own_lid = self.nodes()["switch4"]["lids"][0]
        wait_until(lambda: "non-matching sm_key" in log.read_text() or "doesn't match" in log.read_text(), "its complaint")
        self.run_program("sleep", "3")
        self.assertEqual({"active"}, self.states())
        self.assertIn(f"sm lid {own_lid} ", self.tool("h3", "sminfo").stdout)


class OwnLarge(FabricTest):
    """64 switches with 1,728 ports and a manager in one process."""

    own_manager = True
    topology = 'kind = "leaf-spine"\nleaves = 48\nspines = 16\nhosts_per_leaf = 10'

    def test_is_brought_up(self):
        wait_until(lambda: self.states() == {"active"}, "active ports", pause=0.05)
        self.assertEqual((480 + 64) ** 2, self.tool("h7", "saquery", "-t", "25000", "-p").stdout.count("PathRecord"))
        status = pathlib.Path(f"/proc/{self.up.pid}/status").read_text()
        self.assertLess(int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)), 1 << 18)


class Large(FabricTest):
    """64 switches with 1,728 ports in one process."""

    topology = 'kind = "leaf-spine"\nleaves = 48\nspines = 16\nhosts_per_leaf = 10'

    def test_is_discovered(self):
        self.bring_up()
        self.assertEqual(480, self.tool("h7", "ibhosts").stdout.count("Ca\t:"))
        self.assertEqual((480 + 64) ** 2, self.tool("h7", "saquery", "-t", "25000", "-p").stdout.count("PathRecord"))
        status = pathlib.Path(f"/proc/{self.up.pid}/status").read_text()
        self.assertLess(int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)), 1 << 20)


class BadInput(ClientTest):
    def up(self, topology):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "fabric.toml"
            file.write_text(topology)
            return self.run_program(TULLE, "fabric", "up", "--foreground", file, env={"XDG_RUNTIME_DIR": folder},
                                    expect=2).stderr

    def test_files(self):
        self.assertIn("topology is required", self.up("title = 'nothing'\n").replace(":", ""))
        self.assertIn("leaves", self.up("[topology]\nkind = 'leaf-spine'\nleaves = 0\n"))
        self.assertIn("switch 0 has 300 ports; a switch of InfiniBand has at most 254",
                      self.up("[topology]\nkind = 'single-switch'\nhosts = 300\n"))
        self.assertIn("a subnet has at most 49,151 LIDs",
                      self.up("[topology]\nkind = 'fat-tree'\nk = 64\n"))
