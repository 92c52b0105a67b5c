"""Gloo's ibverbs transport, which a program of our own uses (programs/gloo_collectives.cc)."""

import pathlib
import shutil
import tempfile

import frame
from frame import Case
from harness import LIMIT

NAME = "Gloo"
PACKAGES = ["libgloo-dev"]
WHAT = ("The `ibverbs` transport with 4 ranks, used by a program of this repository: all-reduce (ring, chunked ring, "
        "halving and doubling), broadcast and barrier, with 8 bytes to 2 MB. The program checks every word.")

SOURCE = pathlib.Path(__file__).resolve().parent / "programs" / "gloo_collectives.cc"
RANKS = 4
LARGEST_BYTES = 2_000_000


def collectives(stage, place, options=()):
    """Runs the collectives. The ranks alternate between the place's two ends."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tulle-gloo-"))
    stage.addCleanup(shutil.rmtree, folder)
    folder.chmod(0o777)  # the ranks leave files for each other here, also those of an ordinary user
    program = folder / "gloo_collectives"
    stage.run_program("c++", "-std=c++17", "-O1", "-o", program, SOURCE, "-lgloo", limit=3 * LIMIT)
    meeting = folder / "meeting"
    meeting.mkdir()
    meeting.chmod(0o777)
    ranks = [stage.start(*place.prefix, *stage.over_tulle([program, meeting, rank, RANKS], options),
                         net=(place.server, place.client)[rank % 2]) for rank in range(RANKS)]
    for process in ranks:
        stage.assertEqual(0, process.wait(), "\n".join(rank.describe() for rank in ranks))
    stage.assertIn(f"ok: {RANKS} ranks", ranks[0].stdout)


def cases():
    def case(name, place, options=()):
        return Case(name, lambda stage: collectives(stage, place(stage), options), bytes_min=LARGEST_BYTES)

    yield case("one_host", frame.one_host)
    yield case("packets", frame.one_host, ["--no-direct"])
    yield case("two_hosts", frame.two_hosts)
    yield case("ordinary_user", frame.ordinary_user)
