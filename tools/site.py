#!/usr/bin/env python3
"""./dev docs: makes a static site of the pages, with search.

    site.py [--output DIR]     writes the site, by default to build-docs/site
    site.py --check            makes it and opens it in headless Chromium: the start page, a link of each page, the search

MkDocs makes it. The site has README.md, the pages in docs/ and examples/, and the scenarios. Links to other files of the
repository, such as sources, become plain text. Serve the folder by HTTP, since browsers do not search in local files:
`python3 -m http.server --directory build-docs/site`.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-docs"
PAGES = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md", "examples/*/README.md")
FILES = ("LICENSE", "docs/**/*.svg", "docs/**/*.png", "scenarios/**/*.*")
INDEX = "docs/README.md"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def found(patterns):
    return sorted({path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()})


def for_site(page, text, known):
    """Returns a page's text without what only the repository needs: directives of tests, and links to other files."""
    def link(match):
        target = match[3].partition("#")[0]
        inside = not target or re.match(r"[a-z]+:", target) or (page.parent / target).resolve() in known
        return match[0] if inside or match[1] else match[2]

    return LINK.sub(link, re.sub(r"<!-- test:.*?-->\n", "", text, flags=re.DOTALL))


def navigation(index):
    """Returns [(section, [(title, page)])] of the page that lists all others."""
    sections = []
    for line in index.splitlines():
        if line.startswith("## "):
            sections.append((line[3:], []))
        elif sections and line.startswith("- ["):
            _, title, target = LINK.search(line).groups()
            page = os.path.normpath(os.path.join(os.path.dirname(INDEX), target))
            if page.endswith(".md"):
                sections[-1][1].append((title, page))
    return sections


def settings(pages):
    lines = ["site_name: Tulle", f"docs_dir: {pages}", "use_directory_urls: false", "theme:", "  name: material",
             "  font: false", "  features: [navigation.sections, search.highlight]", "  palette: {primary: indigo}",
             "plugins: [search]", "markdown_extensions: [toc: {permalink: true}, tables, fenced_code]", "nav:",
             "  - Start: README.md", f"  - All pages: {INDEX}"]
    for section, entries in navigation((ROOT / INDEX).read_text()):
        lines += [f"  - {section}:", *(f"    - {title}: {page}" for title, page in entries)]
    return "\n".join(lines) + "\n"


def make(output):
    pages = BUILD / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    files = found(PAGES + FILES)
    known = {path.resolve() for path in files}
    for path in files:
        copy = pages / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            copy.write_text(for_site(path, path.read_text(), known))
        else:
            shutil.copyfile(path, copy)
    configuration = BUILD / "mkdocs.yml"
    configuration.write_text(settings(pages))
    subprocess.run(["mkdocs", "build", "--quiet", "--strict", "--clean", "--config-file", configuration, "--site-dir", output],
                   check=True)
    print(f"site: {sum(path.suffix == '.md' for path in files)} pages in {os.path.relpath(output)}")


def main():
    parser = argparse.ArgumentParser(prog="./dev docs", description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=pathlib.Path, default=BUILD / "site", help="the folder of the site")
    parser.add_argument("--check", action="store_true", help="open the site in headless Chromium")
    arguments = parser.parse_args()
    output = arguments.output.resolve()
    BUILD.mkdir(exist_ok=True)
    make(output)
    if arguments.check:
        sys.exit(subprocess.run(["/usr/bin/python3", ROOT / "tests/page/site_test.py", output]).returncode)


if __name__ == "__main__":
    main()
