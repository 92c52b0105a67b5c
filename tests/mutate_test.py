#!/usr/bin/env python3
"""Tests ./dev mutate: the small changes that it makes to a source, how it counts their fates, and what it records."""

import argparse
import contextlib
import io
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import mutants  # noqa: E402
import mutate  # noqa: E402


def changes(source, operator):
    """Returns the sources that an operator makes of a source."""
    return {mutant.apply(source) for mutant in mutants.mutants_of(source) if mutant.operator == operator}


class Operators(unittest.TestCase):
    def test_comparisons_move_their_boundary_or_turn(self):
        self.assertEqual(changes("bool x = a < b;", "comparison"), {"bool x = a <= b;", "bool x = a >= b;"})
        self.assertEqual(changes("bool x = a == b;", "comparison"), {"bool x = a != b;"})
        self.assertEqual(changes("std::vector<int> x;", "comparison"), set())

    def test_arithmetic(self):
        self.assertEqual(changes("x = a + b;", "arithmetic"), {"x = a - b;"})
        self.assertEqual(changes("x = a << 3;", "arithmetic"), {"x = a >> 3;"})
        self.assertEqual(changes("x += a;", "assignment"), {"x -= a;"})
        self.assertEqual(changes("++x; y--;", "step"), {"--x; y--;", "++x; y++;"})

    def test_logic(self):
        self.assertEqual(changes("return a && b || c;", "logic"), {"return a || b || c;", "return a && b && c;"})
        self.assertEqual(changes("f(!a);", "negation"), {"f(a);"})
        self.assertEqual(changes("f(std::min(a, b), true);", "word"), {"f(std::max(a, b), true);", "f(std::min(a, b), false);"})

    def test_constants_go_up_and_down_but_never_below_zero(self):
        self.assertEqual(changes("x = 1'000;", "constant"), {"x = 1001;", "x = 999;"})
        self.assertEqual(changes("x = 0u;", "constant"), {"x = 1u;"})
        self.assertEqual(changes("x = 0xFF;", "constant"), {"x = 256;", "x = 254;"})
        self.assertEqual(changes("open(name, flags, 0644);", "constant"), {"open(name, flags, 421);", "open(name, flags, 419);"})
        self.assertEqual(changes("std::uint64_t x1 = y2;", "constant"), set())

    def test_arguments_swap(self):
        self.assertEqual(changes("f(a, b);", "arguments"), {"f(b, a);"})
        self.assertEqual(changes("void f(int a, int b);", "arguments"), set())

    def test_conditions(self):
        source = "if (a &&\n    f(b)) {\n}"
        self.assertEqual(changes(source, "negated condition"), {"if (!(a &&\n    f(b))) {\n}"})
        self.assertEqual(changes(source, "condition never true"), {"if (false && (a &&\n    f(b))) {\n}"})
        self.assertEqual(changes("if (a == b) return;", "negated condition"), set(), "a comparison of its own")
        self.assertEqual(changes("if (int a = f(); a) g();", "negated condition"), set())

    def test_statements_are_dropped_and_declarations_are_not(self):
        source = "{\n  int a = 1;\n  a = f(\n      2);\n  if (a) g();\n  return a;\n}"
        self.assertEqual(changes(source, "dropped statement"), {
            "{\n  int a = 1;\n  ;\n\n  if (a) g();\n  return a;\n}",
            "{\n  int a = 1;\n  a = f(\n      2);\n  if (a) ;\n  return a;\n}"})

    def test_returns_are_negated(self):
        self.assertEqual(changes("return a.b();", "negated return"), {"return !(a.b());"})

    def test_what_is_hidden_stays(self):
        for source in ("// a + 1", "/* a + 1 */", 'f("a + 1");', "#include <a + 1>", "  TULLE_CHECK(a + 1 < b);",
                       "static_assert(1 == 2);"):
            self.assertEqual([mutant.operator for mutant in mutants.mutants_of(source)], [], source)

    def test_each_mutant_differs_and_keeps_the_lines(self):
        for name in ("src/rdma/transport/rc/requester_ack.cc", "src/fabric/switch.cc", "src/rdma/wire/opcode.cc"):
            source = (ROOT / name).read_text()
            found = mutants.mutants_of(source)
            self.assertGreater(len(found), 20)
            for mutant in found:
                changed = mutant.apply(source)
                self.assertNotEqual(changed, source)
                self.assertEqual(changed.count("\n"), source.count("\n"), mutant)
                diff = mutants.diff_of(name, source, mutant)
                self.assertTrue(any(line.startswith("+") for line in diff) and any(line.startswith("-") for line in diff))


class Fates(unittest.TestCase):
    """A room whose mutants have a fate that their text says."""

    class Room:
        def try_text(self, name, text, folder):
            fate = text.split()[0]
            return fate.replace("_", " "), "some_test" if fate == mutate.KILLED else ""

    def result(self, fates, sample):
        whole = mutants.Mutant(0, 1, "", "comparison", 1)
        candidates = [("a.cc", "x", mutants.Mutant(0, 1, fate, whole.operator, i + 1)) for i, fate in enumerate(fates)]
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            return mutate.try_all(self.Room(), candidates, sample), shown.getvalue()

    def test_what_makes_no_difference_is_not_counted(self):
        result, shown = self.result(["killed", "same_object", "survived", "does_not_compile", "killed", "survived"], 3)
        self.assertEqual((result["counted"], result["killed"], result["same_object"], result["not_compiled"]), (3, 2, 1, 1))
        self.assertEqual([survivor["line"] for survivor in result["survivors"]], [3])
        self.assertIn("[3/3", shown)

    def test_a_draw_ends_where_there_are_no_more(self):
        result, _ = self.result(["survived"] * 2, 40)
        self.assertEqual((result["counted"], result["killed"]), (2, 0))

    def test_a_seed_draws_the_same_again(self):
        with mock.patch.object(mutate, "TREE", ROOT):
            names = mutate.sources_of("verbs", "src/rdma/verbs/m*.cc")
            self.assertEqual(names, ["src/rdma/verbs/memory.cc"])
            first, again, other = (mutate.drawn(names, seed) for seed in (1, 1, 2))
            self.assertEqual(first, again)
            self.assertNotEqual(first, other)
            self.assertEqual(len(first), len(other))
            with self.assertRaisesRegex(mutate.Problem, "no source of verbs matches"):
                mutate.sources_of("verbs", "nothing")


class Records(unittest.TestCase):
    def survivor(self, line, explanation=""):
        return {"file": "a.cc", "line": line, "operator": "comparison", "diff": ["-a < b", "+a <= b"],
                "explanation": explanation}

    def test_an_explanation_outlives_a_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "docs" / "mutation.json"
            mutate.write_record(path, {"room": "verbs", "survivors": [self.survivor(3, "It is the same.")]})
            mutate.write_record(path, {"room": "wire", "survivors": []})
            mutate.write_record(path, {"room": "verbs", "survivors": [self.survivor(5)]})
            self.assertNotIn("draws", json.loads(path.read_text()))
            drawn = {"room": "wire", "survivors": [], "seed": 4, "date": "today", "commit": "c", "counted": 9, "killed": 8}
            mutate.write_record(path, drawn, is_fresh=True)
            self.assertEqual([draw["killed"] for draw in json.loads(path.read_text())["draws"]], [8])
            record = json.loads(path.read_text())
            self.assertEqual(set(record["rooms"]), {"verbs", "wire"})
            self.assertEqual(record["rooms"]["verbs"]["survivors"], [self.survivor(5, "It is the same.")])

    def test_a_survivor_whose_line_has_gone_leaves_the_sample(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(mutate, "TREE", pathlib.Path(folder)):
            (mutate.TREE / "a.cc").write_text("int f() { return 0; }\n")
            last = {"counted": 3, "killed": 2, "survivors": [self.survivor(1)]}
            with contextlib.redirect_stdout(io.StringIO()):
                result = mutate.again(None, last)
        self.assertEqual(result, {"counted": 2, "gone": 1, "killed": 2, "survivors": []})

    def test_wrong_arguments_are_refused(self):
        for arguments in (["nothing"], ["verbs", "--sample", "0"], ["verbs", "--sample", "x"],
                          ["verbs", "--files", "a", "--record"]):
            with self.subTest(arguments), contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                mutate.arguments_of(arguments)
        self.assertIsInstance(mutate.arguments_of(["verbs", "--sample", "all"]), argparse.Namespace)


class Programs(unittest.TestCase):
    def test_a_hang_is_ended_with_all_that_it_began(self):
        began = time.monotonic()
        self.assertEqual(mutate.run("sleep 1000 & sleep 1000", limit=0.3), (None, ""))
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(mutate.run("echo text; exit 3"), (3, "text\n"))

    def test_what_runs_ends_with_the_tool_however_it_ends(self):
        for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
            with self.subTest(number), tempfile.TemporaryDirectory() as folder:
                mark = pathlib.Path(folder) / "mark"
                script = textwrap.dedent(f"""
                    import sys
                    sys.path.insert(0, {str(ROOT / "tools")!r})
                    import mutate
                    mutate.mutate = lambda arguments: mutate.run(["sh", "-c", "echo $$ >{mark}; exec sleep 1000"])
                    mutate.main(["verbs"])
                """)
                tool = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
                self.wait_for(lambda: mark.exists() and mark.read_text().strip())
                child = int(mark.read_text())
                tool.send_signal(number)
                self.assertEqual(tool.wait(20), -number if number == signal.SIGKILL else 128 + number)
                self.wait_for(lambda: not runs(child))

    def wait_for(self, condition):
        limit = time.monotonic() + 20
        while not condition():
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.02)


def runs(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may go while its file is read
        return False


if __name__ == "__main__":
    unittest.main()
