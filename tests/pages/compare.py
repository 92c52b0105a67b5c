"""Compares what a page shows below a command with what the command printed.

- `[...]` stands for any lines. Blank lines, indentation and the width of gaps do not count.
- Numbers may differ, with their units: live figures vary from run to run.
- In the table of a simulation, whose heading begins with "fabric" or "variant", every figure counts. The page may leave
  out rows and columns of it.
"""

import re

LEFT_OUT = "[...]"
NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?: ?(?:[KMGT]i?B/s|[KMGT]?bps|[num]?s)\b)?")
TABLES = ("fabric", "variant")


def _words(line):
    return " ".join(NUMBER.sub("#", line).split())


def _cells(line):
    return re.split(r"\s{2,}", line.strip())


def _is_heading(line):
    cells = _cells(line)
    return len(cells) > 2 and cells[0] in TABLES


def _columns(wanted, found):
    """Returns where the cells of a heading are among those of another, in order, or None."""
    places, start = [], 0
    for cell in wanted:
        if cell not in found[start:]:
            return None
        places.append(found.index(cell, start))
        start = places[-1] + 1
    return places


def _quoted(line):
    line = " ".join(line.split())
    return f'"{line if len(line) <= 100 else line[:97] + "..."}"'


def difference(shown, printed):
    """Returns None, or (the page's line, what differs). `shown` is a list of (line number, text), `printed` a text."""
    printed = [line for line in printed.splitlines() if line.strip()]
    at, gap, columns = 0, False, None
    for number, text in shown:
        if not text.strip():
            continue
        if text.strip() == LEFT_OUT:
            gap, columns = True, None
            continue
        if columns and len(_cells(text)) == len(columns):
            def fits(line):
                cells = _cells(line)
                return len(cells) > columns[-1] and [cells[i] for i in columns] == _cells(text)  # noqa: B023
        elif _is_heading(text):
            def fits(line):
                return _is_heading(line) and _columns(_cells(text), _cells(line)) is not None  # noqa: B023
        else:
            columns = None

            def fits(line):
                return _words(line) == _words(text)  # noqa: B023
        reachable = range(at, len(printed)) if gap or columns else range(at, min(at + 1, len(printed)))
        found = next((i for i in reachable if fits(printed[i])), None)
        if found is None:
            return number, f"{_quoted(text)} is not what it printed{_instead(printed, at, reachable, text)}"
        if columns is None and _is_heading(text):
            columns = _columns(_cells(text), _cells(printed[found]))
        at, gap = found + 1, columns is not None
    if at < len(printed) and not gap:
        return shown[-1][0], f"it also printed {_quoted(printed[at])}"
    return None


def _instead(printed, at, reachable, text):
    """What to say of the line that came in place of the text: one with the same first word, or the next."""
    first = _cells(text)[0]
    for i in reachable:
        if _cells(printed[i])[0] == first:
            return f", but {_quoted(printed[i])}"
    return f", but {_quoted(printed[at])}" if at < len(printed) else ", which ends before"
