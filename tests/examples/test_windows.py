"""The chats in Qt and Tk windows: Qt offscreen, Tk on a virtual display."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import pytest

from rillet.pipeline import BackgroundLoop
from rillet.pipeline.sandbox import DEMO, Fault, Sandbox, Script

ROOT = Path(__file__).parent.parent.parent
PIECES = 5_000
FLOOD = Script("word " * PIECES, piece=5)


class Window(Protocol):
    """One of the chats, and how a test uses it."""

    module: Any
    wake_ups: int

    def open(self, background: BackgroundLoop, base_url: str) -> Any: ...
    def ask(self, chat: Any, question: str) -> None: ...
    def step(self, chat: Any) -> None: ...
    def text(self, chat: Any) -> str: ...
    def panels(self, chat: Any) -> list[tuple[str, str]]: ...
    def close(self, chat: Any) -> None: ...


class Qt:
    def __init__(self, module: Any) -> None:
        self.module = module
        self.app = module.QApplication.instance() or module.QApplication([])
        self.wake_ups = 0

    def open(self, background: BackgroundLoop, base_url: str) -> Any:
        window = self

        class Counted(self.module.Chat):  # type: ignore[misc, name-defined]
            def deliver(self, call: Callable[[], None]) -> None:
                window.wake_ups += 1
                assert threading.current_thread() is threading.main_thread()
                super().deliver(call)

        chat = Counted(background, {"base_url": base_url})
        chat.show()
        return chat

    def ask(self, chat: Any, question: str) -> None:
        chat.question.setText(question)
        chat.question.returnPressed.emit()

    def step(self, chat: Any) -> None:
        self.app.processEvents()

    def text(self, chat: Any) -> str:
        return str(chat.text.toPlainText())

    def panels(self, chat: Any) -> list[tuple[str, str]]:
        return [(panel.title(), label.text()) for panel, label in chat.calls.values()]

    def close(self, chat: Any) -> None:
        chat.running.dispose()
        chat.close()


class Tk:
    def __init__(self, module: Any) -> None:
        self.module = module
        self.wake_ups = 0

    def open(self, background: BackgroundLoop, base_url: str) -> Any:
        chat = self.module.Chat(background, {"base_url": base_url})
        put = chat.posted.put

        class Counted:
            get, qsize = chat.posted.get, chat.posted.qsize

            @staticmethod
            def put(call: Callable[[], None]) -> None:
                self.wake_ups += 1
                put(call)

        chat.posted = Counted
        return chat

    def ask(self, chat: Any, question: str) -> None:
        chat.question.insert(0, question)
        chat.ask()

    def step(self, chat: Any) -> None:
        chat.update()

    def text(self, chat: Any) -> str:
        return str(chat.text.get("1.0", "end"))

    def panels(self, chat: Any) -> list[tuple[str, str]]:
        return [(panel.cget("text"), label.cget("text")) for panel, label in chat.calls.values()]

    def close(self, chat: Any) -> None:
        chat.running.dispose()
        chat.destroy()


@pytest.fixture(params=["qt", "tk"])
def window(
    request: pytest.FixtureRequest, program: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Window]:
    if request.param == "qt":
        pytest.importorskip("PySide6.QtWidgets", reason="no PySide6 (extra `ui`), or no libEGL", exc_type=ImportError)
        monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
        yield Qt(program("examples/ui/qt.py"))
    else:
        pytest.importorskip("tkinter", reason="this Python has no tkinter", exc_type=ImportError)
        request.getfixturevalue("display")
        yield Tk(program("examples/ui/tk.py"))
    gc.collect()  # both abort where another thread collects what is left of a window


def run_until(window: Window, chat: Any, condition: Callable[[], object]) -> None:
    """Let the window work until something is so."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, (window.text(chat), window.panels(chat))
        window.step(chat)
        time.sleep(0.001)


def test_text_flows_and_finished_calls_turn_solid(window: Window) -> None:
    with Sandbox(DEMO) as base_url, BackgroundLoop() as background:
        chat = window.open(background, base_url)
        window.ask(chat, "walk?")
        run_until(window, chat, lambda: len(window.panels(chat)) == 2 and "✓" in window.panels(chat)[1][0])
        assert window.text(chat).startswith(f"> walk?\n\n{DEMO.text}")
        assert [title for title, _ in window.panels(chat)] == ["get_weather ✓", "send_mail ✓"]
        assert "▌" not in "".join(shown for _, shown in window.panels(chat))
        window.close(chat)


def test_open_fields_are_marked(window: Window) -> None:
    with Sandbox(DEMO, fault=Fault("stall", after=9_000)) as base_url, BackgroundLoop() as background:
        chat = window.open(background, base_url)
        window.ask(chat, "walk?")
        run_until(window, chat, lambda: len(window.panels(chat)) == 2 and "Fløyen" in window.panels(chat)[1][1])
        (first, solid), (second, growing) = window.panels(chat)
        assert (first, second) == ("get_weather ✓", "send_mail …")
        assert ("▌" in solid, growing.count("▌")) == (False, 1)
        window.close(chat)


def test_a_cut_answer_is_told(window: Window) -> None:
    with Sandbox(DEMO, fault=Fault("cut", after=1_500)) as base_url, BackgroundLoop() as background:
        chat = window.open(background, base_url)
        window.ask(chat, "walk?")
        run_until(window, chat, lambda: "Not complete: the connection broke" in window.text(chat))
        window.close(chat)


def test_a_flood_wakes_the_window_once_a_frame_and_it_answers_meanwhile(window: Window) -> None:
    with Sandbox(FLOOD) as base_url, BackgroundLoop() as background:
        chat = window.open(background, base_url)
        begun = time.monotonic()
        window.ask(chat, "flood")
        run_until(window, chat, lambda: window.text(chat).count("word ") == PIECES)
        frames = (time.monotonic() - begun) / window.module.FRAME
        assert window.wake_ups <= frames + 3, "the first delta, each frame, the end"
        window.close(chat)


def test_closed_during_an_answer_the_request_ends(window: Window) -> None:
    sandbox = Sandbox(DEMO, fault=Fault("stall", after=1_500))
    with sandbox as base_url, BackgroundLoop() as background:
        chat = window.open(background, base_url)
        window.ask(chat, "walk?")
        run_until(window, chat, lambda: "Let me" in window.text(chat))
        window.close(chat)
        for _ in range(500):
            if sandbox.requests[0].over.is_set():
                return
            time.sleep(0.01)
    pytest.fail("the request goes on")


ASK_AND_CLOSE = {
    Qt: """
import qt
from PySide6.QtCore import QTimer

class Chat(qt.Chat):
    def show(self):
        super().show()
        self.question.setText("walk?")
        QTimer.singleShot(0, self.ask)
        QTimer.singleShot(200, self.close)

qt.Chat = Chat
qt.main()
""",
    Tk: """
import tk

class Chat(tk.Chat):
    def mainloop(self):
        self.question.insert(0, "walk?")
        self.after(0, self.ask)
        self.after(200, self.destroy)
        super().mainloop()

tk.Chat = Chat
tk.main()
""",
}


def test_the_program_runs_as_it_is_and_is_closed_during_an_answer(window: Window) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", ASK_AND_CLOSE[type(window)]],
        cwd=ROOT / "examples" / "ui",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    complaints = [line for line in ran.stderr.splitlines() if "propagateSizeHints" not in line]
    assert (ran.returncode, complaints) == (0, [])
