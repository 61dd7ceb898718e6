"""What the command line shows of a stream: text as it comes, tool calls as they grow, or JSON."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields, is_dataclass
from typing import IO, Protocol

from rillet.operators import Delta, Message, RefusalDelta, TextDelta, ToolCall, ToolCallDelta, ToolCallStart
from rillet.operators.errors import StreamError

_control = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Text of a server as one line that can't command a terminal."""
    return " ".join(_control.sub("", text).split("\n"))


class Screen(Protocol):
    """Shows one stream."""

    def show(self, delta: Delta) -> None:
        """Show what came."""
        ...

    def end(self, messages: tuple[Message, ...], error: StreamError | None) -> None:
        """The stream is over: what arrived of it, and what failed."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was; called whatever happens, before `end` where there is one."""
        ...


class TextScreen:
    """The text of choice 0 as it comes, then the finished calls, a line each.

    Args:
        out: Where to write; control characters are left out where it is a terminal.
        growing: Show also each fragment of arguments, a line each.
    """

    def __init__(self, out: IO[str], *, growing: bool = False) -> None:
        self._out = out
        self._growing = growing
        self._mid_line = False

    def show(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta | RefusalDelta) and delta.choice == 0:
            self._write(delta.text)
        elif isinstance(delta, ToolCallStart) and self._growing:
            self._line(f"… call {delta.index} {printable(delta.name)}")
        elif isinstance(delta, ToolCallDelta) and self._growing:
            self._line(f"… call {delta.index} {printable(delta.args)}")

    def end(self, messages: tuple[Message, ...], error: StreamError | None) -> None:
        for message in messages[:1]:
            for call in message.tool_calls:
                self._line(f"call {call.index} {printable(call.name)} {_arguments(call)}")
        self.close()

    def close(self) -> None:
        if self._mid_line:
            self._write("\n")

    def _line(self, line: str) -> None:
        self._write(f"\n{line}\n" if self._mid_line else f"{line}\n")

    def _write(self, text: str) -> None:
        self._out.write(_control.sub("", text) if self._out.isatty() else text)
        self._out.flush()
        self._mid_line = not text.endswith("\n")


class JsonScreen:
    """One JSON object a delta, and a summary last."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def show(self, delta: Delta) -> None:
        self._line({"type": _snake_case(type(delta).__name__), **_fields(delta)})

    def end(self, messages: tuple[Message, ...], error: StreamError | None) -> None:
        self._line(
            {
                "type": "summary",
                "outcome": error.kind if error else "complete",
                "error": str(error) if error else None,
                "messages": [_fields(message) for message in messages],
            }
        )

    def close(self) -> None:
        pass

    def _line(self, line: dict[str, object]) -> None:
        self._out.write(json.dumps(line, ensure_ascii=self._out.isatty(), default=_fields) + "\n")
        self._out.flush()


class LiveScreen:
    """Text that flows, and a panel for each call whose arguments grow; needs rich and a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._text = ""
        self._calls: dict[tuple[int, int], list[str]] = {}
        self._done: set[tuple[int, int]] = set()
        self._live = Live(console=Console(file=sys.stdout), refresh_per_second=20)
        self._live.start()

    def show(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta) and delta.choice == 0:
            self._text += delta.text
        elif isinstance(delta, ToolCallStart):
            self._calls[delta.choice, delta.index] = [delta.name, ""]
        elif isinstance(delta, ToolCallDelta):
            self._calls[delta.choice, delta.index][1] += delta.args
        elif isinstance(delta, ToolCall):
            self._done.add((delta.choice, delta.index))
            self._calls[delta.choice, delta.index][1] = _arguments(delta)
        else:
            return
        self._draw()

    def end(self, messages: tuple[Message, ...], error: StreamError | None) -> None:
        pass

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        panels = [
            Panel(
                Text(args if key in self._done else args + "▌"),
                title=Text(name),
                title_align="left",
                subtitle="verified" if key in self._done else "growing",
                subtitle_align="right",
                border_style="green" if key in self._done else "yellow",
            )
            for key, (name, args) in self._calls.items()
        ]
        self._live.update(Group(Text(_control.sub("", self._text)), *panels))


def live_screen_or(screen: Screen) -> Screen:
    """A live screen where standard output is a terminal and rich is installed, else the one given."""
    if not sys.stdout.isatty():
        return screen
    try:
        return LiveScreen()
    except ModuleNotFoundError:  # the extra `cli` was not asked for
        return screen


def _fields(value: object) -> dict[str, object]:
    """The fields of a value, not copied: some are as deep as JSON may be."""
    assert is_dataclass(value)
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _arguments(call: ToolCall) -> str:
    return json.dumps(call.args, ensure_ascii=False)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
