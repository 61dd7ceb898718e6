"""What the command line shows of a stream: text as it comes, tool calls as they grow, or JSON."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields, is_dataclass
from time import perf_counter
from typing import IO, TYPE_CHECKING, Protocol, TypeAlias

from reactivex import Observable

from rillet.operators import (
    ByteWindow,
    Delta,
    Json,
    JsonPath,
    Message,
    RefusalDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallPreview,
    ToolCallStart,
    coalesce,
    preview_tools,
)
from rillet.operators.errors import StreamError

if TYPE_CHECKING:
    from rich.console import Group
    from rich.panel import Panel

_control = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Text of a server as one line that can't command a terminal."""
    return " ".join(_control.sub("", text).split("\n"))


Shown: TypeAlias = Delta | ToolCallPreview
"""What a screen is shown."""

FRAME = 1 / 30

DASHED = """\
┌╌┬┐
┆ ┆┆
├╌┼┤
┆ ┆┆
├╌┼┤
├╌┼┤
┆ ┆┆
└╌┴┘
"""  # a rich `Box`, which draws ASCII by itself where the encoding has no such characters


class Screen(Protocol):
    """Shows one stream."""

    def follow(self, deltas: Observable[Delta], window: ByteWindow) -> Observable[Shown]:
        """What it wants to be shown of a stream, whose window this is."""
        ...

    def show(self, shown: Shown) -> None:
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

    def follow(self, deltas: Observable[Delta], window: ByteWindow) -> Observable[Shown]:
        return deltas

    def show(self, shown: Shown) -> None:
        if isinstance(shown, TextDelta | RefusalDelta) and shown.choice == 0:
            self._write(shown.text)
        elif isinstance(shown, ToolCallStart) and self._growing:
            self._line(f"… call {shown.index} {printable(shown.name)}")
        elif isinstance(shown, ToolCallDelta) and self._growing:
            self._line(f"… call {shown.index} {printable(shown.args)}")

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

    def follow(self, deltas: Observable[Delta], window: ByteWindow) -> Observable[Shown]:
        return deltas

    def show(self, shown: Shown) -> None:
        self._line({"type": _snake_case(type(shown).__name__), **_fields(shown)})

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
    """Text that flows, a panel for each call whose arguments grow, and a footer; needs rich and a terminal.

    An open call's panel is dashed, and the field that still grows is marked; a verified call's panel is solid, and one
    that is open at the end is cut. The footer says how many characters a second come, how long the first took, and how
    full the window is. Whole lines of text leave the live part upwards, so that a long answer scrolls as any output
    does.

    Args:
        out: The terminal.
    """

    def __init__(self, out: IO[str]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._window: ByteWindow | None = None
        self._begun = perf_counter()
        self._first: float | None = None
        self._count = 0  # characters of text
        self._arrived = 0  # those of arguments too
        self._text = ""
        self._calls: dict[tuple[int, int], _Call] = {}
        self._live = Live(console=Console(file=out), refresh_per_second=30)
        self._live.start()

    def follow(self, deltas: Observable[Delta], window: ByteWindow) -> Observable[Shown]:
        self._window = window
        return deltas.pipe(coalesce(FRAME), preview_tools(every=0))

    def show(self, shown: Shown) -> None:
        match shown:
            case TextDelta(text, 0) | RefusalDelta(text, 0):
                self._arrive(text)
                self._count += len(text) if isinstance(shown, TextDelta) else 0
                self._flow(_control.sub("", text))
            case ToolCallStart(index, _, name, choice):
                self._calls[choice, index] = _Call(printable(name))
            case ToolCallDelta(_, args):
                self._arrive(args)
            case ToolCallPreview(index, _, args, path, choice):
                self._calls[choice, index].grow(args, path)
            case ToolCall(index, _, _, args, _, choice):
                self._calls[choice, index].finish(args)
            case _:
                return
        self._live.update(self._drawn())

    def end(self, messages: tuple[Message, ...], error: StreamError | None) -> None:
        pass

    def close(self) -> None:
        for call in self._calls.values():
            call.cut()  # it grows no more
        if self._calls:
            self._live.update(self._drawn())
        self._live.stop()

    def _arrive(self, text: str) -> None:
        self._first = self._first or perf_counter()
        self._arrived += len(text)

    def _flow(self, text: str) -> None:
        whole, newline, rest = text.rpartition("\n")
        if newline:
            self._live.console.print(self._text + whole, markup=False, highlight=False, emoji=False)
            self._text = ""
        self._text += rest

    def _drawn(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        text = (Text(self._text),) if self._text else ()
        cursor = "_" if self._live.console.options.ascii_only else "▌"
        panels = (call.panel(cursor) for call in self._calls.values())
        return Group(*text, *panels, Text(self._footer(), "dim"))

    def _footer(self) -> str:
        now = perf_counter()
        first = self._first or now
        rate = self._arrived / max(now - first, FRAME)
        whole = sum(call.is_whole for (choice, _), call in self._calls.items() if choice == 0)
        fill = self._window.pending / self._window.limit if self._window else 0.0
        counts = f"{self._count:,} characters and {whole} verified calls, {rate:,.0f}/s"
        return f"{counts}; first after {first - self._begun:.2f} s, window {fill:.0%} full"


class _Call:
    """A call's panel."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._args: Json = {}
        self._open: JsonPath | None = ()
        self.is_whole = False
        self._is_cut = False

    def grow(self, args: Json, path: JsonPath | None) -> None:
        self._args, self._open = args, path

    def finish(self, args: Json) -> None:
        self._args, self._open, self.is_whole = args, None, True

    def cut(self) -> None:
        self._open, self._is_cut = None, not self.is_whole

    def panel(self, cursor: str) -> Panel:
        from rich import box
        from rich.box import Box
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        fields = Table.grid(padding=(0, 1))
        open_field = self._open[0] if self._open else None
        for name, value in self._args.items() if isinstance(self._args, dict) else ():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            mark = cursor if name == open_field else ""
            fields.add_row(Text(printable(name), "bold"), Text(_control.sub("", text) + mark))
        return Panel(
            fields,
            box=box.ROUNDED if self.is_whole else Box(DASHED),
            title=Text(self._name),
            title_align="left",
            subtitle="verified" if self.is_whole else "cut" if self._is_cut else "growing",
            subtitle_align="right",
            border_style="green" if self.is_whole else "red" if self._is_cut else "yellow",
        )


def live_screen_or(screen: Screen) -> Screen:
    """A live screen where standard output is a terminal and rich is installed, else the one given."""
    if not sys.stdout.isatty():
        return screen
    try:
        return LiveScreen(sys.stdout)
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
