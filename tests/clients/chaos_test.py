"""Interrupts programs over Tulle at random for some seconds (tests/chaos), and tests that the driver notices faults and
leaves nothing behind. ./dev chaos runs longer."""

import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time

from harness import BUILD, ROOT, ClientTest, wait_until

sys.path.append(str(ROOT / "tests" / "chaos"))
from page import COMMANDS, FIELDS, Page  # noqa: E402

DRIVER = ROOT / "tests" / "chaos" / "chaos.py"
PROGRAM = BUILD / "bin" / "chaos"
SERVER_MEMORY = 0x200000000000  # as in tests/clients/chaos/memory.c
SKIPPED = 77
SEED = 7


class Briefly(ClientTest):
    def driver(self, *options):
        return self.start("/usr/bin/python3", DRIVER, "--seed", SEED, "--longest-stop", "0.5", *options,
                          env={"TULLE_BUILD": str(BUILD)})

    def namespace_of(self, driver):
        """Returns the process namespace that the driver made, as soon as there is one."""
        ours = os.stat("/proc/self/ns/pid").st_ino
        for child in pathlib.Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split():
            try:
                made = os.stat(f"/proc/{child}/ns/pid_for_children").st_ino
            except OSError:
                continue
            if made != ours:
                return made
        return None

    def processes_of(self, namespace):
        found = []
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and os.stat(f"/proc/{entry}/ns/pid").st_ino == namespace:
                    found.append(pathlib.Path(f"/proc/{entry}/cmdline").read_text())
            except OSError:
                pass  # the process is gone, or may not be looked at
        return found

    def test_interruptions(self):
        driver = self.driver("--minutes", "0.3")
        status = driver.wait(180)
        if status == SKIPPED:
            self.skipTest(driver.stderr)
        self.assertEqual(0, status, driver.describe())
        result = json.loads(driver.stdout[:driver.stdout.rindex("}") + 1])
        self.assertGreater(result["interruptions"], 5)
        self.assertGreater(result["rounds"], 10)

    def check_end(self, number):
        driver = self.driver("--minutes", "5", "--interruptions", "1000")
        # The driver first tries whether it may make namespaces, so that the first one need not be the one that counts.
        works = lambda: any("client" in line for line in self.processes_of(self.namespace_of(driver)))  # noqa: E731
        wait_until(lambda: not driver.running or works(), "the programs")
        if not driver.running and driver.wait() == SKIPPED:
            self.skipTest(driver.stderr)
        namespace = self.namespace_of(driver)
        self.assertIsNotNone(namespace, driver.describe())
        os.kill(driver.pid, number)
        driver.wait(10)
        wait_until(lambda: not self.processes_of(namespace), "the end of all processes", limit=10)

    def test_a_terminated_driver_leaves_nothing(self):
        self.check_end(signal.SIGTERM)

    def test_a_killed_driver_leaves_nothing(self):
        self.check_end(signal.SIGKILL)


class Faults(ClientTest):
    """Bytes that change without an operation are counted."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def program(self, role):
        page = Page(self.folder / f"{role}.page")
        argv = [PROGRAM, role, self.folder / "side", page.path, "0", "1"]
        if not role.startswith("watch"):
            argv = self.over_tulle(argv)
        return self.start(*argv), page

    def scribble(self, process):
        with open(f"/proc/{process.pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(SERVER_MEMORY + 1)  # in front of the first slot's message
            memory.write(b"\x55\xAA")

    def test_of_a_watching_process(self):
        process, page = self.program("watch-server")
        wait_until(lambda: page["rounds"] > 3, "the watching to begin")
        self.assertEqual(0, page["wrong_bytes"], process.describe())
        self.scribble(process)
        wait_until(lambda: page["wrong_bytes"], "the process to notice")

    def test_of_a_working_pair(self):
        server, page = self.program("server")
        client, other = self.program("client")
        wait_until(lambda: page["rounds"] > 3 and other["rounds"] > 3, "rounds")
        self.assertEqual(0, page["wrong_bytes"], server.describe())
        deadline = time.monotonic() + 20
        while not page["wrong_bytes"] and time.monotonic() < deadline:
            self.scribble(server)
            time.sleep(0.001)
        self.assertGreater(page["wrong_bytes"], 0, server.describe())
        wait_until(lambda: "WRONG: target 0" in server.stderr, "its message")
        self.assertEqual(0, other["wrong_bytes"], client.describe())


class Lists(ClientTest):
    def test_of_the_page(self):
        text = (ROOT / "tests" / "clients" / "chaos" / "page.h").read_text()
        self.assertEqual(FIELDS, re.findall(r"\bFIELD\((\w+)\)", text))
        self.assertEqual(COMMANDS, re.findall(r"\bCOMMAND\((\w+)\)", text))
