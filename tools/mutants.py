"""The small changes that ./dev mutate makes to a source, one at a time, and what they look like.

A mutant is a range of the text and what takes its place. It never changes the number of lines, so that assertions report
the same places. The operators read the text as tokens and lines, not as C++: a change that does not compile is not
counted.
"""

import bisect
import dataclasses
import difflib
import re

# A literal with an apostrophe between digits (1'000) is a number, not a character.
HIDDEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
# Assertions say what cannot happen, so no test can notice a change of one. The others change the speed at most.
SKIPPED_LINE = re.compile(r"^\s*(#|using |namespace |static_assert|template|friend |TULLE_CHECK)|prefetch|\breserve\("
                          r"|shrink_to_fit")
COMPARISONS = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",)}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "&": "|", "|": "&", "^": "|", "<<": ">>", ">>": "<<"}
ASSIGNMENTS = {"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "|=": "&=", "&=": "|=", "<<=": ">>=", ">>=": "<<="}
WORDS = {"true": "false", "false": "true", "std::min": "std::max", "std::max": "std::min"}
NUMBER = re.compile(r"(?<![\w.'])(0[xX][0-9a-fA-F']+|\d[\d']*)([uU]?[lL]{0,2})(?![\w.'])")
DECLARATION = re.compile(r"^(const |constexpr |static |auto\b|struct |class |enum |[\w:<>,*& ]*[\w>*&] [*&]?\w+( =|;|\{|\[|\())")
NO_STATEMENT = re.compile(r"^(return|if|else|for|while|do|switch|case|default|goto|throw|using|public|private|protected)\b|^[{}]")


@dataclasses.dataclass(frozen=True)
class Mutant:
    begin: int
    end: int
    text: str
    operator: str
    line: int

    def apply(self, source):
        return source[: self.begin] + self.text + source[self.end:]


def hide(source):
    """Returns the source with blanks for its comments and literals, so that every index stays what it is."""
    return HIDDEN.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), source)


def closing(code, opening):
    """Returns the index of the parenthesis that closes the one at `opening`, or None."""
    depth = 0
    for at in range(opening, len(code)):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        if depth == 0:
            return at
    return None


def replacements(code):
    """Yields (begin, end, text, operator) for the changes of single tokens."""
    for match in re.finditer(r"(?<= )(<=|>=|==|!=|<|>)(?= )", code):
        for other in COMPARISONS[match.group()]:
            yield (*match.span(), other, "comparison")
    for match in re.finditer(r"(?<= )(<<|>>|[-+*/%&|^])(?=\s)", code):
        yield (*match.span(), ARITHMETIC[match.group()], "arithmetic")
    for match in re.finditer(r"(?<= )(<<=|>>=|[-+*/|&]=)(?= )", code):
        yield (*match.span(), ASSIGNMENTS[match.group()], "assignment")
    for match in re.finditer(r"&&|\|\|", code):
        if code[match.start() - 1] == " ":
            yield (*match.span(), "||" if match.group() == "&&" else "&&", "logic")
    for match in re.finditer(r"\b(true|false|std::min|std::max)\b(?!<)", code):
        yield (*match.span(), WORDS[match.group()], "word")
    for match in re.finditer(r"(?<![\w)\]])(\+\+|--)(?=\w)|(?<=[\w)\]])(\+\+|--)(?=[;)\]])", code):
        yield (*match.span(), "--" if match.group() == "++" else "++", "step")
    for match in NUMBER.finditer(code):
        digits = match.group(1).replace("'", "")
        is_octal = len(digits) > 1 and digits.startswith("0") and digits.isdigit()
        value = int(digits, 8 if is_octal else 0)
        for other in {value + 1, max(value - 1, 0)} - {value}:
            yield (*match.span(), f"{other}{match.group(2)}", "constant")
    for match in re.finditer(r"(?<=\w)\((\w+), (\w+)\)", code):
        if match.group(1) != match.group(2):
            yield (*match.span(), f"({match.group(2)}, {match.group(1)})", "arguments")
    for match in re.finditer(r"(?<=[ (,!])!(?=[\w(])", code):
        yield (*match.span(), "", "negation")


def conditions(code):
    """Yields the changes of the conditions of if and while, which may span lines."""
    for match in re.finditer(r"\b(if|while) \(", code):
        opening = match.end() - 1
        end = closing(code, opening)
        if end is None or ";" in code[opening:end]:
            continue
        declares = re.match(r"\((const )?[\w:]+[*& ]+\w+ = ", code[opening:end])
        if declares:
            continue
        if re.search(r"&&|\|\|", code[opening:end]) or not re.search(r" [!=]= ", code[opening:end]):
            yield opening + 1, end, None, "negated condition"  # the operator of comparisons has the others
        yield opening + 1, end, False, "condition never true"


def statements(code):
    """Yields (begin, end) of each expression statement and jump that stands on lines of its own or behind an if."""
    begins = {match.end() for match in re.finditer(r"[;{}:]\s*\n[ ]+(?=\S)|\) \{ (?=\S)|\belse\s+(?=[^\s{])", code)}
    for match in re.finditer(r"\b(if|while|for) \(", code):
        end = closing(code, match.end() - 1)
        if end is not None:
            begins.add(end + 1 + len(re.match(r"\s*(\[\[\w+\]\])?\s*", code[end + 1:]).group()))
    for begin in sorted(begins):
        end = code.find(";", begin)
        if end < 0:
            continue
        statement = code[begin: end + 1]
        balanced = all(statement.count(a) == statement.count(b) for a, b in ("()", "[]", "{}"))
        if not balanced or NO_STATEMENT.match(statement) or DECLARATION.match(statement):
            continue
        if re.search(r"=|\(|\+\+|--", statement) or statement in ("continue;", "break;"):
            yield begin, end + 1


def returns(code):
    for match in re.finditer(r"\breturn\b([^;{}]*);", code):
        value = match.group(1).strip()
        if value in ("true", "false", ""):
            continue  # the operator of words has the first two
        yield match.start(1), match.end(1), "negated return"


def keep_lines(text, original):
    """Adds the line ends that the replaced text had."""
    return text + "\n" * (original.count("\n") - text.count("\n"))


def mutants_of(source):
    """Returns all mutants of a source, in the order of their places."""
    code = hide(source)
    starts = [0] + [match.end() for match in re.finditer(r"\n", source)]
    lines = code.split("\n")
    found = []

    def add(begin, end, text, operator):
        line = bisect.bisect_right(starts, begin) - 1
        if not SKIPPED_LINE.search(lines[line]):
            found.append(Mutant(begin, end, keep_lines(text, source[begin:end]), operator, line + 1))

    for begin, end, text, operator in replacements(code):
        add(begin, end, text, operator)
    for begin, end, text, operator in conditions(code):
        add(begin, end, f"!({source[begin:end]})" if text is None else f"false && ({source[begin:end]})", operator)
    for begin, end in statements(code):
        add(begin, end, ";", "dropped statement")
    for begin, end, operator in returns(code):
        add(begin, end, f" !({source[begin:end].strip()})", operator)
    return sorted(set(found), key=lambda mutant: (mutant.begin, mutant.end, mutant.text))


def diff_of(name, source, mutant):
    """Returns the change as the lines of a diff, without context."""
    lines = difflib.unified_diff(source.splitlines(), mutant.apply(source).splitlines(), name, name, n=0, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]
