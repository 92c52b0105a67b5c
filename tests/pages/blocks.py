"""Reads the blocks of a Markdown page: commands with the output that the page shows, files, and text.

A block is fenced, or indented by four spaces. These are blocks of commands:

    $ build/bin/tulle run -- ibv_devinfo        a prompt, and below it what the command prints; alpha$ and beta$ are
    hca_id: tulle0                              the prompts of two machines
    ./dev build          # into build/          lines that all begin with a command, with comments and continuations

TOML and fenced YAML are recognised as what they are. Every other block needs a directive, an HTML comment on lines of its
own before the block; a block without one is an error. CONTRIBUTING.md lists the directives.
"""

import dataclasses
import re
import textwrap
import tomllib

# First words of lines without a prompt that are commands.
COMMANDS = ("./dev", "build/bin/tulle", "tulle", "sudo", "apt-get", "export", "mpirun", "srun", "cmake", "cd", "git")
LANGUAGES = ("toml", "yaml", "json", "ini", "c", "c++", "cpp", "python", "text")
PROMPT = re.compile(r"(?:(?P<machine>alpha|beta)?\$ )(?P<command>.*)")
DIRECTIVE = re.compile(r"<!-- test: (.*?) -->", re.DOTALL)
MACHINES = ("alpha", "beta")


class Wrong(Exception):
    """A block or directive that the test does not understand."""

    def __init__(self, line, message):
        super().__init__(message)
        self.line, self.message = line, message


@dataclasses.dataclass
class Command:
    line: int
    text: str  # with its continuation lines
    machine: str = MACHINES[0]
    output: list = dataclasses.field(default_factory=list)  # (line, text) of what the page shows below it
    skip: str = ""  # the reason why the test leaves it out
    long: str = ""  # the reason why only the long mode runs it
    interrupted: bool = False  # it runs until Ctrl-C

    @property
    def plain(self):
        """The command in one line, without its comment."""
        joined = re.sub(r"\\\n\s*", "", self.text)
        return re.sub(r"\s+#( .*)?$", "", joined).strip()

    @property
    def in_background(self):
        return self.plain.endswith("&")


@dataclasses.dataclass
class Block:
    """Commands, or a file that the commands after it use."""

    line: int
    commands: list = dataclasses.field(default_factory=list)
    terminals: bool = False  # each command has a terminal of its own
    file: str = ""  # the file's name
    text: str = ""  # the file's text
    source: str = ""  # or the file of the repository that it is a copy of
    hidden: bool = False  # the page shows nothing of it


def read(text):
    """Returns the list of a page's Blocks, in order."""
    blocks, directives = [], []
    for kind, line, lines, language in _pieces(text):
        if kind == "directive":
            alone = _alone(line, lines)
            if alone is None:
                directives.append((line, lines))
            else:
                _nothing_pending(directives)
                blocks.append(alone)
        elif kind == "prose":
            _nothing_pending(directives)
        else:
            block = _block(line, lines, language, directives)
            directives = []
            if block is not None:
                blocks.append(block)
    _nothing_pending(directives)
    return blocks


def _nothing_pending(directives):
    if directives:
        raise Wrong(directives[0][0], f'no block follows the directive "{directives[0][1]}"')


def _pieces(text):
    """Yields (kind, line number, lines or the directive's text, language) of a page's directives, blocks and prose."""
    lines = text.split("\n")
    i, after_blank = 0, True
    while i < len(lines):
        line, start = lines[i], i
        fence = re.match(r"( *)(```+|~~~+)\s*(\S*)", line)
        if line.lstrip().startswith("<!--"):
            while "-->" not in lines[i] and i + 1 < len(lines):
                i += 1
            i += 1
            comment = " ".join(each.strip() for each in lines[start:i])
            if directive := DIRECTIVE.fullmatch(comment):
                yield "directive", start + 1, directive[1], None
            elif re.match(r"<!--\s*test", comment):
                raise Wrong(start + 1, f"not of the form <!-- test: DIRECTIVE -->: {comment}")
            after_blank = True
        elif fence:
            i += 1
            while i < len(lines) and not lines[i].strip().startswith(fence[2]):
                i += 1
            yield "block", start + 2, textwrap.dedent("\n".join(lines[start + 1 : i])).split("\n"), fence[3].lower()
            i += 1
            after_blank = True
        elif after_blank and line.startswith("    ") and line.strip():
            while i < len(lines) and (lines[i].startswith("    ") or not lines[i].strip()):
                i += 1
            yield "block", start + 1, textwrap.dedent("\n".join(lines[start:i]).rstrip()).split("\n"), None
            after_blank = True
        else:
            if line.strip():
                yield "prose", start + 1, None, None
            after_blank = not line.strip()
            i += 1


def _alone(line, directive):
    """Returns the Block of a directive that needs no block: a file of the repository, or a command that is not shown."""
    if found := re.fullmatch(r"file (\S+)=(\S+)", directive):
        return Block(line, file=found[1], source=found[2], hidden=True)
    if found := re.fullmatch(r"run (.+)", directive):
        return Block(line, commands=[Command(line, found[1])], hidden=True)
    return None


def _block(line, lines, language, directives):
    """Returns the Block that these lines are, or None for text."""
    words = [directive for _, directive in directives]
    for at, directive in directives:
        if directive == "text":
            return None
        if found := re.fullmatch(r"file (\S+)", directive):
            return Block(line, file=found[1], text="\n".join(lines) + "\n")
        if found := re.fullmatch(r"output of (.+)", directive):
            output = [(line + i, each) for i, each in enumerate(lines)]
            return Block(at, commands=[Command(at, found[1], output=output)])
    if language in LANGUAGES or (language is None and _is_toml(lines)):
        if words:
            raise Wrong(directives[0][0], f'the directive "{words[0]}" is for commands, and {language or "TOML"} follows')
        return None
    commands = _commands(line, lines)
    if commands is None:
        raise Wrong(line, f'neither commands nor TOML: "{lines[0].strip()}"; a directive has to say what the block is')
    block = Block(line, commands=commands)
    for at, directive in directives:
        _apply(block, at, directive)
    return block


def _is_toml(lines):
    try:
        return bool(tomllib.loads("\n".join(lines)))
    except tomllib.TOMLDecodeError:
        return False


def _commands(line, lines):
    """Returns the Commands of a block, or None if it is not of commands."""
    if PROMPT.match(lines[0]):
        return _prompted(line, lines)
    commands = []
    for number, text in _joined(line, lines):
        if text.strip() and not text.lstrip().startswith("#"):
            if text.split()[0] not in COMMANDS:
                return None
            commands.append(Command(number, text))
    return commands or None


def _prompted(line, lines):
    commands = []
    for number, text in _joined(line, lines):
        prompt = PROMPT.match(text)
        if prompt:
            commands.append(Command(number, text[prompt.start("command") :], machine=prompt["machine"] or MACHINES[0]))
        else:
            commands[-1].output.extend((number + i, each) for i, each in enumerate(text.split("\n")))
    return commands


def _joined(line, lines):
    """Yields (line number, text), with lines that a backslash continues as one text."""
    i = 0
    while i < len(lines):
        start = i
        while lines[i].endswith("\\") and i + 1 < len(lines):
            i += 1
        i += 1
        yield line + start, "\n".join(lines[start:i])


def _apply(block, line, directive):
    if found := re.fullmatch(r"(skip|long)(?: (.+?))?: (.+)", directive):
        for command in _those(block, line, found[2]):
            setattr(command, found[1], found[3])
    elif found := re.fullmatch(r"ctrl-c(?: (.+))?", directive):
        for command in _those(block, line, found[1]):
            command.interrupted = True
    elif found := re.fullmatch(r"terminals((?: (?:alpha|beta))*)", directive):
        block.terminals = True
        if machines := found[1].split():
            if len(machines) != len(block.commands):
                raise Wrong(line, f"{len(machines)} machines for {len(block.commands)} commands")
            for command, machine in zip(block.commands, machines):
                command.machine = machine
    else:
        raise Wrong(line, f'unknown directive "{directive}"')


def _those(block, line, beginning):
    """Returns the commands that begin so, or all of them."""
    found = [command for command in block.commands if command.plain.startswith(beginning or "")]
    if not found:
        raise Wrong(line, f'no command of the block begins with "{beginning}"')
    return found
