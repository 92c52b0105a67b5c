#!/usr/bin/python3
"""Compares what a drop-in library exports with a list: every symbol at its version, and nothing else.

symbols_test.py LIST LIBRARY
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
    """Each node with its parents, as the dynamic linker sees them."""
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


def main():
    list_path, library = sys.argv[1:]
    with open(list_path, encoding="utf-8") as file:
        lines = {line.strip() for line in file if line.strip() and not line.startswith("#")}
    expected_soname = next(line.split()[1] for line in lines if line.startswith("soname "))
    wanted = {line for line in lines if not line.startswith("soname ")}
    found = exported(library) | version_nodes(library)
    for line in sorted(wanted - found):
        print("missing:", line)
    for line in sorted(found - wanted):
        print("too much:", line)
    if soname(library) != expected_soname:
        print("soname:", soname(library))
    return int(wanted != found or soname(library) != expected_soname)


if __name__ == "__main__":
    sys.exit(main())
