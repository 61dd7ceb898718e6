"""A chat in a Qt window: the answer comes on a background loop, and to the window once a frame.

    python examples/ui/qt.py            the sandbox answers
    python examples/ui/qt.py anthropic  Anthropic does; its key is in ANTHROPIC_API_KEY

Needs the extra `ui`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from html import escape

from reactivex.disposable import SerialDisposable

try:
    from PySide6.QtCore import Signal, Slot
    from PySide6.QtGui import QTextCursor
    from PySide6.QtWidgets import QApplication, QGroupBox, QLabel, QLineEdit, QPlainTextEdit, QVBoxLayout, QWidget
except ModuleNotFoundError:
    sys.exit("PySide6 is not there: install rillet[ui]")

from rillet.operators import Delta, Json, TextDelta, ToolCall, ToolCallPreview, ToolCallStart, coalesce, preview_tools
from rillet.pipeline import Asking, BackgroundLoop, ask, stream_llm
from rillet.pipeline.sandbox import DEMO, Sandbox, Wire

FRAME = 1 / 30
GROWING = "QGroupBox { border: 2px dashed #d08000; border-radius: 6px; margin-top: 1em; padding: 6px }"
WHOLE = GROWING.replace("dashed #d08000", "solid #2e8b57")


def rows(args: Json, open_field: object = None) -> str:
    """The arguments, a row each; the one that still grows is marked."""
    html = ""
    for name, value in args.items() if isinstance(args, dict) else ():
        shown = escape(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        mark = "<font color='#d08000'>▌</font>" if name == open_field else ""
        html += f"<tr><td><b>{escape(name)}</b>&nbsp;</td><td>{shown.replace(chr(10), '<br>')}{mark}</td></tr>"
    return f"<table>{html}</table>"


class Chat(QWidget):
    """A text, the calls, and a line to write in."""

    posted = Signal(object)  # emitted on the loop's thread, it calls the slot on the window's

    def __init__(self, background: BackgroundLoop, asking: Asking) -> None:
        super().__init__(windowTitle="Rillet and Qt")
        self.background = background
        self.asking = asking
        self.running = SerialDisposable()
        self.calls: dict[int, tuple[QGroupBox, QLabel]] = {}
        self.text = QPlainTextEdit(readOnly=True)
        self.question = QLineEdit(placeholderText="Ask, and press Enter")
        self.question.returnPressed.connect(self.ask)
        self.posted.connect(self.deliver)
        column = QVBoxLayout(self)
        column.addWidget(self.text, stretch=1)
        self.panels = QVBoxLayout()
        column.addLayout(self.panels)
        column.addWidget(self.question)
        self.resize(560, 520)

    @Slot(object)
    def deliver(self, call: Callable[[], None]) -> None:
        call()

    def ask(self) -> None:
        for panel, _ in self.calls.values():
            panel.deleteLater()
        self.calls.clear()
        self.write(f"> {self.question.text()}\n\n")
        prompt, asking = self.question.text(), self.asking
        self.question.clear()
        answer = self.background.run(
            lambda session: ask(session, prompt, **asking).pipe(coalesce(FRAME), preview_tools(every=0)),
            post=self.posted.emit,
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
                panel, label = QGroupBox(f"{name} …"), QLabel(wordWrap=True)
                panel.setStyleSheet(GROWING)
                QVBoxLayout(panel).addWidget(label)
                self.panels.addWidget(panel)
                self.calls[index] = panel, label
            case ToolCallPreview(index=index, value=args, open_path=path):
                self.calls[index][1].setText(rows(args, path and path[0]))
            case ToolCall(index=index, name=name, args=args):
                panel, label = self.calls[index]
                label.setText(rows(args))
                panel.setTitle(f"{name} ✓")
                panel.setStyleSheet(WHOLE)

    def write(self, text: str) -> None:
        self.text.moveCursor(QTextCursor.MoveOperation.End)
        self.text.insertPlainText(text)


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
    app = QApplication(sys.argv[:1])
    with Sandbox(DEMO, Wire(delay=0.02)) as base_url, BackgroundLoop() as background:
        chat = Chat(background, asking(base_url))
        chat.show()
        app.exec()
        chat.running.dispose()


if __name__ == "__main__":
    main()
