"""A chat in the terminal, with Textual: text flows, and each tool call is a panel whose arguments grow.

    python examples/ui/terminal.py            the sandbox answers
    python examples/ui/terminal.py anthropic  Anthropic does; its key is in ANTHROPIC_API_KEY

Needs the extra `ui`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import aclosing
from typing import ClassVar

import aiohttp

try:
    from rich.table import Table
    from rich.text import Text
    from textual import work
    from textual.app import App, ComposeResult
    from textual.binding import BindingType
    from textual.containers import VerticalScroll
    from textual.widgets import Input, Static
except ModuleNotFoundError:
    sys.exit("Textual is not there: install rillet[ui]")

from rillet.operators import Json, TextDelta, ToolCall, ToolCallPreview, ToolCallStart, coalesce, preview_tools
from rillet.operators.errors import StreamError
from rillet.pipeline import Asking, ask, iterate, stream_llm
from rillet.pipeline.sandbox import DEMO, Sandbox, Wire

FRAME = 1 / 30


def fields(args: Json, open_field: object = None) -> Table:
    """The arguments, a row each; the one that still grows is marked."""
    grid = Table.grid(padding=(0, 1))
    for name, value in args.items() if isinstance(args, dict) else ():
        shown = Text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        grid.add_row(Text(name, "bold"), shown.append("▌", "yellow") if name == open_field else shown)
    return grid


class Chat(App[None]):
    """A log, and a line to write in."""

    CSS = """
    #log > * { margin: 0 1 1 1 }
    .question { color: $text-muted; border-left: thick $primary; padding-left: 1 }
    .call { height: auto; border: dashed $warning; border-title-color: $warning; padding: 0 1 }
    .whole { border: round $success; border-title-color: $success }
    .failure { color: $error }
    """
    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "quit", "Quit")]

    def __init__(self, session: aiohttp.ClientSession, asking: Asking) -> None:
        super().__init__()
        self.session = session
        self.asking = asking

    def compose(self) -> ComposeResult:
        yield VerticalScroll(id="log")
        yield Input(placeholder="Ask, and press Enter; Escape leaves")

    def add(self, content: str | Text, style: str = "") -> Static:
        log = self.query_one("#log", VerticalScroll)
        log.mount(line := Static(content, classes=style, markup=False))
        log.anchor()
        return line

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.input.clear()
        self.answer(event.value)

    @work(exclusive=True)  # another question ends the answer, and its request
    async def answer(self, question: str) -> None:
        self.add(question, "question")
        line, text, calls = self.add(""), "", dict[int, Static]()
        frames = ask(self.session, question, **self.asking).pipe(coalesce(FRAME), preview_tools(every=0))
        try:
            async with aclosing(iterate(frames)) as answer:
                async for delta in answer:
                    match delta:
                        case TextDelta():
                            text += delta.text
                            line.update(Text(text))
                        case ToolCallStart(index=index, name=name):
                            calls[index] = self.add("", "call")
                            calls[index].border_title = f"{name} …"
                        case ToolCallPreview(index=index, value=args, open_path=path):
                            calls[index].update(fields(args, path and path[0]))
                        case ToolCall(index=index, name=name, args=args):
                            calls[index].update(fields(args))
                            calls[index].border_title = f"{name} ✓"
                            calls[index].add_class("whole")
        except StreamError as error:
            self.add(f"Not complete: {error}.", "failure")


def asking(base_url: str) -> Asking:
    """A provider where the command line names one, else the sandbox."""
    if len(sys.argv) == 1:
        return {"base_url": base_url}
    chosen: Asking = {"provider": sys.argv[1]}
    try:
        stream_llm("", **chosen)  # it asks nothing until it is iterated over, but knows whether it could
    except ValueError as error:
        sys.exit(str(error))
    return chosen


async def main() -> None:
    async with Sandbox(DEMO, Wire(delay=0.02)) as base_url, aiohttp.ClientSession() as session:
        await Chat(session, asking(base_url)).run_async()


if __name__ == "__main__":
    asyncio.run(main())
