"""Tests threads that are cancelled in calls of the libraries (pthread_cancel), after which the program continues."""

from harness import BUILD, ClientTest

CANCELLED = BUILD / "bin" / "cancelled"


class Cancelled(ClientTest):
    def check(self, what, ways):
        for way in ways:
            with self.subTest(way=way):
                process = self.run_program(*self.over_tulle([CANCELLED, what], way), limit=120)
                self.assertIn("threads were cancelled", process.stdout, process.describe())

    def test_work(self):
        self.check("verbs", ((), ("--no-direct", "--no-offload"), ("--strict",)))

    def test_connections(self):
        self.check("connections", ((),))
