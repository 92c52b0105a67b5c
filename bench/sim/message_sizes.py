#!/usr/bin/env python3
"""Prints the rate of messages of several sizes from one host to another over one queue pair, 16 at a time, beside what
was published of adapters of 400 Gb/s (docs/fidelity.md, "Message size and bandwidth").

Usage: message_sizes.py [--tulle build/bin/tulle] [--fabric infiniband-ndr]
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

IN_FLIGHT = 16
MESSAGES = 512
# GB/s by KiB, as ranges: arXiv 2504.17307v2 (UCCL), read second-hand in SimLLM's docs/papers/msg-size-vs-bandwidth.md.
MESSAGES_PUBLISHED = {32: "27 to 30", 64: "45", 128: "50", 256: "50"}  # figure 14: 16 messages in flight
CHUNKS_PUBLISHED = {8: "30 to 35", 16: "45", 32: "50"}  # figure 15a: pieces of an all-to-all


def schedule(kibibytes):
    """Returns a GOAL schedule in which each message waits until the one 16 before it has been acknowledged."""
    lines = ["num_ranks 2", "rank 0 {"]
    for i in range(MESSAGES):
        lines.append(f"s{i}: send {kibibytes << 10}b to 1 tag {i}")
        if i >= IN_FLIGHT:
            lines.append(f"s{i} requires s{i - IN_FLIGHT}")
    lines += ["}", "rank 1 {"]
    lines += [f"r{i}: recv {kibibytes << 10}b from 0 tag {i}" for i in range(MESSAGES)]
    return "\n".join([*lines, "}"]) + "\n"


def gbytes(tulle, fabric, kibibytes):
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "messages.goal"
        trace.write_text(schedule(kibibytes))
        servers = pathlib.Path(folder) / "servers.toml"
        servers.write_text('title = "one GPU"\ngpus = 1\nadapters = 1\nscale_up_rate = "3600Gbps"\n')
        out = subprocess.run([tulle, "compare", "--json", "--workload", trace, "--gpus", "2", "--servers", servers,
                              "--fabrics", fabric], check=True, capture_output=True, text=True).stdout
    return MESSAGES * (kibibytes << 10) / json.loads(out)["job_us"] * 1e-3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tulle", default="build/bin/tulle")
    parser.add_argument("--fabric", default="infiniband-ndr")
    options = parser.parse_args()
    print("KiB    GB/s  published: messages, chunks")
    for kibibytes in 4, 8, 16, 32, 64, 128, 256, 1024:
        print(f"{kibibytes:4}  {gbytes(options.tulle, options.fabric, kibibytes):6.1f}  "
              f"{MESSAGES_PUBLISHED.get(kibibytes, '-')}, {CHUNKS_PUBLISHED.get(kibibytes, '-')}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
