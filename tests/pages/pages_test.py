#!/usr/bin/env python3
"""Tests how the blocks of a page are read, how outputs are compared, and that each fault is one line with its place."""

import contextlib
import io
import pathlib
import re
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import blocks  # noqa: E402
import pages  # noqa: E402
from compare import difference  # noqa: E402


def page(text):
    """A page that is written as a block of a test loses that block's indentation."""
    return re.sub(r"(?m)^ {12}", "", text).rstrip(" ").lstrip("\n") if text.startswith("\n") else text


def commands(text):
    return [command for block in blocks.read(page(text)) for command in block.commands]


class Reading(unittest.TestCase):
    def test_lines_that_begin_with_commands(self):
        found = commands("""
            Text.

                ./dev build          # into build/
                # a comment
                build/bin/tulle compare --workload dragonfly.toml \\
                    --set routing.choices=2

            More text.
            """)
        self.assertEqual([(command.line, command.plain) for command in found],
                         [(3, "./dev build"), (5, "build/bin/tulle compare --workload dragonfly.toml --set routing.choices=2")])

    def test_prompts_and_outputs(self):
        first, second = commands("""
                $ tulle fabric up
                The fabric is up.

                alpha$ tulle fabric down &
            """)
        self.assertEqual((first.plain, first.output), ("tulle fabric up", [(2, "The fabric is up."), (3, "")]))
        self.assertEqual((second.machine, second.in_background), ("alpha", True))

    def test_fenced_commands(self):
        (command,) = commands("""
            ```sh
            $ tulle devices
            ```
            """)
        self.assertEqual((command.line, command.plain), (2, "tulle devices"))

    def test_toml_and_yaml_are_known(self):
        self.assertEqual(blocks.read(page("""
                [topology]
                kind = "leaf-spine"

            ```yaml
            jobs: {}
            ```
            """)), [])

    def test_lists_are_no_blocks(self):
        self.assertEqual(blocks.read("- a long\n    item\n"), [])

    def test_files(self):
        shown, copied = blocks.read(page("""
            <!-- test: file my.toml -->

                [topology]
                hosts = 2

            <!-- test: file other.toml=scenarios/demo.toml -->
            """))
        self.assertEqual((shown.file, shown.text), ("my.toml", "[topology]\nhosts = 2\n"))
        self.assertEqual((copied.file, copied.source), ("other.toml", "scenarios/demo.toml"))

    def test_an_output_by_itself(self):
        (command,) = commands("""
            <!-- test: output of tulle sim incast -->

                variant  flows  end us
            """)
        self.assertEqual((command.plain, command.output), ("tulle sim incast", [(3, "variant  flows  end us")]))

    def test_hidden_commands_are_run_where_they_stand(self):
        self.assertEqual([command.plain for command in commands("""
            <!-- test: run tulle fabric up -->

                tulle fabric status
            """)], ["tulle fabric up", "tulle fabric status"])

    def test_reasons(self):
        first, second, third = commands("""
            <!-- test: skip ./dev soak: it takes hours -->
            <!-- test: long tulle compare --workload allreduce:1MiB: it takes minutes -->
            <!-- test: ctrl-c tulle capture -->

                ./dev soak
                tulle compare --workload allreduce:1MiB
                tulle capture
            """)
        self.assertEqual((first.skip, first.long), ("it takes hours", ""))
        self.assertEqual((second.skip, second.long), ("", "it takes minutes"))
        self.assertTrue(third.interrupted)

    def test_terminals(self):
        (block,) = blocks.read(page("""
            <!-- test: terminals beta alpha -->

                tulle run -- ib_write_bw
                tulle run -- ib_write_bw 192.0.2.2
            """))
        self.assertTrue(block.terminals)
        self.assertEqual([command.machine for command in block.commands], ["beta", "alpha"])

    def check_wrong(self, text, line, *words):
        with self.assertRaises(blocks.Wrong) as caught:
            blocks.read(page(text))
        self.assertEqual(caught.exception.line, line)
        for word in words:
            self.assertIn(word, caught.exception.message)

    def test_an_unknown_block(self):
        self.check_wrong("Text.\n\n    handle(now)    a datagram came\n", 3, "neither commands nor TOML", "handle(now)")
        self.check_wrong("    ./dev build\n    unknown-program\n", 1, "./dev build")
        self.check_wrong("```\nsomething\n```\n", 2, "something")
        self.assertEqual(blocks.read("<!-- test: text -->\n\n    handle(now)\n"), [])

    def test_wrong_directives(self):
        self.check_wrong("<!-- test: skip this -->\n\n    ./dev build\n", 1, 'unknown directive "skip this"')
        self.check_wrong("<!-- test: skip ./dev test: long -->\n\n    ./dev build\n", 1, "./dev test")
        self.check_wrong("<!-- test: terminals alpha -->\n\n    ./dev build\n    ./dev test\n", 1, "1 machines for 2")
        self.check_wrong("<!-- test skip: long -->\n", 1, "not of the form")
        self.check_wrong("<!-- test: skip: long -->\n\nText.\n", 1, "no block follows")
        self.check_wrong("<!-- test: skip: long -->\n", 1, "no block follows")
        self.check_wrong("<!-- test: skip: long -->\n\n    a = 1\n", 1, "is for commands")


class Comparing(unittest.TestCase):
    TABLE = """
        Incast
        variant      flows   end us  99 %    goodput  pauses
        infiniband   32/32   2581.9   5.0  99.1 Gbps       0
        roce         32/32   2615.8   6.0  97.9 Gbps     475
        lossy        31/32        -   7.0  1.88 Gbps       0
        """

    def check(self, shown, printed, line=None, *words):
        found = difference(list(enumerate(page(shown).splitlines(), start=10)), page(printed))
        if line is None:
            self.assertIsNone(found)
            return
        self.assertIsNotNone(found)
        self.assertEqual(found[0], line)
        for word in words:
            self.assertIn(word, found[1])

    def test_live_figures_may_differ(self):
        self.check("bandwidth   7.91 GB/s   one stream", "bandwidth  850 MB/s  one stream\n\n")
        self.check("port:   1\n    state: PORT_ACTIVE (4)", "port: 2\nstate: PORT_ACTIVE (4)")

    def test_words_may_not(self):
        self.check("state: PORT_ACTIVE (4)", "state: PORT_DOWN (1)", 10, "PORT_ACTIVE", "PORT_DOWN")
        self.check("a\nb", "a", 11, '"b"', "ends before")
        self.check("a", "a\nb", 10, 'also printed "b"')

    def test_lines_that_are_left_out(self):
        self.check("a\n[...]\nd", "a\nb\nc\nd")
        self.check("[...]\nb\n[...]", "a\nb\nc")
        self.check("a\n[...]\nd", "b\nd", 10)
        self.check("a\n[...]\nd", "a\nb", 12, '"d"')
        self.check("a\n[...]\nd", "a\nd\ne", 12, '"e"')

    def test_a_simulation_counts_exactly(self):
        self.check(self.TABLE, self.TABLE)
        self.check(self.TABLE, self.TABLE.replace("2615.8", "2615.9"), 13, "2615.8", "2615.9")

    def test_rows_and_columns_of_a_simulation_may_be_left_out(self):
        self.check("""
            Incast
            variant     flows   end us    goodput
            infiniband  32/32   2581.9  99.1 Gbps
            lossy       31/32        -  1.88 Gbps
            """, self.TABLE)
        self.check("""
            Incast
            variant     flows   end us    goodput
            infiniband  32/32   2581.9  97.9 Gbps
            """, self.TABLE, 12, "97.9 Gbps")
        self.check("Incast\nvariant  flows  begin us\n", self.TABLE, 11, "begin us")


class FakeTerminal:
    """A command that has ended, or never does."""

    interrupted = False

    def __init__(self, text, status):
        self.text, self.status, self.running = text, status, status is None

    @property
    def succeeded(self):
        return self.status == 0

    def wait(self, _):
        return not self.running

    def interrupt(self):
        self.running, self.status = False, 0

    def kill(self):
        self.running = False


class FakeSandbox:
    """A place in which commands print and return what the test says: {command: (output, exit status)}."""

    tree, scratch, user = pathlib.Path("/tree"), pathlib.Path("/scratch"), "root"

    def __init__(self, answers):
        self.answers, self.started = answers, []

    def start(self, command, folder, machine, keeps, downloads):
        self.started.append((command, str(folder), machine))
        return FakeTerminal(*self.answers.get(command.split("  #")[0].strip(), ("", 0)))

    def listeners(self):
        return set()


class Running(unittest.TestCase):
    def results(self, text, answers, place="clone", line=None, **options):
        sandbox = FakeSandbox(answers)
        run = pages.Run("README.md", sandbox, place, place, limit_s=0, patience=0, **options)
        results = list(run.blocks(blocks.read(page(text)), line))
        return results, sandbox

    def test_a_failing_command(self):
        (result,), _ = self.results("Text.\n\n    $ tulle sim none\n", {"tulle sim none": ("a\ntulle: no such thing\n\n", 1)})
        self.assertEqual(str(result), "README.md:3: failed (clone): tulle sim none: exit status 1: tulle: no such thing")

    def test_a_wrong_output(self):
        (result,), _ = self.results("    $ tulle devices\n    name: tulle0\n", {"tulle devices": ("name: other\n", 0)})
        self.assertEqual(str(result), 'README.md:2: failed (clone): tulle devices: "name: tulle0" is not what it printed, '
                                      'but "name: other"')

    def test_a_command_that_does_not_end(self):
        (result,), _ = self.results("    $ tulle devices\n", {"tulle devices": ("", None)})
        self.assertIn("README.md:1: failed (clone): tulle devices: still running after", str(result))

    def test_an_unknown_block(self):
        report, said = pages.Report(), io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
            path = pathlib.Path(folder) / "README.md"
            path.write_text("Text.\n\n    something else\n")
            known, pages.pages = pages.pages, lambda: {"README.md": path}
            self.addCleanup(setattr, pages, "pages", known)
            self.assertEqual(pages.read_all([], report), [])
            self.assertEqual(report.finish(None), 1)
        first, last = said.getvalue().splitlines()
        self.assertTrue(first.startswith("README.md:3: failed (reading): the block: neither commands nor TOML"), first)
        self.assertEqual(last, "0 passed, 1 failed, 0 skipped")

    def test_skipped_commands_are_told_once_and_counted(self):
        report, said = pages.Report(), io.StringIO()
        with contextlib.redirect_stdout(said):
            for place in ("clone", "elsewhere"):
                for result in self.results("""
                    <!-- test: skip ./dev soak: it takes hours -->
                    <!-- test: long tulle sim: it takes minutes -->

                        ./dev soak
                        tulle sim incast
                        tulle devices
                    """, {}, place)[0]:
                    report.add(result)
            self.assertEqual(report.finish(None), 0)
        self.assertEqual(said.getvalue().splitlines(), [
            "README.md:4: skipped: ./dev soak: it takes hours",
            "README.md:5: skipped: tulle sim incast: only without --quick: it takes minutes",
            "2 passed, 0 failed, 2 skipped",
        ])

    def test_the_long_mode_runs_long_commands(self):
        results, _ = self.results("<!-- test: long: minutes -->\n\n    tulle sim incast\n", {}, long=True)
        self.assertEqual([result.outcome for result in results], ["passed"])
        self.assertEqual(self.results("<!-- test: long: minutes -->\n\n    tulle sim incast\n", {}, long=True,
                                      done={("README.md", 3, "")})[0], [])

    def test_elsewhere_the_installed_tulle_runs(self):
        results, sandbox = self.results("    build/bin/tulle devices\n    ./dev --help\n", {}, "elsewhere")
        self.assertEqual(sandbox.started, [("tulle devices", "/scratch/elsewhere", "alpha")])
        self.assertEqual([(result.outcome, result.message) for result in results],
                         [("skipped", "works in a clone only"), ("passed", "")])

    def test_one_block_alone(self):
        text = "    tulle devices\n\n<!-- test: run tulle agent -->\n\n    tulle status\n"
        _, sandbox = self.results(text, {}, line=5)
        self.assertEqual([command for command, *_ in sandbox.started], ["tulle agent", "tulle status"])

    def test_a_server_in_the_background_fails_by_itself(self):
        results, _ = self.results("    $ tulle run -- server &\n    $ tulle run -- client\n",
                                  {"tulle run -- server": ("no port\n", 1)})
        self.assertEqual([(result.line, result.outcome) for result in results], [(1, "failed"), (2, "passed")])

    def test_ctrl_c(self):
        (result,), _ = self.results("<!-- test: ctrl-c -->\n\n    tulle capture\n", {"tulle capture": ("", None)})
        self.assertEqual(result.outcome, "passed")


def chakra_trace():
    """Returns the bytes of tests/pages/step.et: each rank computes for 100 us and takes part in an all-reduce of 1 MB."""
    def number(field, value):
        return bytes([field << 3]) + varint(value)

    def text(field, value):
        return bytes([field << 3 | 2]) + varint(len(value)) + value

    def varint(value):
        low, rest = value & 127, value >> 7
        return bytes([low | 128]) + varint(rest) if rest else bytes([low])

    computation = number(1, 1) + text(2, b"compute") + number(3, 4) + number(7, 100)
    attributes = [text(1, b"comm_type") + number(9, 0), text(1, b"comm_size") + number(9, 1_000_000)]
    collective = number(1, 2) + text(2, b"sum") + number(3, 7) + number(5, 1) + b"".join(text(10, each) for each in attributes)
    return b"".join(varint(len(each)) + each for each in (text(1, b"0.0.4"), computation, collective))


class Pages(unittest.TestCase):
    def test_the_trace_that_a_page_uses(self):
        path = pathlib.Path(__file__).resolve().parent / "step.et"
        self.assertEqual(path.read_bytes(), chakra_trace())

    def test_all_pages_can_be_read(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            report = pages.Report()
            pages.read_all([], report)
        self.assertEqual(said.getvalue(), "")

    def test_a_page_that_is_not_there(self):
        with self.assertRaises(SystemExit) as caught:
            pages.read_all(["docs/none.md"], types.SimpleNamespace())
        self.assertIn("no page docs/none.md", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
