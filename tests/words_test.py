#!/usr/bin/env python3
"""The pages that most people read first are short, edited pages use the field's words, and no link is dead."""

import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHORT = {"README.md": 900, "SECURITY.md": 900}  # words
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
    r"vault|rousing": "registered memory table, wake-up",
}


def prose(text):
    """Returns a page's lines without its commands, code and the addresses of links."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    ") and not line.startswith("<!--"):
            yield number, re.sub(r"`[^`]*`|(?<=\])\([^)]*\)", "", line)


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

    def test_edited_pages_have_the_fields_words(self):
        pages = [path for pattern in EDITED for path in sorted(ROOT.glob(pattern))]
        self.assertGreaterEqual(len(pages), 9)
        found = [f"{path.relative_to(ROOT)}:{number}: \"{match[0]}\": write {instead}"
                 for path in pages for number, line in prose(path.read_text())
                 for phrase, instead in PHRASES.items()
                 for match in [re.search(rf"\b(?:{phrase})\b", line, re.IGNORECASE)] if match]
        self.assertEqual(found, [])

    def test_phrases_are_found_in_prose_alone(self):
        self.assertEqual([line for _, line in prose("a `beside`\n    beside\n```\nbeside\n```\n[b](c.md#beside)")],
                         ["a ", "[b]"])


if __name__ == "__main__":
    unittest.main()
