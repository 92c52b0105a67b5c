#!/usr/bin/python3
"""Compares what a drop-in library exports with tables, one for each release of the library whose place it takes.

symbols_test.py LIBRARY TABLE-RELEASE.symbols …

The library must have each table's symbols at their version nodes, and no symbol that no table has. If a symbol's
default version differs between releases, the newest release that has the symbol decides.
"""

import re
import subprocess
import sys


def readelf(option, library):
    command = ["readelf", "-W", option, library]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(library):
    symbols = set()
    for line in readelf("--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].endswith(":") or fields[6] in ("UND", "ABS"):
            continue
        if fields[4] in ("GLOBAL", "WEAK", "UNIQUE"):
            symbols.add(f"{fields[3].lower()} {fields[7]}")
    return symbols


def version_nodes(library):
    """Returns each version node with its parents, as the dynamic linker sees them."""
    nodes = set()
    name = None
    text = readelf("-V", library).split("Version definition section")[1].split("\n\n")[0]
    for line in text.splitlines():
        parent = re.search(r"Parent \d+: (\S+)", line)
        if parent:
            nodes.discard(f"node {name}")
            nodes.add(f"node {name} {parent[1]}")
        elif (found := re.search(r"Flags: (\S+).* Name: (\S+)", line)) and found[1] != "BASE":
            name = found[2]
            nodes.add(f"node {name}")
    return nodes


def soname(library):
    return re.search(r"Library soname: \[(.+)\]", readelf("-d", library))[1]


def release_of(path):
    return int(re.search(r"-(\d+)\.symbols$", path)[1])


def read_table(path):
    with open(path, encoding="utf-8") as file:
        return {line.strip() for line in file if line.strip() and not line.startswith("#")}


def merge(tables):
    """Returns all tables as one. They come in the order of their releases, so that a later default replaces an
    earlier one."""
    defaults = {}  # a symbol's name: its node
    merged = set()
    for table in tables:
        for line in table:
            symbol, is_default, node = line.partition("@@")
            if is_default:
                defaults[symbol] = node
                merged.add(f"{symbol}@{node}")
            else:
                merged.add(line)
    for symbol, node in defaults.items():
        merged.remove(f"{symbol}@{node}")
        merged.add(f"{symbol}@@{node}")
    return merged


def main():
    library, *paths = sys.argv[1:]
    wanted = merge([read_table(path) for path in sorted(paths, key=release_of)])
    found = exported(library) | version_nodes(library) | {f"soname {soname(library)}"}
    for line in sorted(wanted - found):
        print("missing:", line)
    for line in sorted(found - wanted):
        print("too much:", line)
    return int(not paths or wanted != found)


if __name__ == "__main__":
    sys.exit(main())
