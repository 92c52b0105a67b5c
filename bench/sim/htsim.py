"""Runs another simulator, htsim (https://github.com/Broadcom/csg-htsim), on a workload: its RoCE with PFC alone.

htsim is not part of Tulle. Build its program `htsim_roce` in its own folder, and name it to ./dev bench sim --htsim.
"""

import re

# The longest flow of the reference workloads takes nine times as long as it would alone. htsim ends at this many times.
TIMES_ALONE = 25
FINISHED = re.compile(r"^Flow \S+ \d+ finished at ([0-9.e+-]+) total bytes (\d+)", re.MULTILINE)


def command(program, workload, folder):
    """Writes the connection matrix of a workload on a fat tree to the folder, and returns the command that simulates it."""
    hosts = workload.fat_tree_hosts
    lines = [f"Nodes {hosts}", f"Connections {len(workload.pairs)}"]
    lines += [f"{src}->{dst} id {number} start 0 size {workload.flow_bytes}"
              for number, (src, dst) in enumerate(workload.pairs, 1)]
    matrix = folder / "htsim.cm"
    matrix.write_text("\n".join(lines) + "\n")
    end_us = round(TIMES_ALONE * workload.flow_bytes * 8 / workload.gbps / 1e3)
    # A host's flows each take one path, by a hash. The queues never overflow: PFC stops the neighbours long before.
    return [program, "-o", folder / "htsim.log", "-tm", matrix, "-nodes", hosts, "-tiers", 3, "-linkspeed", workload.gbps * 1000,
            "-mtu", 4096, "-strat", "ecmp_host", "-paths", 128, "-q", 1000, "-end", end_us]


def completion_times_us(output):
    """Returns the completion time of each flow that htsim says has finished."""
    return [float(found[1]) for found in FINISHED.finditer(output)]
