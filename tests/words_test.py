#!/usr/bin/env python3
"""The first pages are short, edited pages and comments use the field's words, and no link is dead."""

import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHORT = {"README.md": 900, "SECURITY.md": 900}  # words
OTHERS = 60_000  # words of all other pages together, without the gallery and the decisions
# Pages whose sentences have been edited. Add a page here once it has none of the phrases below.
EDITED = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/README.md", "docs/error-classes.md", "docs/fidelity.md",
          "docs/glossary.md", "docs/interoperability.md", "docs/performance.md", "docs/rsockets.md",
          "docs/spec-exceptions.md", "docs/strict.md", "docs/guide/*.md", "docs/decisions/README.md",
          "docs/internals/*.md", "docs/reference/*.md", "docs/reference/simulator/*.md")
# Phrase: what to write instead.
PHRASES = {
    r"foret(?:ell|old)\w*": "predict",
    r"beside": "compared with, alongside, while",
    r"(?:go|goes|went|going|gone) on": "continue, resume",
    r"whoever": "the name of the role",
    r"anew": "again",
    r"of (?:its|their|his) own": "its own, separate",
    r"by turns|in turn": "alternately, interleaved",
    r"held back": "validation",
    r"lies?|stands?": "is, is stored",
    r"hears?|heard": "receive, poll, be notified",
    r"vault|rousing": "descriptor store, registered memory table, wake-up",
}


def prose(text):
    """Returns a page's lines without its commands, code and the addresses of links."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    ") and not line.startswith("<!--"):
            yield number, re.sub(r"`[^`]*`|(?<=\])\([^)]*\)", "", line)


# What may contain text that looks like a comment comes first, so that a search for tokens never starts inside of it.
TOKEN = re.compile(r'''R"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)" | "(?:[^"\\\n]|\\.)*" | \b\d[\w'.]*
                   | '(?:[^'\\\n]|\\.)+' | (?P<comment>//[^\n]*|/\*.*?\*/)''', re.DOTALL | re.VERBOSE)
CODE = "\0"
MARK = re.compile(r"^[ \t]*(?://+<?|/?\*+/?)|\*/$", re.MULTILINE)
# A phrase may be broken over lines, each with a mark of its comment.
IN_COMMENTS = re.compile(r"\b(?:" + "|".join(f"({phrase})" for phrase in PHRASES).replace(" ", r"[\s/*]+") + r")\b",
                         re.IGNORECASE)


def comments(source):
    """Returns C or C++ source of the same length whose comments alone are left, without their code and marks."""
    def hidden(text):
        return re.sub(r"\S", CODE, text)

    left, end = [], 0
    for token in TOKEN.finditer(source):
        if token["comment"]:
            left += hidden(source[end:token.start()]), MARK.sub(lambda mark: " " * len(mark[0]), token[0])
            end = token.end()
    left.append(hidden(source[end:]))
    return re.sub(rf"`[^`{CODE}]*`", lambda code: hidden(code[0]), "".join(left))


def phrases_in_comments(source):
    """Yields the line, the words and what to write instead of each phrase in the comments of C or C++ source."""
    if not IN_COMMENTS.search(source):  # most files, in a fraction of the time
        return
    text = comments(source)
    for match in IN_COMMENTS.finditer(text):
        instead = list(PHRASES.values())[match.lastindex - 1]
        yield text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), instead


def anchors(text):
    """Returns the anchors of a page's headings, as GitHub makes them."""
    found, seen, fenced = set(), {}, False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        heading = re.match(r"#+ (.*)", line)
        if not heading or fenced:
            continue
        plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", lambda match: match[1] or "", heading[1]).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        times = seen[anchor] = seen.get(anchor, 0) + 1
        found.add(anchor if times == 1 else f"{anchor}-{times - 1}")
    return found


def dead_links(root):
    """Yields the links of the pages below a folder to a file or a heading that is not there."""
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "examples").rglob("*.md")]
    for page in sorted(pages):
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            if re.match(r"[a-z]+:", link):
                continue
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target.read_text())):
                yield f"{page.relative_to(root)}: {link}"


class Links(unittest.TestCase):
    def test_none_is_dead(self):
        self.assertEqual(list(dead_links(ROOT)), [])

    def test_dead_ones_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "a.md").write_text("# One `two`\n# One two\n[x](#one-two-1) [y](#one) [z](b.md) [w](https://a.b)\n")
            self.assertEqual(list(dead_links(root)), ["a.md: #one", "a.md: b.md"])


class Words(unittest.TestCase):
    def test_the_first_pages_are_short(self):
        for name, most in SHORT.items():
            self.assertLess(len((ROOT / name).read_text().split()), most, name)

    def test_all_pages_together_can_be_read(self):
        pages = [page for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
                 if page.name not in SHORT or page.parent != ROOT]
        words = sum(len(page.read_text().split()) for page in pages
                    if not {"gallery", "decisions"} & set(page.relative_to(ROOT).parts))
        self.assertLess(words, OTHERS)
        self.assertGreater(words, OTHERS / 2, "pages are missing")

    def test_edited_pages_have_the_fields_words(self):
        pages = [path for pattern in EDITED for path in sorted(ROOT.glob(pattern))]
        self.assertGreaterEqual(len(pages), 9)
        found = [f"{path.relative_to(ROOT)}:{number}: \"{match[0]}\": write {instead}"
                 for path in pages for number, line in prose(path.read_text())
                 for phrase, instead in PHRASES.items()
                 for match in [re.search(rf"\b(?:{phrase})\b", line, re.IGNORECASE)] if match]
        self.assertEqual(found, [])

    def test_comments_have_the_fields_words(self):
        paths = [path for path in sorted((ROOT / "src").rglob("*"))
                 if path.suffix in (".h", ".cc", ".c") and not path.stem.endswith("_test")]
        self.assertGreater(len(paths), 500)
        found = [f"{path.relative_to(ROOT)}:{line}: \"{words}\": write {instead}"
                 for path in paths for line, words, instead in phrases_in_comments(path.read_text())]
        self.assertEqual(found, [])

    def test_phrases_are_found_in_comments_alone(self):
        source = """// It goes
// on, as `beside` does.
int beside = 1'000;  // whoever
const char* text = "// anew";  /* a
 * file of
 * its own */
const char* raw = R"x(
// beside ")x";
char quote = '"';  // "foretold"
int going; // on
"""
        self.assertEqual(sorted((line, words) for line, words, _ in phrases_in_comments(source)),
                         [(1, "goes on"), (3, "whoever"), (5, "of its own"), (9, "foretold")])
        self.assertEqual(list(phrases_in_comments("int anew;  // again\n")), [])

    def test_phrases_are_found_in_prose_alone(self):
        self.assertEqual([line for _, line in prose("a `beside`\n    beside\n```\nbeside\n```\n[b](c.md#beside)")],
                         ["a ", "[b]"])


if __name__ == "__main__":
    unittest.main()
