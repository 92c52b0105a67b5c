"""Runs ./dev soak for seconds: many short lives, many connections, and clocks that stand at ten years."""

import json
import os
import pathlib
import sys
import tempfile

from harness import TULLE, ClientTest, wait_until

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "soak"))

import soak  # noqa: E402

LIVES, CONNECTIONS = 60, 400


class Soak(ClientTest):
    def test_lives_and_connections_leave_nothing_behind(self):
        result = soak.soak(LIVES, CONNECTIONS)
        self.assertTrue(result["one_agent"])
        killed = result["killed_at_first"] + result["lives"]["killed"]
        self.assertGreater(killed, 0, "no life was killed")
        self.assertEqual((0, 0), (result["server"]["failed"], result["server"]["open"]))
        # Those killed may have been answered or not. The connections come once more before the lives, and one more
        # program comes before the usage is measured, after each part of the lives and at the end.
        whole = len(soak.WARMING_OPTIONS) * soak.WARMING_LIVES + LIVES - killed + 2 * CONNECTIONS + soak.PARTS + 1
        self.assertGreaterEqual(result["server"]["answered"], whole)
        self.assertLessEqual(result["server"]["answered"], whole + killed)
        for name, grown in result["growth_overall"].items():
            self.assertLessEqual(grown["descriptors"], 0, name)
            if "TULLE_SANITIZER" not in os.environ:  # a sanitizer keeps memory that has been freed
                self.assertLess(grown["memory_kib"], 1024, name)

    def test_clocks_that_stand_at_ten_years(self):
        if not soak.can_move_clocks():
            self.skipTest("this machine does not let anybody make time namespaces")
        result = soak.uptime()
        self.assertGreaterEqual(result["clock_s"], soak.UPTIME_S)
        for each in result["checks"]:
            self.assertEqual("pass", each["outcome"], each)

    def test_connections_outlive_what_a_count_of_picoseconds_can_tell(self):
        for options in ([], ["--no-direct"]):
            life = soak.long_life(options, seconds_before=1, seconds_after=0)
            self.assertEqual("", life["fault"], life)
            self.assertGreater(life["after"], 0)


class Fabric(ClientTest):
    def test_it_works_on_however_long_it_has_run(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        ahead = folder / "ahead"
        ahead.write_bytes(bytes(4096))
        env = {"LD_PRELOAD": str(soak.CLOCK), "SOAK_CLOCK": str(ahead), "XDG_RUNTIME_DIR": str(folder)}
        fabric = self.start(TULLE, "fabric", "up", "--foreground", "--shared-network", "--name", "old", env=env)
        wait_until(lambda: list(folder.glob("tulle/fabric_old*/socket")), "the fabric", 10)
        old = {"XDG_RUNTIME_DIR": str(folder)}

        def states():
            shown = json.loads(self.run_program(TULLE, "fabric", "status", "--name", "old", "--json", env=old).stdout)
            return [port["state"] for node in shown["hosts"] + shown["switches"] for port in node["ports"]]

        wait_until(lambda: set(states()) == {"active"}, "the subnet", 10)
        # The clock passes 50 days, at which its zero moves, and 106, which a time of 64 bits holds. Then, years go by.
        for days in (51, 107, 160, 800):
            with ahead.open("r+b") as file:
                file.write(int(days * 86400e9).to_bytes(8, "little"))
            self.assertEqual({"active"}, set(states()), days)
            self.run_program(TULLE, "fabric", "cut", "--name", "old", "h0", "switch4", env=old)
            wait_until(lambda: "down" in states(), "the cable to be cut", 10)
            self.run_program(TULLE, "fabric", "join", "--name", "old", "h0", "switch4", env=old)
            wait_until(lambda: set(states()) == {"active"}, "the cable to be joined", 10)
            self.pair(["ibv_rc_pingpong", "-n", "100"], options=("--fabric", "old", "--host", "h2"), env=old,
                      server_options=("--fabric", "old", "--host", "h0"))


class Figures(ClientTest):
    def test_shares(self):
        self.assertEqual([1, 1, 1], soak.shares(3))
        self.assertEqual(1003, sum(soak.shares(1003)))
        self.assertEqual(soak.PARTS, len(soak.shares(1003)))

    def test_latency(self):
        self.assertEqual({"count": 100, "p50_us": 50, "p99_us": 99}, soak.latency_of(range(99, -1, -1)))

    def test_what_must_not_happen_is_told(self):
        good = {"server": {"failed": 0, "open": 0}, "one_agent": True,
                "uptime": {"checks": [{"check": "a", "outcome": "pass"}]},
                "own_life": {"runs": [{"options": "", "fault": ""}]}}
        self.assertEqual([], soak.faults_of(good))
        for part in ({"one_agent": False}, {"server": {"failed": 1, "open": 0}}, {"server": {"failed": 0, "open": 1}},
                     {"uptime": {"checks": [{"check": "a", "outcome": "fail"}]}},
                     {"own_life": {"runs": [{"options": "", "fault": "it hangs"}]}}):
            self.assertEqual(1, len(soak.faults_of({**good, **part})), part)
