#!/usr/bin/python3
"""Lists the symbols that a library exports, in the form of the tables *.symbols beside this script.

list_symbols.py LIBRARY "TITLE" > NAME-RELEASE.symbols

It is run for the next release of rdma-core, once for each of libibverbs.so.1, librdmacm.so.1 and libibumad.so.3:

    list_symbols.py libibverbs.so.1 "Debian 14's libibverbs.so.1 (rdma-core 65)" > libibverbs-65.symbols

Afterwards symbols_test.py names what the drop-in library lacks.
"""

import sys

from symbols_test import exported, soname, version_nodes


def order(node):
    """Returns a sort key: nodes come as the linker's script has them, by number and with the private ones last."""
    return "PRIVATE" in node, [int(part) for part in node.rsplit("_", 1)[1].split(".")]


def symbol_order(line):
    """Returns a sort key: by node, and within a node the old versions first, then by name."""
    name, _, node = line.split()[1].partition("@")
    is_default = node.startswith("@")
    return order(node.lstrip("@")), is_default, name


def main():
    library, title = sys.argv[1:]
    print(f"# What {title} exports: version nodes with their parents, then symbols; @@ marks")
    print("# the default version. tests/abi/symbols_test.py compares it with the drop-in library.")
    print("soname", soname(library))
    for line in sorted(version_nodes(library), key=lambda line: order(line.split()[1])):
        print(line)
    for line in sorted(exported(library), key=symbol_order):
        print(line)


if __name__ == "__main__":
    main()
