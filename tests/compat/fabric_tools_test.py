"""Runs programs of InfiniBand, each on a software fabric of its own: see infiniband.py."""

import pathlib
import re
import shutil
import tempfile
import unittest

import fabric_test
import frame
from harness import wait_until


class Tools(fabric_test.FabricTest):
    """The two switches and four hosts of the default fabric."""

    def lid(self, name):
        return str(self.nodes()[name]["lids"][0])

    def says(self, host, name, *arguments, wanted=(), expect=0):
        folder = "" if shutil.which(name, path="/usr/bin") else fabric_test.TOOLS
        process = self.run_program(*self.on_host(host, folder + name, *arguments), env=self.environment, expect=expect,
                                   limit=60)
        for text in wanted:
            self.assertRegex(process.stdout, text, process.describe())
        return process.stdout

    def counts(self, host, name, *arguments, text, number):
        self.assertEqual(number, self.says(host, name, *arguments).count(text))

    def both(self, argv, listens=None, server_options=(), client_options=("h0",)):
        server = self.start(*self.on_host("h0", *argv, *server_options), env=self.environment)
        if listens is not None:
            wait_until(listens, f"{argv[0]} to listen")
        client = self.run_program(*self.on_host("h3", *argv, *client_options), env=self.environment, limit=60)
        return server, client

    def listeners(self):
        return self.nodes()["h0"]["listeners"] > 0


class Programs:
    """What is run under either manager."""

    key = ()  # the options that give a tool the manager's key

    def test_ibnetdiscover(self):
        found = self.says("h1", "ibnetdiscover", "-p")
        self.assertEqual(10, len(re.findall(r"(?m)^(?:SW|CA) .*- (?:SW|CA) ", found)))

    def test_iblinkinfo(self):
        self.counts("h1", "iblinkinfo", text="Active/  LinkUp", number=10)

    def test_ibqueryerrors(self):
        self.says("h1", "ibqueryerrors", wanted=["0 bad nodes found"])

    def test_ibhosts_and_ibswitches(self):
        self.counts("h1", "ibhosts", text="Ca\t:", number=4)
        self.counts("h1", "ibswitches", text="Switch\t:", number=2)
        self.counts("h1", "ibnodes", text="\t: 0x", number=6)

    def test_saquery(self):
        self.counts("h1", "saquery", "-p", text="PathRecord", number=36)
        self.counts("h1", "saquery", "-N", text="NodeRecord", number=6)
        self.says("h1", "saquery", "-g", wanted=["ff12:401b:ffff::ffff:ffff"])
        # The hosts' interfaces of IP over InfiniBand are members of its group.
        self.run_program(*self.on_host("h0", "true"), env=self.environment)
        wait_until(lambda: len(re.findall("PortGid", self.says("h1", "saquery", "-m"))) >= 4, "the members of groups")

    def test_smpquery(self):
        for what, wanted in (("nodeinfo", "NodeType:.*Switch"), ("nodedesc", "switch 4"), ("portinfo", "LinkState:.*Active"),
                             ("switchinfo", "LinearFdbCap"), ("pkeys", "0xffff"), ("sl2vl", "SL2VL"), ("vlarb", "VL")):
            self.says("h1", "smpquery", what, self.lid("switch4"), *(["1"] if what in ("portinfo", "pkeys") else []),
                      wanted=[wanted])

    def test_sminfo(self):
        self.says("h1", "sminfo", wanted=["SMINFO_MASTER"])

    def test_ibtracert(self):
        self.says("h1", "ibtracert", self.lid("h3"), self.lid("h0"), wanted=["switch 4", "switch 5", "h0 tulle0"])

    def test_ibroute_and_dump_fts(self):
        self.says("h1", "ibroute", self.lid("switch4"), wanted=["6 valid lids dumped"])
        self.says("h1", "dump_fts", wanted=[r"(?s)switch 4.*switch 5"])

    def test_ibping(self):
        server = self.start(*self.on_host("h2", fabric_test.TOOLS + "ibping", "-S"), env=self.environment)
        wait_until(lambda: self.nodes()["h2"]["programs"] >= 1, "the server")
        self.says("h3", "ibping", "-c", "3", self.lid("h2"), wanted=["3 received, 0% packet loss"])
        server.end()

    def test_perfquery(self):
        self.says("h1", "perfquery", self.lid("switch4"), "3", wanted=["PortXmitPkts"])
        self.says("h1", "perfquery", "-R", self.lid("switch4"), "3")
        self.says("h1", "perfquery", "-x", self.lid("switch4"), "3", wanted=["PortXmitPkts"])

    def test_ibportstate(self):
        port = [*self.key, self.lid("switch5"), "2"]  # to h3
        self.says("h1", "ibportstate", *port, wanted=["Peer PortInfo"])
        self.says("h1", "ibportstate", *port, "disable")
        wait_until(lambda: self.nodes()["h3"]["ports"][0]["state"] == "down", "the link to go")
        self.says("h1", "ibportstate", *port, "enable")
        wait_until(lambda: self.nodes()["h3"]["ports"][0]["state"] == "active", "the link to come back")

    def test_ibportstate_speed(self):
        port = [*self.key, self.lid("switch5"), "2"]  # to h3
        self.says("h1", "ibportstate", *port, "speed", "1", "espeed", "30")
        self.says("h1", "ibportstate", *port, "reset")
        wait_until(lambda: self.nodes()["h3"]["ports"][0]["gbps"] < 100, "the slower link")

    def test_ibstat_and_ibaddr(self):
        self.says("h3", "ibstat", wanted=["State: Active", "Rate: 100", f"Base lid: {self.lid('h3')}\n"])
        self.says("h3", "ibaddr", wanted=[f"LID start {int(self.lid('h3')):#x}"])

    def test_ibdiagnet(self):
        if frame.version("ibutils") is None:
            raise unittest.SkipTest("not installed: ibutils")
        output = self.says("h0", "ibdiagnet", "-o", self.folder, wanted=["No bad Guids were found", "No bad link were found"])
        stages = re.findall(r"(?m)^    (.*\S) +(\d+) +\d+ +$", output)
        self.assertEqual(6, len(stages), output)
        self.assertEqual({"0"}, {errors for _, errors in stages}, output)

    def test_srp_daemon(self):
        if frame.version("srptools") is None:
            raise unittest.SkipTest("not installed: srptools")
        self.says("h0", "srp_daemon", "-o", "-c")

    def test_ibacm(self):
        """The service finds a host by the name that is its own there, over the group of all such services, and asks
        subnet administration for the path, which `ib_acme` compares with what it gets there itself."""
        if frame.version("ibacm") is None:
            raise unittest.SkipTest("not installed: ibacm")
        for host in ("h0", "h3"):
            options = {"log_file": self.folder / f"ibacm-{host}.log", "lock_file": self.folder / f"ibacm-{host}.pid",
                       "server_mode": "open", "server_port": 6125, "addr_prot": "acm", "route_prot": "sa",
                       "provider": "ibacmp default", "log_level": 2}
            (self.folder / f"options-{host}").write_text("".join(f"{key} {value}\n" for key, value in options.items()))
            (self.folder / f"addresses-{host}").write_text(f"{host} tulle0 1 default\n")
            service = self.start(*self.on_host(host, "ibacm", "-P", "-O", self.folder / f"options-{host}",
                                               "-A", self.folder / f"addresses-{host}"), env=self.environment)
            log = options["log_file"]
            wait_until(lambda: not service.running or log.exists() and "listen active" in log.read_text(), "ibacm")
        # The service forgets questions that come before it has joined the group.
        found = []

        def resolve():
            found[:] = [self.run_program(*self.on_host("h0", "ib_acme", "-S", "127.0.0.1", "-f", "n", "-s", "h0", "-d",
                                                       "h3", "-v"), env=self.environment, expect=None, limit=30)]
            return found[0].wait() == 0
        wait_until(resolve, "a path")
        self.assertIn("SA verification: success", found[0].stdout)
        nodes = self.nodes()
        for name, host in (("slid", "h0"), ("dlid", "h3")):
            self.assertRegex(found[0].stdout, rf"{name}: {nodes[host]['lids'][0]}\n")

    def test_pingpong(self):
        for kind in ("rc", "uc", "ud"):
            self.pair([f"ibv_{kind}_pingpong", "-n", "100"], host="h0", options=("--host", "h3"),
                      server_options=("--host", "h0"), env=self.environment)

    def test_perftest(self):
        for program in ("ib_write_bw", "ib_read_lat", "ib_send_bw", "ib_atomic_bw"):
            self.pair([program, "-F", "-n", "100"], host="h0", options=("--host", "h3"), server_options=("--host", "h0"),
                      env=self.environment)

    def test_libfabric(self):
        if frame.version("libfabric-bin") is None:
            raise unittest.SkipTest("not installed: libfabric-bin")
        # The provider's server listens at the address of `localhost`, whatever address it is given (see libfabric.py).
        (self.folder / "hosts").write_text("10.0.0.1 localhost\n10.0.0.1 h0\n10.0.0.4 h3\n")
        named = ["sh", "-c", f'mount --bind {self.folder}/hosts /etc/hosts && exec "$@"', "sh"]
        for options in (["-p", "verbs", "-e", "msg"], ["-p", "verbs;ofi_rxm", "-e", "rdm"], ["-p", "verbs", "-e", "dgram"]):
            argv = ["fi_pingpong", "-c", *options]
            server = self.start_server(["unshare", "--mount", *named, *argv], 47592, options=("--host", "h0"),
                                       env=self.environment)
            client = self.run_program(*self.on_host("h3", *argv, "h0"), env=self.environment, limit=60)
            self.assertRegex(client.stdout, r"(?m)^4k +10 +=10", client.describe())
            self.assertEqual(0, server.wait(30), server.describe())

    def test_rping(self):
        _, client = self.both(["rping", "-C", "10", "-v"], self.listeners, ("-s",), ("-c", "-a", "h0"))
        self.assertIn("rdma-ping-9: ", client.stdout)

    def test_mckey(self):
        argv = ["mckey", "-m", "239.1.1.1", "-C", "20"]
        receiver = self.start(*self.on_host("h0", "stdbuf", "-oL", *argv), env=self.environment)
        wait_until(lambda: "joined" in receiver.stdout or not receiver.running, "the receiver")
        self.run_program(*self.on_host("h3", *argv, "-s"), env=self.environment, limit=30)
        self.assertEqual(0, receiver.wait(30), receiver.describe())

    def test_cmtime(self):
        server, client = self.both(["cmtime"], self.listeners, (), ("-s", "h0", "-c", "20"))
        self.assertRegex(client.stdout, r"connect +: +[\d.]+", client.describe())
        server.end()

    def test_ping(self):
        self.run_program(*self.on_host("h0", "true"), env=self.environment)
        wait_until(lambda: all(each.get("running") for host in ("h0", "h3")
                               for each in self.nodes()[host].get("interfaces", [{}])), "the interfaces")
        self.says("h0", "ping", "-c", "3", "-i", "0.2", "h3-ib0", wanted=["3 received"])


class OpenSm(Programs, Tools):
    def setUp(self):
        super().setUp()
        self.bring_up()


class OwnManager(Programs, Tools):
    own_manager = True
    key = ("-y", "0x1b2c")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "key"
        path.write_text(self.key[1])
        path.chmod(0o600)
        self.options = ("--manager-key", path)
        super().setUp()
        wait_until(lambda: self.states() == {"active"}, "active ports", pause=0.05)
