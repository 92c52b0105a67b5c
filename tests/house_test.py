#!/usr/bin/env python3
"""Checks the numbers that docs/internals/architecture.md gives under "In numbers".

- No source file has more than 700 lines, and no test more than 800.
- No class has more than 40 public methods.
- No function has more than 70 lines, and no class more than 600, with its functions and without classes in it.
- The sources of src/cli have fewer than 2,500 lines together, without tests: it turns options into calls.
- No more than 40 places outside a transport's own row name the type of a transport.
- No more than 24 places in the simulator ask whether a node is a host.
- No place in a live device's driver names one of its networks.
- At most 3 % of the blocks of comments open with a fragment instead of a sentence.
- A file that calls the standard library's algorithms includes <algorithm>, or a header of ours that does: other
  headers include it with some versions of the library and not with others.
A fabricated violation shows that each check can fail.
"""

import collections
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE_LINES_MAX = 700
TEST_LINES_MAX = 800
METHODS_MAX = 40
FUNCTION_LINES_MAX = 70
CLASS_LINES_MAX = 600
CLI_LINES_MAX = 2500
SITES_MAX = 40
HOST_SITES_MAX = 24
FRAGMENTS_MAX = 0.03

SITE = re.compile(r"QpType::|\bis_(raw|xrc|over_tcp|datagram)\(|\bget(_if)?<[^>]*Engine")
ROW = re.compile(r"\.type = verbs::QpType::")
TEST = re.compile(r"_(test|fuzz|bench)\.")
# Words that open a fragment ("Of the port", "Whether it is") unless a verb follows soon.
OPENING = re.compile(r"(of|what|who|whom|whose|whether|that|without|which|how|nor|by|as|for|with|from|to|in)\b", re.I)
VERB = re.compile(r"\b(is|are|was|were|has|have|had|must|may|can|cannot|does|do|did|\w+(s|ed))\b", re.I)
CLASS = re.compile(r"\b(class|struct)\s+(?:alignas\([^)]*\)\s*)?(\w+)\s*(?:final\s*)?(?::[^;{]*)?\{")


def sources(*folders, suffixes=(".h", ".cc", ".c")):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes:
                yield path


def is_test(path):
    return TEST.search(path.name) is not None


def long_files(files):
    """Yields (path, lines) for the files with too many lines; `files` are (path, text)."""
    for path, text in files:
        lines = text.count("\n")
        if lines > (TEST_LINES_MAX if is_test(path) else SOURCE_LINES_MAX):
            yield path, lines


def lines_without_tests(files):
    """Returns the lines of the files together; `files` are (path, text)."""
    return sum(text.count("\n") for path, text in files if not is_test(path))


ALGORITHM = re.compile(r"\bstd::(ranges::\w+|(copy|fill|find|count|replace)(_n|_if)?|remove_if|(stable_)?sort|any_of|"
                       r"all_of|none_of|(max|min)_element|max|min|reverse|rotate|lower_bound|upper_bound|nth_element|"
                       r"transform|generate|equal|unique|swap_ranges|shuffle|clamp)\(")


def includes_of(texts):
    """Returns {path: the names that it includes, directly or by our headers}; `texts` is {path below the root: text}."""
    direct = {path: set(re.findall(r'^#include [<"]([^">]+)[">]', text, re.M)) for path, text in texts.items()}

    def reached(path, seen):
        for name in direct.get(path, ()):
            for header in (f"src/{name}", f"tests/{name}", name):
                if header in direct and header not in seen:
                    seen.add(header)
                    reached(header, seen)
        return seen

    return {path: set().union(direct[path], *(direct[header] for header in reached(path, set()))) for path in texts}


def without_algorithm(texts):
    """Yields the files that call an algorithm without its header."""
    includes = includes_of(texts)
    for path, text in texts.items():
        if ALGORITHM.search(without_comments(text)) and "algorithm" not in includes[path]:
            yield path


def without_comments(text):
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r'"(\\.|[^"\\\n])*"', '""', text)
    return re.sub(r"^\s*#[^\n]*", "", text, flags=re.MULTILINE)


def block_end(text, at):
    """The index of the brace that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return len(text)


def public_methods(kind, body):
    """Counts the member functions that a class declares in its public sections, overloads included."""
    public, count, start, i, parentheses = kind == "struct", 0, 0, 0, 0
    while i < len(body):
        label = re.compile(r"\s*(public|private|protected)\s*:(?!:)").match(body, i)
        if label and not body[start:i].strip():
            public, start, i = label.group(1) == "public", label.end(), label.end()
            continue
        parentheses += {"(": 1, ")": -1}.get(body[i], 0)
        if parentheses == 0 and body[i] in ";{":
            statement = body[start:i].strip()
            head = re.sub(r"\[\[[^\]]*\]\]", "", statement.partition("(")[0])
            is_method = "(" in statement and "=" not in re.sub(r"operator\s*[<>=!]+", "", head)
            if public and is_method and not re.match(r"(using|friend|static_assert|typedef|enum)\b", statement):
                count += 1
            i = block_end(body, i) if body[i] == "{" else i
            start = i + 1
        i += 1
    return count


def classes(text):
    text = without_comments(text)
    for match in CLASS.finditer(text):
        if not re.search(r"enum\s*$", text[: match.start()]):
            opening = match.end() - 1
            yield match.group(2), public_methods(match.group(1), text[opening + 1 : block_end(text, opening)])


def wide_classes(texts):
    for text in texts:
        for name, methods in classes(text):
            if methods > METHODS_MAX:
                yield name, methods


NO_FUNCTION = re.compile(r"(if|for|while|switch|catch|else|do|try|namespace|class|struct|union|enum|extern|return)\b")


def blanked(text):
    """Returns the text with comments and strings blanked, and as many lines."""
    def spaces(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    text = re.sub(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/', spaces, text, flags=re.DOTALL)
    text = re.sub(r'"(\\.|[^"\\\n])*"', spaces, text)
    return re.sub(r"'(\\.|[^'\\\n])'", "   ", text)


def functions(text):
    """Yields (name, lines) of the functions that a file defines; a lambda's lines are its function's."""
    text, open_blocks, start = blanked(text), [], 0
    for match in re.finditer(r"[{};]", text):
        if match.group() == "{":
            head = re.sub(r"^\s*#[^\n]*", "", text[start : match.start()], flags=re.M).strip()
            is_function = (re.search(r"\(.*\)", head, re.S) and not NO_FUNCTION.match(head)
                           and not re.search(r"(=|return)\s*$|=\s*\[", head) and not any(f for f, _, _ in open_blocks))
            open_blocks.append((bool(is_function), head, text.count("\n", 0, match.start())))
        elif match.group() == "}" and open_blocks:
            is_function, head, first = open_blocks.pop()
            if is_function:
                yield (head.partition("(")[0].split() or [head])[-1], text.count("\n", 0, match.start()) - first + 1
        start = match.end()


def class_lines(files):
    """Counts the lines of each class, by folder and name: its body without classes in it, and its functions elsewhere."""
    count = collections.Counter()
    for path, text in files:
        plain = blanked(text)
        spans = [(match.group(2), match.start(), block_end(plain, match.end() - 1)) for match in CLASS.finditer(plain)
                 if not re.search(r"enum\s*$", plain[: match.start()])]
        lines = {span: plain.count("\n", span[1], span[2]) + 1 for span in spans}
        for span in spans:
            inner = [other for other in spans if span[1] < other[1] and other[2] < span[2]]
            outermost = [a for a in inner if not any(b[1] < a[1] and a[2] < b[2] for b in inner)]
            count[str(path.parent), span[0]] += lines[span] - sum(lines[other] for other in outermost)
        for name, length in functions(text):
            if "::" in name:
                count[str(path.parent), re.sub(r"<.*", "", name.split("::")[-2])] += length
    return count


def sites(texts):
    return sum(1 for text in texts for line in text.splitlines() if SITE.search(line) and not ROW.search(line))


def host_sites(texts):
    return sum(len(re.findall(r"\bis_host\(", without_comments(text))) for text in texts)


# The driver of a live device, and what belongs to one of its networks (docs/decisions/057-links.md).
DRIVER = ("device_impl.h", "device_impl.cc", "device_thread.cc", "device_sleep.cc")
OF_A_NETWORK = re.compile(r"\b(fabric|roce_v1|packets|seal|rings|host_packets|direct_path|transmitter|receiver|socket)_\b|"
                          r"\b(Udp|RoceV1|Host|Courier)Link\b|\bFabricPath\b|\bHostPackets\b|\bHostPath\b")


def network_sites(texts):
    return sum(len(OF_A_NETWORK.findall(without_comments(text))) for text in texts)


def comment_blocks(text):
    block = []
    for line in text.splitlines() + [""]:
        stripped = line.strip()
        if stripped.startswith("//"):
            block.append(stripped.lstrip("/").strip())
        elif block:
            yield " ".join(block)
            block = []


def is_fragment(block):
    sentence = re.split(r"(?<=[.:;])\s", block)[0]
    return len(block.split()) >= 4 and OPENING.match(block) is not None and VERB.search(sentence) is None


# Files of the C libraries whose functions make no system call that a thread could be cancelled in.
WITHOUT_CALLS = re.compile(r"(?:strings|buffers|kernel_structs|private_stubs|refusals|compat)\.cc$|/rsocket_")
C_FUNCTION = re.compile(r"^[a-z_][\w:<>,&*\s\[\]()/.-]*?\b(\w+)\([^;{}]*\)(?: try)? \{\n(.*)", re.MULTILINE)


def cancellable(path, text):
    """Yields the functions of the C API, of more than one line, that do not begin with NoCancellation."""
    if WITHOUT_CALLS.search(path):
        return
    for block in re.findall(r'^extern "C" \{\n(.*?)^\}  // extern "C"', text, re.MULTILINE | re.DOTALL):
        for name, first in C_FUNCTION.findall(block):
            if "NoCancellation" not in first:
                yield f"{path}: {name}"


class Includes(unittest.TestCase):
    def test_algorithms(self):
        files = sources("src", "tests", "bench", suffixes=(".h", ".cc"))
        texts = {str(path.relative_to(ROOT)): path.read_text() for path in files}
        self.assertEqual(list(without_algorithm(texts)), [])

    def test_can_fail(self):
        texts = {"src/a.h": "#include <algorithm>\n", "src/b.cc": '#include "a.h"\nstd::sort(x);\n',
                 "src/c.cc": "#include <vector>\nstd::copy_n(x);\n", "src/d.cc": "// std::sort(x)\n"}
        self.assertEqual(list(without_algorithm(texts)), ["src/c.cc"])


class Sizes(unittest.TestCase):
    def test_files(self):
        files = ((p, p.read_text()) for p in sources("src", "tests", "bench", suffixes=(".h", ".cc", ".c", ".py")))
        self.assertEqual(list(long_files(files)), [])

    def test_can_fail(self):
        text = "\n" * (SOURCE_LINES_MAX + 1)
        self.assertEqual(len(list(long_files([(pathlib.Path("a.cc"), text), (pathlib.Path("a_test.cc"), text)]))), 1)


class Functions(unittest.TestCase):
    def test_lengths(self):
        long = [(str(path.relative_to(ROOT)), name, lines) for path in sources("src") if not is_test(path)
                for name, lines in functions(path.read_text()) if lines > FUNCTION_LINES_MAX]
        self.assertEqual(long, [])

    def test_can_fail(self):
        text = 'namespace a {\nint A::f(int x) const {\n  // {\n  if (x) {\n    g("{");\n  }\n}\n}  // namespace a\n'
        self.assertEqual(list(functions(text)), [("A::f", 6)])


class ClassLines(unittest.TestCase):
    def test_lengths(self):
        files = [(path.relative_to(ROOT), path.read_text()) for path in sources("src") if not is_test(path)]
        long = {name: lines for name, lines in class_lines(files).items() if lines > CLASS_LINES_MAX}
        self.assertEqual(long, {})

    def test_can_fail(self):
        header = "class A {\n public:\n  struct B {\n    int b;\n  };\n  void f();\n};\n"
        source = "void A::f() {\n  g();\n}\n"
        files = [(pathlib.Path("a/a.h"), header), (pathlib.Path("a/a.cc"), source)]
        self.assertEqual(class_lines(files), {("a", "A"): 7, ("a", "B"): 3})


class CommandLine(unittest.TestCase):
    """What does the work of a command is a library, which others may call and a unit test can reach."""

    def test_lines(self):
        self.assertLess(lines_without_tests((p, p.read_text()) for p in sources("src/cli")), CLI_LINES_MAX)

    def test_can_fail(self):
        files = [(pathlib.Path("a.cc"), "\n" * 2000), (pathlib.Path("b.h"), "\n" * 500), (pathlib.Path("a_test.cc"), "\n" * 9)]
        self.assertEqual(lines_without_tests(files), CLI_LINES_MAX)


class Cancellation(unittest.TestCase):
    """A thread that is cancelled within a call must not leave it half done (os/cancellation.h)."""

    def test_calls_of_the_libraries(self):
        paths = [path for path in sorted((ROOT / "src" / "shim").rglob("*.cc")) if "_fuzz" not in path.name]
        found = [name for path in paths for name in cancellable(str(path.relative_to(ROOT)), path.read_text())]
        self.assertEqual([], found)

    def test_can_fail(self):
        text = 'extern "C" {\n\nint f(int a,\n      int b) try {\n  g();\n}\n\n}  // extern "C"\n'
        self.assertEqual(["src/a.cc: f"], list(cancellable("src/a.cc", text)))
        guarded = text.replace("g();", "const NoCancellation no_cancellation;")
        self.assertEqual([], list(cancellable("src/a.cc", guarded)))


class EventLoops(unittest.TestCase):
    """The libraries of programs wrap epoll, and wait for nothing themselves."""

    def test_one_waits(self):
        waits = [str(path.relative_to(ROOT)) for path in sources("src")
                 if not is_test(path) and "shim" not in path.parts and re.search(r"\bepoll_p?wait2?\(", path.read_text())]
        self.assertEqual(waits, ["src/os/event_loop.cc"])


class Classes(unittest.TestCase):
    def test_public_methods(self):
        self.assertEqual(list(wide_classes(p.read_text() for p in sources("src", suffixes=(".h",)))), [])

    def test_can_fail(self):
        methods = "".join(f"  void f{i}(int a = 0) {{ if (a) {{ g(); }} }}\n  int x{i} = 0;\n" for i in range(METHODS_MAX + 1))
        self.assertEqual(list(wide_classes([f"class A {{\n public:\n{methods} private:\n  void h();\n}};\n"])), [("A", 41)])
        self.assertEqual(list(wide_classes([f"class A {{\n{methods}}};\n"])), [])


class Transports(unittest.TestCase):
    def test_sites(self):
        self.assertLessEqual(sites(p.read_text() for p in sources("src") if not is_test(p)), SITES_MAX)

    def test_can_fail(self):
        self.assertEqual(sites(["if (type == QpType::rc) {}\n  .type = verbs::QpType::rc,\nif (is_xrc(type)) {}\n"]), 2)


class Networks(unittest.TestCase):
    def test_sites(self):
        folder = ROOT / "src/live/process"
        self.assertEqual(network_sites((folder / name).read_text() for name in DRIVER), 0)

    def test_can_fail(self):
        text = "if (fabric_ != nullptr) return;  // fabric_\nrings_in_row_max; gids_of_roce_v1_;\nUdpLink* link;\n"
        self.assertEqual(network_sites([text]), 2)


class Hosts(unittest.TestCase):
    def test_sites(self):
        self.assertLessEqual(host_sites(p.read_text() for p in sources("src/sim") if not is_test(p)), HOST_SITES_MAX)

    def test_can_fail(self):
        self.assertEqual(host_sites(["if (is_host(node)) return;\n// is_host(node)\nis_host(a) || is_host(b)\n"]), 3)


class Prose(unittest.TestCase):
    def test_comments_are_sentences(self):
        blocks = [b for p in sources("src", "tests") for b in comment_blocks(p.read_text())]
        fragments = [b for b in blocks if is_fragment(b)]
        self.assertLessEqual(len(fragments) / len(blocks), FRAGMENTS_MAX, "\n".join(fragments[:20]))

    def test_can_fail(self):
        text = "// Of the request at the head of the queue.\nint a;\n// In this case the port drops it.\nint b;\n"
        self.assertEqual([is_fragment(b) for b in comment_blocks(text)], [True, False])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
