"""The words a command line may have, and the help made from them."""

from __future__ import annotations

import argparse
import re
import shlex
from typing import Final, NoReturn

from ipyagent_sessions.errors import UsageError

COMMANDS: Final = {
    "run": "start a workflow, or continue the unfinished task of the same call",
    "ask": "send a prompt to an agent, or continue the conversation",
    "resume": "continue a task that is suspended, interrupted or lost",
    "pause": "let open activities finish and stop; once more: stop them",
    "cancel": "end a task for good; declared compensations run",
    "approve": "answer yes to a request that waits",
    "deny": "answer no to a request that waits",
    "ls": "the sessions, newest change first",
    "status": "a task now: state, progress, what it waits for",
    "log": "the events of a session",
    "state": "the folded state, now or after any event",
    "checkpoints": "the snapshots of a session, verified",
    "checkpoint": "take a named checkpoint now",
    "effects": "what a session did to the world, and what is undone",
    "rollback": "bring files back to what they held; says first what would change",
    "fork": "a new session that shares the log up to an event",
    "replay": "what happened, rebuilt from the log; nothing is executed",
    "rerun": "do a task again for real, as a new task; results may differ",
    "sql": "one SELECT over the history of all sessions",
    "rename": "give a session another title",
    "export": "write a session to one file: an archive, a notebook, JSONL or ATIF",
    "import": "open an archive, or a transcript of Claude Code, Codex or Pi; the session is in replay",
    "memory": "what sessions share, by namespace",
    "gc": "what has outlived its retention, and why; --yes removes it",
    "delete": "delete a session; says first what is lost and what depends on it",
    "verify": "derive again what can be derived, and name damage by its place",
    "upgrade": "what an older version wrote, in the form of this one; says first what would change",
    "doctor": "what this installation has, and what to mend",
    "models": "which models are usable here, and why the others are not",
    "tools": "which tools an agent has here, and why it has not the others",
    "config": "the settings in force, and where each is from",
    "help": "this list, a command, or the topic: states",
}


RUN_OPTIONS: Final = frozenset({"bg", "out", "durability", "title", "session", "new", "once", "pickle", "budget", "recover"})
"""The options of `run`: a workflow's parameter of such a name is given behind `--`."""


_DIGITS: Final = 9
"""How many a number of things may have."""


class _Parser(argparse.ArgumentParser):
    """Raises UsageError instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", hint=self.in_line())

    def in_line(self) -> str:
        """The usage in one line."""
        return " ".join(self.format_usage().split())

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise UsageError((message or "").strip())


def whole(text: str) -> int:
    """A number of things.  Raises ArgumentTypeError, of which argparse makes an error that names the option."""
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 1 with at most {_DIGITS} digits")


def build(prefix: str) -> tuple[_Parser, dict[str, _Parser]]:
    """The parser of a door, and the parsers of its commands by name."""
    root = _Parser(prog=prefix, add_help=False, allow_abbrev=False)
    made = root.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    commands = {
        name: made.add_parser(name, help=text, description=text, add_help=False, allow_abbrev=False)
        for name, text in COMMANDS.items()
    }
    for name in (
        "resume",
        "pause",
        "cancel",
        "approve",
        "deny",
        "status",
        "log",
        "state",
        "checkpoints",
        "effects",
        "rollback",
        "fork",
        "replay",
        "rerun",
    ):
        commands[name].add_argument("id", nargs="?", metavar="ID", help="a session or task; default: @last")
    _ask(commands["ask"])
    _running(commands)
    _fork(commands["fork"])
    _asking(commands)
    _looking(commands)
    return root, commands


def _running(commands: dict[str, _Parser]) -> None:
    run = commands["run"]
    run.add_argument("target", metavar="TARGET", help="a workflow of this notebook, or module:name")
    asked = commands["ask"]
    for parser in (run, asked, commands["resume"]):
        parser.add_argument(
            "--budget", default="", metavar="LIMITS", help="usd=1,tokens=50k,steps=20,time=10m; for resume: that much more"
        )
    for parser in (run, asked, commands["rerun"], commands["resume"]):
        parser.add_argument("--bg", action="store_true", help="return a handle at once")
        parser.add_argument("--out", metavar="VAR", help="put the result into this variable")
    for parser in (run, asked, commands["resume"]):
        parser.add_argument(
            "--recover",
            metavar="ask|auto:N",
            help="go on by itself N times after an outage or a crash; default: ask, for resume as before",
        )
    for parser in (run, asked, commands["rerun"]):
        parser.add_argument("--durability", choices=["sync", "async", "exit"], default="sync")
        parser.add_argument("--title", default="")
    run.add_argument("--session", metavar="ID|NAME|new", help="start in this session, by id or title")
    run.add_argument("--new", action="store_true", help="start another task even if one of the same call is unfinished")
    run.add_argument("--once", action="store_true", help="return the result of a completed task of the same call")
    run.add_argument("--pickle", action="store_true", help="keep results that only pickle can keep")
    run.epilog = "Everything else is for the workflow: values, or --name value.  After -- all is, also what is an option here."
    commands["resume"].add_argument("--say", default="", metavar="TEXT", help="an instruction to go on with")
    commands["resume"].add_argument(
        "--redo", action="append", default=[], metavar="NAME[:KEY]", help="run this activity again"
    )
    for parser in (commands["resume"], commands["rerun"]):
        parser.add_argument(
            "--setup-cells", action="store_true", help="in a terminal: first run the cells of its notebook tagged agent-setup"
        )
    commands["resume"].add_argument("--take-over", action="store_true", help="fence a holder that is stopped")
    commands["rerun"].add_argument("--yes", action="store_true", help="yes, for real: it costs again and results may differ")
    commands["rerun"].add_argument("--n", type=whole, default=1, metavar="N", help="how many times, one after another")


def _ask(asked: _Parser) -> None:
    asked.add_argument("prompt", nargs="*", metavar="PROMPT", help="{name} inserts a variable, {{ is a brace")
    asked.add_argument(
        "--model", default="", help="openai:NAME, anthropic:NAME, ollama:NAME, a name of the settings, scripted:FILE"
    )
    asked.add_argument(
        "--approve", choices=["ask", "auto", "never"], default="ask", help="what happens to calls that need a person"
    )
    asked.add_argument("--schema", default="", metavar="TYPE", help="a type of this notebook that the answer has")
    asked.add_argument(
        "--check", default="", metavar="COMMAND", help="has to end with exit code 0; else files go back and it tries again"
    )
    asked.add_argument("--attempts", type=int, metavar="N", help="how often, with --check; default: 3")
    asked.add_argument(
        "--files", action="append", metavar="PATTERN", help="with --check: of these also what commands change goes back"
    )
    asked.add_argument("--session", metavar="ID|NAME|new", help="the conversation to go on with")
    asked.add_argument("--new", action="store_true", help="another turn even if one of the same call is unfinished")


def _fork(fork: _Parser) -> None:
    fork.add_argument("--at", metavar="SEQ|LABEL", help="an event, or a checkpoint's label; default: the newest event")
    fork.add_argument("--direction", default="", metavar="TEXT", help="what the fork is to try")
    fork.add_argument("--title", default="")
    fork.add_argument("--isolate", action="store_true", help="in a workspace of its own, with the files as they were then")


def _asking(commands: dict[str, _Parser]) -> None:
    commands["cancel"].add_argument("--reason", default="")
    for name in ("approve", "deny"):
        commands[name].add_argument("--approval", metavar="ID", help="which request, when several wait")
        commands[name].add_argument("--reason", default="")
    commands["approve"].add_argument("--choice", help="for a request that has choices")
    commands["approve"].add_argument("--arguments", metavar="JSON", help="call the tool with these arguments instead")
    commands["approve"].add_argument("--always", action="store_true", help="do not ask for this tool again in this session")
    commands["approve"].add_argument(
        "--activity", metavar="ID", help="of the calls that may have happened, this one; default: all of the request"
    )
    commands["approve"].add_argument("--result", metavar="JSON", help="what the call returned that happened")
    commands["checkpoint"].add_argument("label", metavar="LABEL")
    commands["checkpoint"].add_argument("id", nargs="?", metavar="ID")
    commands["rename"].add_argument("id", metavar="ID")
    commands["rename"].add_argument("title", metavar="TITLE")


def _looking(commands: dict[str, _Parser]) -> None:
    commands["ls"].add_argument("--all", action="store_true", help="of every notebook, and more than 20")
    commands["log"].add_argument("--last", type=whole, default=50, metavar="N", help="the newest N events; default: 50")
    commands["log"].add_argument("--type", default=None, metavar="TYPE", help="events of this type only")
    commands["state"].add_argument("--at", metavar="SEQ|LABEL", help="an event, or a checkpoint's label")
    back = commands["rollback"]
    back.add_argument("--to", metavar="SEQ|LABEL", help="to how they were after this event; default: before the newest task")
    back.add_argument("--file", action="append", default=[], metavar="PATH", help="only this one; may be given again")
    back.add_argument("--merge", action="store_true", help="where somebody edited a text since: keep these edits")
    back.add_argument("--yes", action="store_true", help="do it")
    commands["effects"].add_argument("--after", metavar="SEQ|LABEL", help="from after an event, or a checkpoint's label")
    commands["replay"].add_argument(
        "--last", type=whole, default=200, metavar="N", help="show the newest N events; default: 200"
    )
    commands["replay"].add_argument("--to", metavar="SEQ|LABEL", help="an event, or a checkpoint's label")
    commands["sql"].add_argument(
        "query", nargs="?", default="", metavar="QUERY", help="in quotes; options before or behind it"
    )
    commands["sql"].add_argument("--out", metavar="VAR", default=None, help="put the result into this variable")
    commands["sql"].add_argument(
        "--format", choices=["table", "json", "csv"], default="table", help="of what is printed; default: table"
    )
    _files(commands)
    commands["verify"].add_argument("id", nargs="?", metavar="ID", help="a session; default: the whole store")
    commands["verify"].add_argument(
        "--repair",
        action="store_true",
        help="make checkpoints and summaries anew where they are wrong; the log is never touched",
    )
    commands["upgrade"].add_argument("id", nargs="?", metavar="ID", help="a session; default: the whole store")
    commands["upgrade"].add_argument("--yes", action="store_true", help="do it; what is replaced is kept")
    commands["config"].add_argument("--file", metavar="FILE", default=None, help="a YAML file with a checkpoint block")
    commands["help"].add_argument("topic", nargs="?", default=None)


def _files(commands: dict[str, _Parser]) -> None:
    export = commands["export"]
    export.add_argument("id", nargs="?", metavar="ID", help="a session; default: @last")
    export.add_argument("file", nargs="?", metavar="FILE", help="default: the id, in this folder")
    form = export.add_mutually_exclusive_group()
    form.add_argument("--notebook", action="store_true", help="its story as a notebook")
    form.add_argument("--jsonl", action="store_true", help="its events as JSON, one a line")
    form.add_argument("--atif", action="store_true", help="its story as an ATIF trajectory")
    form.add_argument("--otel", action="store_true", help="its tasks, requests and calls as spans of OpenTelemetry (OTLP)")
    commands["memory"].add_argument(
        "namespace", nargs="?", default="", metavar="NAMESPACE", help="and those below; default: all"
    )
    commands["memory"].add_argument("--search", default="", metavar="TEXT", help="what key or value hold")
    commands["memory"].add_argument("--forget", default=None, metavar="KEY", help="remove this entry")
    commands["gc"].add_argument("--yes", action="store_true", help="remove what is listed; the log and its results stay")
    commands["delete"].add_argument("id", metavar="ID", help="a session")
    commands["delete"].add_argument("--yes", action="store_true", help="do it; forks first get the part that they share")
    brought = "an archive that export made, or a transcript of Claude Code, Codex or Pi (.jsonl)"
    commands["import"].add_argument("file", metavar="FILE", help=brought)


def split(line: str) -> list[str]:
    """The words of a line, with quotes as in a shell.  The query of `sql` is kept as it is."""
    command, _, rest = line.strip().partition(" ")
    if command == "sql":
        return _sql_words(rest.strip())
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"the line cannot be read: {error}", hint="close the quote") from error


def _sql_words(rest: str) -> list[str]:
    """The options, and the query as it is written: after a line of a notebook's cell, or in quotes with options behind it."""
    words = ["sql"]
    while option := _SQL_OPTION.match(rest):
        words += option[0].split()
        rest = rest[option.end() :]
    if quoted := _SQL_QUOTED.fullmatch(rest):
        return [*words, quoted[2], *quoted[3].split()]
    return [*words, rest]


_SQL_OPTION: Final = re.compile(r"--(?:out|format)(=\S*|\s+\S+)\s*")
_SQL_QUOTED: Final = re.compile(r"""(['"])((?:(?!\1).)*)\1((?:\s+--[a-z].*)?)""", re.DOTALL)
"""No statement of SQL begins with a quote."""


def _parse_sql(command: _Parser, words: list[str]) -> argparse.Namespace:
    """The words of `sql`: options, the query in one word or several, options.  Raises UsageError for what is no option.

    A word with a space is no option: a query may begin with a comment.
    """
    start = 0
    while start < len(words) and _OPTION.fullmatch(words[start]):
        start += 1 if "=" in words[start] else 2
    end = next((i for i in range(start, len(words)) if _OPTION.fullmatch(words[i])), len(words))
    parsed, rest = command.parse_known_args([*words[:start], *words[end:]], argparse.Namespace(command="sql"))
    rest += filter(None, [parsed.query])
    if rest:
        raise UsageError(f"{command.prog}: {rest[0]!r} is not known", hint=command.in_line())
    parsed.query = " ".join(words[start:end])
    return parsed


_OPTION: Final = re.compile(r"--[a-z]\S*")


def parse(prefix: str, words: list[str]) -> argparse.Namespace:
    """The command of a line's words; for `run`, `arguments` is what is left for the workflow.  Raises UsageError."""
    root, commands = build(prefix)
    words = words or ["help"]
    if words[0] == "sql":
        return _parse_sql(commands["sql"], words[1:])
    ours, theirs = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    if ours and ours[0] in commands and ours[0] != "run":  # options may stand between an ID and a FILE
        command = commands[ours[0]]
        command.usage = command.format_usage().removeprefix("usage: ").replace("%", "%%")  # argparse keeps it unescaped
        parsed, rest = command.parse_known_intermixed_args(ours[1:], argparse.Namespace(command=ours[0]))
    else:
        parsed, rest = root.parse_known_args(ours)
    if parsed.command == "run":
        parsed.arguments = [*rest, *theirs]
    elif parsed.command == "ask" and not rest:
        parsed.prompt = [*parsed.prompt, *theirs]
    elif rest or theirs:
        raise UsageError(
            f"{prefix} {parsed.command}: {[*rest, *theirs][0]!r} is not known",
            hint=commands[parsed.command].in_line(),
        )
    return parsed


def help_of(prefix: str, topic: str | None) -> str:
    """The list of commands, or the help of one.  Raises UsageError for an unknown topic."""
    _, commands = build(prefix)
    if topic is None:
        width = max(map(len, COMMANDS))
        listed = "\n".join(f"  {name.ljust(width)}  {text}" for name, text in COMMANDS.items())
        more = f"An ID may be shortened, or a title; @last is the newest.  More: {prefix} help COMMAND, {prefix} help states"
        return f"{prefix} COMMAND ...\n\n{listed}\n\n{more}"
    if topic not in commands:
        raise UsageError(f"there is no help on {topic!r}", hint=f"topics: states, {', '.join(COMMANDS)}")
    return commands[topic].format_help().strip()
