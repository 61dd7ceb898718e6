"""A chat in a Tk window: the answer comes on a background loop, and to the window once a frame.

python examples/ui/tk.py            the sandbox answers
python examples/ui/tk.py anthropic  Anthropic does; its key is in ANTHROPIC_API_KEY
"""

from __future__ import annotations

import json
import sys
import tkinter as tk
from collections.abc import Callable
from queue import SimpleQueue

from reactivex.disposable import SerialDisposable

from rillet.operators import Delta, Json, TextDelta, ToolCall, ToolCallPreview, ToolCallStart, coalesce, preview_tools
from rillet.pipeline import Asking, BackgroundLoop, ask, stream_llm
from rillet.pipeline.sandbox import DEMO, Sandbox, Wire

FRAME = 1 / 30
GROWING, WHOLE = "#d08000", "#2e8b57"


def rows(args: Json, open_field: object = None) -> str:
    """The arguments, a row each; the one that still grows is marked."""
    text = ""
    for name, value in args.items() if isinstance(args, dict) else ():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text += f"{name}: {shown}{'▌' if name == open_field else ''}\n"
    return text.rstrip("\n")


class Chat(tk.Tk):
    """A text, the calls, and a line to write in."""

    def __init__(self, background: BackgroundLoop, asking: Asking) -> None:
        super().__init__()
        self.title("Rillet and Tk")
        self.background = background
        self.asking = asking
        self.running = SerialDisposable()
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.calls: dict[int, tuple[tk.LabelFrame, tk.Label]] = {}
        self.text = tk.Text(self, width=64, height=10, wrap="word", padx=8, pady=8)
        self.panels = tk.Frame(self)
        self.question = tk.Entry(self)
        self.question.bind("<Return>", lambda _: self.ask())
        self.question.pack(side="bottom", fill="x", padx=8, pady=8)
        self.panels.pack(side="bottom", fill="x", padx=8)
        self.text.pack(fill="both", expand=True)
        self.question.focus()
        self.deliver()

    def deliver(self) -> None:
        """Tk can't be called from another thread without waiting for it, so the window looks once a frame."""
        for _ in range(self.posted.qsize()):
            self.posted.get()()
        self.after(round(FRAME * 1000), self.deliver)

    def ask(self) -> None:
        for frame, _ in self.calls.values():
            frame.destroy()
        self.calls.clear()
        prompt, asking = self.question.get(), self.asking
        self.question.delete(0, "end")
        self.write(f"> {prompt}\n\n")
        answer = self.background.run(
            lambda session: ask(session, prompt, **asking).pipe(coalesce(FRAME), preview_tools(every=0)),
            post=self.posted.put,
        )
        self.running.disposable = answer.subscribe(
            self.show_delta,
            lambda error: self.write(f"\nNot complete: {error}.\n\n"),
            lambda: self.write("\n\n"),
        )

    def show_delta(self, delta: Delta | ToolCallPreview) -> None:
        match delta:
            case TextDelta(text):
                self.write(text)
            case ToolCallStart(index=index, name=name):
                panel = tk.LabelFrame(self.panels, text=f"{name} …", fg=GROWING, padx=8, pady=4)
                label = tk.Label(panel, justify="left", anchor="w", wraplength=480)
                panel.pack(fill="x", pady=4)
                label.pack(fill="x")
                self.calls[index] = panel, label
            case ToolCallPreview(index=index, value=args, open_path=path):
                self.calls[index][1].configure(text=rows(args, path and path[0]))
            case ToolCall(index=index, name=name, args=args):
                panel, label = self.calls[index]
                label.configure(text=rows(args))
                panel.configure(text=f"{name} ✓", fg=WHOLE)

    def write(self, text: str) -> None:
        self.text.insert("end", text)
        self.text.see("end")


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


def main() -> None:
    with Sandbox(DEMO, Wire(delay=0.02)) as base_url, BackgroundLoop() as background:
        try:
            chat = Chat(background, asking(base_url))
        except tk.TclError as error:  # there is no display
            sys.exit(str(error))
        chat.mainloop()


if __name__ == "__main__":
    main()
