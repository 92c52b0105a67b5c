"""Tests programs that ask for ports and their counters: infiniband-diags, and libibumad's calls."""

import pathlib
import re

from harness import ClientTest, wait_until

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"
TOOLS = "/usr/sbin/"


class ToolTest(ClientTest):
    def tool(self, name, *arguments, expect=0):
        return self.run_program(*self.over_tulle([TOOLS + name, *arguments]), expect=expect, limit=30)

    def fields(self, *arguments):
        """Returns perfquery's "name:....value" lines by name."""
        found = re.findall(r"(?m)^(\w+):\.*(\S+)$", self.tool("perfquery", *arguments).stdout)
        return {name: int(value, 0) for name, value in found}

    def ping_pong(self):
        """Sends 1000 messages of 4 packets of 1024 bytes each way, with their acknowledgements. None takes the
        direct path."""
        command = ["ibv_rc_pingpong", "-g", "0", "-n", "1000", "-s", "4096", "-m", "1024"]
        self.pair(command, options=["--no-direct"], port=18620)


class Ports(ToolTest):
    def test_ibstat(self):
        output = self.tool("ibstat").stdout
        for line in ("CA 'tulle0'", "Number of ports: 1", "State: Active", "Physical state: LinkUp", "Base lid: 0",
                     "Link layer: Ethernet"):
            self.assertIn(line, output)
        self.assertEqual("tulle0", self.tool("ibstat", "-l").stdout.strip())
        self.assertRegex(self.tool("ibstat", "-p").stdout.strip(), "^0x[0-9a-f]{16}$")

    def test_ibstat_unknown(self):
        process = self.tool("ibstat", "nothing0", expect=None)
        self.assertNotEqual(0, process.wait())
        self.assertIn("nothing0", process.stderr)

    def test_ibstatus(self):
        output = self.tool("ibstatus").stdout
        self.assertIn("Infiniband device 'tulle0' port 1 status:", output)
        self.assertIn("4: ACTIVE", output)

    def test_ibaddr(self):
        self.assertIn("::ffff:127.0.0.1 LID start 0x0 end 0x0", self.tool("ibaddr").stdout)

    def test_self(self):
        self.assertRegex(self.tool("smpquery", "-D", "nodeinfo", "0").stdout, r"NodeType:\.+Channel Adapter")
        self.assertRegex(self.tool("smpquery", "-D", "nodedesc", "0").stdout, r"tulle0")
        self.assertRegex(self.tool("smpquery", "-D", "portinfo", "0").stdout, r"LinkState:\.+Active")


class Counters(ToolTest):
    def test_count_what_programs_did(self):
        self.assertEqual(0, self.fields()["PortXmitPkts"])
        self.ping_pong()
        found = self.fields("-x")
        # There are 8000 packets of data and 2000 acknowledgements, and perhaps some that were sent twice.
        self.assertGreaterEqual(found["PortXmitPkts"], 10_000)
        self.assertLess(found["PortXmitPkts"], 12_000)
        self.assertGreaterEqual(found["PortXmitData"], (8_000 * (12 + 1024 + 4) + 2_000 * (12 + 4 + 4)) // 4)
        counted = self.status()["agent"]["counters"]
        self.assertEqual(counted["packets_sent"], found["PortXmitPkts"])
        self.assertEqual(counted["packets_received"], found["PortRcvPkts"])
        self.assertEqual(counted["bytes_sent"] // 4, found["PortXmitData"])
        short = self.fields()
        for name in ("PortXmitPkts", "PortRcvPkts", "PortXmitData", "PortRcvData"):
            self.assertEqual(found[name], short[name], name)
        self.assertEqual(0, short["PortRcvErrors"])

    def test_survive_who_is_killed(self):
        """The counts of a process stay, however it ended."""
        command = ["ibv_rc_pingpong", "-g", "0", "-n", "100000000", "-s", "4096", "-p", "18621"]
        server = self.start_server(command, 18621, options=["--no-direct"])
        client = self.start(*self.over_tulle([*command, "127.0.0.1"], ["--no-direct"]))
        wait_until(lambda: self.fields()["PortXmitPkts"] > 1_000, "packets", pause=0.1)
        seen = self.fields()["PortXmitPkts"]
        server.end()
        client.end()
        wait_until(lambda: not self.status()["processes"], "the agent to notice")
        self.assertGreaterEqual(self.fields()["PortXmitPkts"], seen)

    def test_errors(self):
        """Damaged packets count as the port's receive errors.

        Either side may fail at the end, since its peer leaves without asking whether its last answer has come.
        """
        self.pair(["ibv_rc_pingpong", "-g", "0", "-n", "300", "-s", "4096"],
                  options=["--no-direct", "--faults", "corrupt=0.01"], port=18622, expect=None)
        found = self.fields()
        self.assertGreater(found["PortRcvErrors"], 0)
        counted = self.status()["agent"]["counters"]
        kinds = ("received_truncated", "received_unknown_opcode", "received_bad_version", "received_bad_icrc", "unsealed_drops")
        self.assertEqual(sum(counted[kind] for kind in kinds), found["PortRcvErrors"])


class Files(ToolTest):
    """Tests a kernel's files of counters, which show their values of the moment, however they are reached."""

    FOLDER = "/sys/class/infiniband/tulle0/ports/1"

    def read(self, command):
        return self.run_program(*self.over_tulle(["sh", "-c", command])).stdout.split()

    def test_are_live(self):
        read = f"cat {self.FOLDER}/counters/port_xmit_packets; cd {self.FOLDER}/counters; cat port_xmit_packets"
        self.assertEqual(["0", "0"], self.read(read))
        self.ping_pong()
        counted = self.fields("-x")
        self.assertGreaterEqual(counted["PortXmitPkts"], 10_000)
        self.assertEqual([str(counted["PortXmitPkts"])] * 2, self.read(read))
        for file, field in (("port_rcv_packets", "PortRcvPkts"), ("port_xmit_data", "PortXmitData"),
                            ("port_rcv_data", "PortRcvData")):
            self.assertEqual([str(counted[field])], self.read(f"cat {self.FOLDER}/counters/{file}"))

    def test_all_are_numbers(self):
        lines = self.read(f"grep -r . {self.FOLDER}/counters {self.FOLDER}/hw_counters")
        self.assertGreater(len(lines), 20)
        for line in lines:
            self.assertRegex(line, r"/[a-zA-Z0-9_]+:\d+$")

    def test_folders_list_attributes_alone(self):
        """A file is made anew each time it is read. Others see it under its name alone."""
        folder = f"{self.FOLDER}/hw_counters"
        read = f"for i in $(seq 40); do cat {folder}/* > /dev/null; done"
        names = self.read(f"{read} & {read} & for i in $(seq 400); do ls -A {folder}; done; wait")
        self.assertGreater(len(names), 400 * 5)
        self.assertEqual([], sorted({name for name in names if not name.replace("_", "").isalnum()}))

    def test_python(self):
        code = f"print(open('{self.FOLDER}/counters/port_xmit_data').read())"
        self.assertEqual(["0"], self.run_program(*self.over_tulle([PYTHON, "-c", code])).stdout.split())


class Refusals(ToolTest):
    """A RoCE port has no LIDs and no subnet manager. The tools say so themselves, and end."""

    def refused(self, name, *arguments):
        process = self.tool(name, *arguments, expect=None)
        self.assertGreater(process.wait(), 0, process.describe())
        said = (process.stdout + process.stderr).strip()
        self.assertIn(len(said.splitlines()), (1, 2, 3), process.describe())

    def test_them(self):
        for command in (["perfquery", "5", "1"], ["perfquery", "-R"], ["perfquery", "-C", "nothing0"],
                        ["perfquery", "-P", "2"], ["perfquery", "--xmtsl"], ["smpquery", "nodeinfo", "5"],
                        ["smpquery", "-D", "pkeys", "0"], ["smpquery", "-D", "nodeinfo", "0,1"], ["sminfo"],
                        ["saquery"], ["ibtracert", "0", "0"]):
            with self.subTest(command=" ".join(command)):
                self.refused(*command)


class Calls(ClientTest):
    def test_calls(self):
        self.run_program(*self.over_tulle([PYTHON, HERE / "umad_calls.py"]))
