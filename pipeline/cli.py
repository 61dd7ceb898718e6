"""The command `rillet`: the demo, a parser for pipes, a client, and the sandbox to talk to.

Exit codes: 0 the answer is complete, 1 the stream failed (one line on standard error says how), 2 wrong usage,
130 interrupted, 141 the reader of the output went away.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, get_args

DEMO_FAULT_AFTER = 9_000


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the result is the exit code."""
    try:
        options = _parser(sys.argv[1:] if arguments is None else arguments).parse_args(arguments)
        from .commands import run  # not before: `--help` needs none of what the commands do

        return run(options)
    except KeyboardInterrupt:
        return 130


class _Command(NamedTuple):
    description: str
    example: str
    add: Callable[[argparse.ArgumentParser], None]


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for these arguments: a command that they don't name gets none of its own, since those take time."""
    parser = argparse.ArgumentParser(
        prog="rillet", description="Streaming LLM responses: typed deltas, finished tool calls, and a verdict."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, command in _COMMANDS.items():
        description = command.description
        subparser = commands.add_parser(
            name,
            help=description,
            description=description[0].upper() + description[1:] + ".",
            epilog=f"example: {command.example}",
        )
        if name in arguments:
            command.add(subparser)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"rillet {version('rillet')}")
        parser.exit()


def _add_parse(command: argparse.ArgumentParser) -> None:
    from .protocols import PROTOCOLS

    _add_file(command)
    command.add_argument(
        "--protocol", choices=["auto", *PROTOCOLS], help="by default it is recognised; auto also says which it is"
    )
    command.add_argument("--json", action="store_true", help="one JSON object a delta, and a summary last")


def _add_ask(command: argparse.ArgumentParser) -> None:
    from .providers import PROVIDERS

    command.add_argument("prompt")
    command.add_argument("--provider", choices=list(PROVIDERS), default="anthropic", help="default: %(default)s")
    command.add_argument("--model", help="default: the provider's usual one")
    command.add_argument(
        "--base-url", type=_url, help="another place that speaks the same, as http://127.0.0.1:8080/v1"
    )
    command.add_argument(
        "--timeout", type=_seconds, default=60.0, help="the longest silence, in seconds; 0: any; default: 60"
    )
    command.add_argument("--record", metavar="FILE", help="keep the raw bytes, with their cuts and times, in FILE")
    command.add_argument("--json", action="store_true", help="one JSON object a delta, and a summary last")


def _add_sandbox(command: argparse.ArgumentParser) -> None:
    command.add_argument("--port", type=_port, default=0, help="default: a free one")
    command.add_argument("--replay", metavar="FILE", help="answer every request with this recording, see ask --record")
    command.add_argument(
        "--pace",
        type=_pace,
        help="… how many times as fast; inf: as fast as it goes; default: 1",
    )
    _add_fault(command)


def _add_file(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file", nargs="?", default="-", help="the stream, or a recording; - (the default) is standard input"
    )


def _add_fault(command: argparse.ArgumentParser) -> None:
    from .sandbox import FaultKind

    command.add_argument(
        "--fault",
        choices=get_args(FaultKind),
        help="how it ends badly: cut and reset break the "
        "connection, end ends it too early, error reports one, stall falls silent, status and html are no streams",
    )
    command.add_argument("--after", type=_whole, help=f"… after how many bytes; default: {DEMO_FAULT_AFTER}")


def _whole(text: str, limit: int = sys.maxsize) -> int:
    if not text.isdecimal() or int(text) > limit:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number between 0 and {limit}")
    return int(text)


def _url(text: str) -> str:
    if not text.lower().startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} must begin with http:// or https://")
    return text


def _port(text: str) -> int:
    return _whole(text, 65_535)


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if (seconds := float(text)) >= 0:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")


def _pace(text: str) -> float:
    with suppress(ValueError):
        if (pace := float(text)) > 0:
            return pace
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


_COMMANDS = {
    "demo": _Command("stream an answer from the sandbox over a real socket", "rillet demo", _add_fault),
    "parse": _Command(
        "print the answer in a recorded or piped stream, as it comes", "curl -sN … | rillet parse", _add_parse
    ),
    "events": _Command("print the events of a stream, one JSON object each", "rillet events answer.sse", _add_file),
    "ask": _Command(
        "ask a provider", 'rillet ask "Why is the sky blue?" --provider openai --model gpt-5-mini', _add_ask
    ),
    "sandbox": _Command("serve a scripted provider on 127.0.0.1", "rillet sandbox --port 8080", _add_sandbox),
}


if __name__ == "__main__":
    sys.exit(main())
