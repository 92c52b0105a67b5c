"""The outcomes as a page for people: docs/compatibility.md."""

import collections

import frame

HEAD = """# Compatibility

What runs over Tulle today, from Debian 12's packages as they are. `./dev compat` ran the programs and wrote this page;
every word of a reason below is a test's own. What did not pass stands below with its reason, and at the end
[every test](#every-test).

| program | version | what was run | outcome |
| --- | --- | --- | --- |
"""


def counts(results):
    counted = collections.Counter(result.outcome for result in results)
    return ", ".join(f"{counted[outcome]} {outcome}" for outcome in frame.OUTCOMES if counted[outcome])


def cell(text):
    return " ".join(text.replace("|", "\\|").split())


def by_reason(results):
    """{reason: its tests}, in the order of their first."""
    groups = {}
    for result in results:
        groups.setdefault(result.reason, []).append(result.test)
    return groups


def details(results):
    """Everything that did not pass, joined where the reason is one."""
    yield "| outcome | tests | reason |\n| --- | --- | --- |\n"
    for outcome in frame.OUTCOMES[1:]:
        for reason, tests in by_reason([r for r in results if r.outcome == outcome]).items():
            named = ", ".join(f"`{test}`" for test in tests)
            yield f"| {outcome} | {named} | {cell(reason) or 'none given'} |\n"


def every_test(told):
    yield "\n## Every test\n"
    for suite, results in told:
        yield f"\n### {suite.NAME}: all\n\n| test | outcome |\n| --- | --- |\n"
        for result in results:
            yield f"| `{result.test}` | {result.outcome} |\n"


def write(told):
    """The whole page, from [(suite, results)]."""
    text = HEAD
    for suite, results in told:
        version = frame.version(suite.PACKAGES[0]) or "–"
        text += f"| {suite.NAME} | {version} | {cell(suite.WHAT)} | {counts(results)} |\n"
    for suite, results in told:
        notes = getattr(suite, "NOTES", "")
        rest = [result for result in results if result.outcome != "pass"]
        if not notes and not rest:
            continue
        text += f"\n## {suite.NAME}\n"
        if notes:
            text += f"\n{notes.strip()}\n"
        if rest:
            text += "\n" + "".join(details(rest))
    return text + "".join(every_test(told))
