"""Attacks that are made before there is a host agent, or on what programs start from."""

import dataclasses


@dataclasses.dataclass
class Result:
    deeds: int = 0
    scanned: int = 0
    skipped: str = ""
    found: list = dataclasses.field(default_factory=list)


ATTACKS = {}
