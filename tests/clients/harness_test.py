"""Tests the harness itself: whom it signals when a child has ended."""

import pathlib
import subprocess

from harness import ClientTest, Process, wait_until

LAST_PID = pathlib.Path("/proc/sys/kernel/ns_last_pid")


class Processes(ClientTest):
    def start_under(self, number):
        """Starts a process under a number that is free."""
        for _ in range(100):
            try:
                LAST_PID.write_text(str(number - 1))
            except OSError as error:
                self.skipTest(f"nobody may choose process numbers here: {error}")
            process = subprocess.Popen(["sleep", "60"], start_new_session=True)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            if process.pid == number:
                return process
        self.skipTest("other programs took the number each time")

    def test_the_number_of_a_child_that_ended_may_be_anothers(self):
        child = Process(["true"])
        child.popen.wait()
        other = self.start_under(child.pid)
        child.close()
        with self.assertRaises(subprocess.TimeoutExpired, msg="the other process was signalled"):
            other.wait(0.2)

    def test_what_a_child_started_ends_after_it(self):
        child = Process(["sh", "-c", "sleep 60 & echo $!"])
        child.popen.wait()
        left = pathlib.Path("/proc", child.stdout.strip(), "stat")
        self.assertTrue(left.exists())
        child.close()

        def has_ended():
            try:
                return left.read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                return True
        wait_until(has_ended, "the end of what the child started")
