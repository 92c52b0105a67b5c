"""Tests what users and machines get wrong: each mistake leads to one clear line and an exit status, no hang, no
crash."""

import pathlib
import signal
import time

from harness import INTEGRITY, TULLE, ClientTest, wait_until

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"
PORT = 18600


class CommandLine(ClientTest):
    def refused(self, *argv, net=None):
        """Runs a command that must exit on its own, not with 0 and not by a signal, and say why in one line. Returns
        that line."""
        process = self.run_program(*argv, net=net, expect=None, limit=30)
        self.assertGreater(process.wait(), 0, process.describe())
        self.assertEqual(1, len(process.stderr.strip().splitlines()), process.describe())
        return process.stderr.strip()

    def test_nothing(self):
        process = self.run_program(TULLE, expect=None, limit=20)
        self.assertGreater(process.wait(), 0)
        self.assertIn("--help", process.stdout + process.stderr)

    def test_help(self):
        for argv in (["--help"], ["run", "--help"], ["devices", "--help"], ["status", "--help"], ["capture", "--help"]):
            output = self.run_program(TULLE, *argv, limit=20).stdout
            self.assertGreater(len(output.splitlines()), 3, argv)

    def test_unknown_command(self):
        self.assertIn("fly", self.refused(TULLE, "fly"))

    def test_run_without_command(self):
        self.refused(TULLE, "run")
        self.refused(TULLE, "run", "--")

    def test_unknown_option(self):
        self.assertIn("--sideways", self.refused(TULLE, "run", "--sideways", "--", "true"))

    def test_empty_values(self):
        """A shell's variable that is not set must not mean that an option was not given."""
        for command, names, program in (
                ("run", "device interface host faults secure agent like gid-order recovery roce busy-poll", ["--", "true"]),
                ("agent", "secure agent idle-exit", []), ("devices", "agent device interface roce", []),
                ("status", "agent", []), ("capture", "output duration fabric agent buffer", []),
                ("fabric up", "name manager-key machine secure", []), ("fabric status", "name", []),
                ("sim", "output variant set topology capture timings", ["incast"]), ("bench", "meet chunk", [])):
            for name in names.split():
                for given in (["--" + name, ""], [f"--{name}="]):
                    self.assertIn("--" + name, self.refused(TULLE, *command.split(), *given, *program))

    def test_a_host_without_a_fabric(self):
        process = self.start(TULLE, "run", "--", "true", env={"TULLE_HOST": "h0"})
        self.assertEqual(2, process.wait(20), process.describe())
        self.assertRegex(process.stderr, r"\Atulle: TULLE_HOST=h0 needs TULLE_FABRIC[^\n]+\n\Z")

    def test_missing_program(self):
        self.assertIn("no-such-program", self.refused(TULLE, "run", "--", "no-such-program"))

    def test_exit_status_is_the_program_s(self):
        self.run_program(TULLE, "run", "--", "sh", "-c", "exit 7", expect=7)

    def test_signals_reach_the_program(self):
        process = self.start(TULLE, "run", "--", "sleep", "60")
        time.sleep(0.5)
        process.popen.send_signal(signal.SIGTERM)
        self.assertIn(process.wait(10), (-signal.SIGTERM, 128 + signal.SIGTERM))

    def test_unknown_interface(self):
        process = self.run_program(*self.over_tulle(["ibv_devinfo"], ["--interface", "nosuch0"]), expect=None, limit=30)
        self.assertGreater(process.wait(), 0, process.describe())
        about = [line for line in process.stderr.splitlines() if "nosuch0" in line]
        self.assertEqual(1, len(about), process.describe())

    def test_status_without_agent(self):
        """Asking for the status does not start a host agent."""
        process = self.run_program(TULLE, "status", expect=None, limit=20)
        self.assertGreaterEqual(process.wait(), 0)
        self.assertEqual([], self.net.pids())


class Machine(ClientTest):
    def devinfo_refused(self, net=None):
        process = self.run_program(*self.over_tulle(["ibv_devinfo"]), net=net, expect=None, limit=45)
        self.assertGreater(process.wait(), 0, process.describe())
        about = [line for line in process.stderr.splitlines() if line.startswith("tulle: ")]
        self.assertEqual(1, len(about), process.describe())
        return about[0]

    def python(self, code):
        process = self.start(PYTHON, "-u", "-c", "import socket, time\n" + code + "\nprint('ready')\ntime.sleep(600)")
        wait_until(lambda: "ready" in process.stdout or not process.running, "the other program")
        self.assertTrue(process.running, process.describe())
        return process

    def test_busy_port(self):
        foreign = self.python("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('0.0.0.0', 4791))")
        self.assertIn("4791", self.devinfo_refused())
        foreign.end()
        self.run_program(*self.over_tulle(["ibv_devinfo"]))

    def test_no_usable_interface(self):
        self.net.run("ip", "link", "set", "lo", "down")
        self.assertIn("interface", self.devinfo_refused())

    def test_silent_stranger_at_the_agents_address(self):
        stranger = self.python("s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind('\\0tulle'); s.listen()")
        self.devinfo_refused()
        stranger.end()
        self.run_program(*self.over_tulle(["ibv_devinfo"]))

    def test_rude_stranger_at_the_agents_address(self):
        stranger = self.python("""
import threading
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind('\\0tulle')
s.listen()
def answer():
    n = 0
    while True:
        c, _ = s.accept()
        n += 1
        c.send([b'', b'\\0', b'hello', bytes(64), b'\\xff' * 5000][n % 5] or b'x')
        c.close()
threading.Thread(target=answer, daemon=True).start()""")
        for _ in range(5):
            self.devinfo_refused()
        stranger.end()
        self.run_program(*self.over_tulle(["ibv_devinfo"]))

    def test_garbage_to_the_agent(self):
        """A host agent outlives what strangers say to it."""
        self.run_program(*self.over_tulle(["ibv_devinfo"]))
        agent = self.status()["agent"]["pid"]
        self.run_program(PYTHON, "-c", """
import random, socket, struct
chance = random.Random(4)
for i in range(300):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect('\\0tulle')
    body = chance.randbytes(chance.randrange(1, 400))
    try:
        s.send(body if i % 2 else struct.pack('<IHH', 0x4C5554, 1, i % 20) + body)
    except OSError:
        pass
    s.close()
""")
        self.assertEqual(agent, self.status()["agent"]["pid"])
        self.pair(["ibv_rc_pingpong", "-g", "0", "-n", "10"])


class ForgedDatagrams(ClientTest):
    def forge(self, rounds, qps):
        return self.run_program(PYTHON, HERE / "forge.py", str(rounds), *map(str, qps), limit=60)

    def test_counted_and_dropped(self):
        argv = [INTEGRITY, "-M", "until-error", "-p", str(PORT)]
        server = self.start_server(argv, PORT)
        client = self.start(*self.over_tulle([*argv, "127.0.0.1"]))
        wait_until(lambda: "1000 operations" in client.stdout, "operations")
        before = {p["pid"]: p for p in self.status()["processes"]}
        self.assertEqual({server.pid, client.pid}, set(before))
        # These are the first queue pairs of each process, so that some datagrams hit living ones.
        qps = [before[pid]["first_qp"] + i for pid in before for i in range(4)]
        self.forge(200, qps)

        def counted(name):
            after = {p["pid"]: p for p in self.status()["processes"]}
            return sum(after[pid]["counters"][name] - before[pid]["counters"][name] for pid in before)

        for name, least in [("received_truncated", 200), ("received_bad_icrc", 200), ("received_unknown_opcode", 100),
                            ("received_bad_version", 100)]:
            wait_until(lambda name=name, least=least: counted(name) >= least, f"{least} {name}", limit=20)
        self.assertTrue(server.running and client.running, f"{server.describe()}\n{client.describe()}")
        server.signal(signal.SIGKILL)
        self.assertEqual(0, client.wait(30), client.describe())

    def test_integrity_meanwhile(self):
        argv = [INTEGRITY, "-p", str(PORT)]
        server = self.start_server(argv, PORT)
        client = self.start(*self.over_tulle([*argv, "127.0.0.1"]))
        for _ in range(20):
            if not client.running:
                break
            processes = self.status()["processes"]
            qps = [p["first_qp"] + i for p in processes for i in range(8)]
            if qps:
                self.forge(20, qps)
        self.finish(server, client, limit=180)
