"""The command line: what it prints, and its exit codes."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rillet.operators import Delta, TextDelta, ToolCall, ToolCallPreview, ToolCallStart
from rillet.pipeline.cli import main
from rillet.pipeline.screen import LiveScreen
from rillet.pipeline.scripting import Script, ScriptedCall, openai_chat_events, plain_events

COMMAND = [sys.executable, "-m", "rillet.pipeline.cli"]
SCRIPT = Script("Café ☕.", calls=(ScriptedCall("look", {"dish": "crème"}), ScriptedCall("count", {"n": 10**30})))


def wire(events: object) -> bytes:
    return "".join(f"data: {data}\n\n" for data in events).encode()  # type: ignore[attr-defined]


CHAT = wire(openai_chat_events(SCRIPT))
CUT_IN_CALL = CHAT[: CHAT.index(b"crem")] if b"crem" in CHAT else CHAT[: CHAT.index(b"cr\xc3")]


@pytest.fixture
def stream(tmp_path: Path):  # type: ignore[no-untyped-def]
    def write(content: bytes) -> str:
        path = tmp_path / "stream"
        path.write_bytes(content)
        return str(path)

    return write


def test_parse_prints_the_answer_and_its_calls(stream, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert main(["parse", stream(CHAT)]) == 0
    out, err = capsys.readouterr()
    assert out == 'Café ☕.\ncall 0 look {"dish": "crème"}\ncall 1 count {"n": 1000000000000000000000000000000}\n'
    assert err == ""


def test_parse_takes_the_protocol_asked_for(stream, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert main(["parse", "--protocol", "plain", stream(wire(plain_events(SCRIPT)))]) == 0
    assert capsys.readouterr().out.startswith("Café ☕.\ncall 0 look")


@pytest.mark.parametrize(("events", "name"), [(openai_chat_events, "openai-chat"), (plain_events, "plain")])
def test_parse_tells_the_dialect_itself(stream, capsys: pytest.CaptureFixture[str], events, name: str) -> None:  # type: ignore[no-untyped-def]
    assert main(["parse", stream(wire(events(SCRIPT)))]) == 0
    quietly = capsys.readouterr()
    assert main(["parse", "--protocol", "auto", stream(wire(events(SCRIPT)))]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (quietly.out, f"rillet: this is {name}\n")
    assert quietly.err == ""


def test_parse_as_json_gives_each_delta_and_a_summary(stream, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert main(["parse", "--json", stream(CHAT)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == {"type": "text_delta", "text": "Café", "choice": 0}
    assert [line["args"] for line in lines if line["type"] == "tool_call"] == [{"dish": "crème"}, {"n": 10**30}]
    assert lines[-2] == {"type": "done"}
    summary = lines[-1]
    assert (summary["type"], summary["outcome"], summary["error"]) == ("summary", "complete", None)
    assert summary["messages"][0]["text"] == "Café ☕."


def test_events_prints_each_event(stream, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert main(["events", stream(b"id: 7\nevent: tick\ndata: a\ndata: \xc3\xa9\n\n")]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"event": "tick", "data": "a\né", "id": "7"}
    ]


@pytest.mark.parametrize(
    ("content", "kind", "says"),
    [
        (b"", "truncated_stream", "0 bytes"),
        (b"\x7fELF\x02\x01\x01\x00\xff\xfe", "invalid_utf8", "byte 8"),
        (b"\n <!doctype html><title>Sign in</title>", "not_an_event_stream", "HTML"),
        (CUT_IN_CALL, "truncated_stream", "7 characters of text"),
        (CHAT.replace(b"data: [DONE]", b"data: oops"), "malformed_payload", "is not JSON"),
        (b'data: {"error":{"message":"no more","code":"quota"}}\n\n', "provider_error", "quota: no more"),
    ],
)
def test_a_failed_stream_is_one_line_and_exit_code_1(
    stream,
    capsys: pytest.CaptureFixture[str],
    content: bytes,
    kind: str,
    says: str,  # type: ignore[no-untyped-def]
) -> None:
    assert main(["parse", stream(content)]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"rillet: {kind}: ")
    assert says in err
    assert err.count("\n") == 1


def test_a_failed_stream_as_json_ends_with_a_summary_that_says_so(stream, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert main(["parse", "--json", stream(CUT_IN_CALL)]) == 1
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["outcome"] == "truncated_stream"
    assert summary["messages"][0]["text"] == "Café ☕."
    assert summary["messages"][0]["tool_calls"] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["parse", "no/such/file"], "no/such/file: No such file"),
        (["events", "/"], "/: Is a directory"),
        (["parse", "--protocol", "smoke-signals"], "choose from 'auto', 'plain', 'openai-chat'"),
        (["ask", "hi"], "rillet: no API key for anthropic: set ANTHROPIC_API_KEY\n"),
        (["ask", "hi", "--base-url", "127.0.0.1:18080"], "'127.0.0.1:18080' must begin with http:// or https://"),
        (["ask", "hi", "--provider", "acme"], "choose from 'anthropic', 'openai'"),
        (["demo", "--fault", "gremlins"], "choose from 'cut'"),
        (["demo", "--after", "-1"], "'-1' is not a number between 0"),
        (["sandbox", "--port", "65536"], "'65536' is not a number between 0 and 65535"),
        (["sandbox", "--pace", "0"], "'0' is not a number above 0"),
        (["sandbox", "--pace", "fast"], "'fast' is not a number above 0"),
        (["sandbox", "--replay", "no/such/file"], "no/such/file: No such file"),
        (["sandbox", "--replay", "pyproject.toml"], "pyproject.toml: line 1 is not"),
        (["sandbox", "--replay", "x", "--fault", "cut"], "--replay takes no --fault"),
        (
            ["ask", "hi", "--provider", "ollama", "--base-url", "http://127.0.0.1:1", "--record", "no/such/file"],
            "no/such/file: No such file",
        ),
        ([], "required: COMMAND"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    try:
        code = main(arguments)
    except SystemExit as exit:
        code = exit.code  # type: ignore[assignment]
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert says in err


@pytest.mark.parametrize("command", ["demo", "parse", "events", "ask", "sandbox"])
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main([command, "--help"])
    assert exit.value.code == 0
    assert "example: " in capsys.readouterr().out


def test_the_demo_ends_with_two_verified_calls(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert 'verified: get_weather({"city": "Orléans", "unit": "celsius", "days": 3})' in out
    assert 'verified: find_recipe({"dish": "crème brûlée", "servings": 4, "without": ["nuts"]})' in out
    assert out.endswith("complete: 91 characters of text and 2 verified tool calls\n")


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("cut", "truncated_stream"),
        ("end", "truncated_stream"),
        ("error", "provider_error"),
        ("reset", "truncated_stream"),
        ("status", "http_status_error"),
        ("html", "not_an_event_stream"),
        ("stall", "idle_timeout"),
    ],
)
def test_the_demo_says_what_went_wrong(fault: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--fault", fault, "--after", "2000"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith(f"rillet: {kind}: ")
    assert err.count("\n") == 1
    assert "verified" not in out


def test_what_a_provider_says_of_a_status_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--fault", "status"]) == 1
    assert capsys.readouterr().err.count("The sandbox was told to fail.") == 1


def test_ask_streams_from_a_sandbox_of_its_own_and_ctrl_c_ends_it_quietly() -> None:
    with subprocess.Popen([*COMMAND, "sandbox"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sandbox:
        assert sandbox.stdout is not None
        url = sandbox.stdout.readline().split()[1].removesuffix("/chat/completions")
        asked = subprocess.run(
            [*COMMAND, "ask", "hi", "--provider", "openai", "--base-url", url],
            capture_output=True,
            text=True,
            check=False,
        )
        assert asked.returncode == 0
        assert asked.stdout.startswith("Two things to look up")
        assert 'call 0 get_weather {"city": "Orléans"' in asked.stdout
        sandbox.send_signal(signal.SIGINT)
        _, err = sandbox.communicate(timeout=10)
    assert (sandbox.returncode, err) == (130, "")


def test_ask_records_and_parse_and_the_sandbox_read_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "answer.jsonl")
    with serving_sandbox() as url:
        assert main(["ask", "hi", "--provider", "openai", "--base-url", url, "--record", path]) == 0
    asked = capsys.readouterr().out
    assert main(["parse", path]) == 0
    assert capsys.readouterr().out == asked
    assert main(["events", path]) == 0
    assert capsys.readouterr().out.count("\n") > 10
    with serving_sandbox("--replay", path, "--pace", "inf") as url:
        assert main(["ask", "hi", "--provider", "openai", "--base-url", url]) == 0
    assert capsys.readouterr().out == asked


def test_a_sandbox_names_what_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "answer.jsonl")
    with serving_sandbox() as url:
        for provider in ("openai", "openai-responses", "anthropic", "gemini"):
            assert main(["ask", "hi", "--provider", provider, "--base-url", url, "--record", path]) == 0
        assert main(["ask", "hi", "--provider", "ollama", "--base-url", url.removesuffix("/v1")]) == 0
    assert capsys.readouterr().out.count("Two things to look up") == 5
    with subprocess.Popen([*COMMAND, "sandbox", "--replay", path], stdout=subprocess.PIPE, text=True) as sandbox:
        assert sandbox.stdout is not None
        assert sandbox.stdout.readline().endswith("/v1 where every path answers with the recording; Ctrl-C ends it\n")
        sandbox.send_signal(signal.SIGINT)


def test_where_nothing_is_found_it_says_where_it_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with serving_sandbox() as url:
        assert main(["ask", "hi", "--provider", "gemini", "--base-url", f"{url}/no"]) == 1
    err = capsys.readouterr().err
    place = url.removeprefix("http://")
    assert f"; asked for was POST {place}/no/models/gemini-2.5-flash:streamGenerateContent" in err
    assert "alt=sse" not in err


def test_ctrl_c_while_it_starts_ends_it_quietly() -> None:
    program = """
import signal, sys
from rillet.pipeline.cli import main

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "rillet.pipeline.commands":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.exit(main(["demo"]))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")


def test_a_recording_that_is_damaged_is_wrong_usage(stream, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    path = stream(b'{"rillet":"recording","version":1,"content_type":"text/event-stream"}\noops\n\n')
    assert main(["parse", path]) == 2
    assert capsys.readouterr().err == f"rillet: {path}: line 2 is not JSON\n"


@contextmanager
def serving_sandbox(*arguments: str) -> Iterator[str]:
    """A `rillet sandbox` of its own; its base URL."""
    with subprocess.Popen([*COMMAND, "sandbox", *arguments], stdout=subprocess.PIPE, text=True) as sandbox:
        assert sandbox.stdout is not None
        yield sandbox.stdout.readline().split()[1].removesuffix("/chat/completions")
        sandbox.send_signal(signal.SIGINT)


def test_a_pipe_is_printed_as_it_comes_and_ends_at_done() -> None:
    with subprocess.Popen([*COMMAND, "parse"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as parse:
        assert parse.stdin is not None
        assert parse.stdout is not None
        first, rest = CHAT.split(b"\n\n", 2)[1] + b"\n\n", CHAT
        parse.stdin.write(first)
        assert parse.stdout.read(5) == "Café".encode()
        parse.stdin.write(rest)  # and standard input stays open
        assert parse.wait(timeout=10) == 0


def test_a_reader_that_leaves_ends_it_quietly(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"".join(b"data: %d\n\n" % n for n in range(200_000)))
    with subprocess.Popen([*COMMAND, "events", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as events:
        assert events.stdout is not None
        assert events.stderr is not None
        events.stdout.read(100)
        events.stdout.close()
        assert events.wait(timeout=10) == 141
        assert events.stderr.read() == b""


def test_on_a_terminal_the_demo_is_live_and_control_characters_are_left_out(stream) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("rich")
    assert "verified" in on_terminal(["demo"])
    evil = wire(openai_chat_events(Script("safe\x1b]0;title\x07text")))
    assert "safe]0;titletext" in on_terminal(["parse", stream(evil)])


def on_terminal(arguments: list[str], code: int = 0) -> str:
    """What a command writes to a terminal of its own."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *arguments], stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(slave)
        output = b""
        while select.select([master], [], [], 10)[0]:
            try:
                output += os.read(master, 65_536)
            except OSError:  # the terminal's other side is closed
                break
        os.close(master)
        assert process.wait(timeout=10) == code
    return output.decode()


def test_on_a_terminal_an_error_wraps_between_words() -> None:
    lines = on_terminal(["parse", "no " * 40 + "file"], code=2).splitlines()
    assert lines[0].startswith("rillet: no no ")
    assert lines[1].startswith("no ")
    assert max(map(len, lines)) <= 80


def test_a_live_panel_marks_the_open_field_and_turns_solid_once_it_is_verified() -> None:
    growing = [ToolCallStart(0, "", "look"), ToolCallPreview(0, "look", {"city": "Os", "n": 1}, ("city",))]
    open_panel = drawn(growing)
    assert "┌╌ look ╌╌" in open_panel
    assert "┆ city Os▌ " in open_panel
    assert "┆ n    1 " in open_panel
    assert "growing ╌┘" in open_panel
    solid = drawn([*growing, ToolCall(0, "", "look", {"city": "Oslo", "n": 1}, "{}")])
    assert "╭─ look ──" in solid
    assert "│ city Oslo " in solid
    assert "▌" not in solid


def test_a_call_whose_stream_has_failed_is_cut_and_has_no_cursor() -> None:
    pytest.importorskip("rich")
    screen = LiveScreen(out := io.StringIO())
    for one in (ToolCallStart(0, "", "look"), ToolCallPreview(0, "look", {"city": "Os"}, ("city",))):
        screen.show(one)
    screen.close()
    (bottom,) = (line for line in out.getvalue().splitlines() if "└" in line)
    assert " cut ╌┘" in bottom
    assert "▌" not in out.getvalue()


def test_where_the_encoding_has_no_lines_a_panel_is_ascii() -> None:
    pytest.importorskip("rich")
    out = io.TextIOWrapper(raw := io.BytesIO(), "ascii", "backslashreplace", write_through=True)
    screen = LiveScreen(out)
    screen.show(ToolCallStart(0, "", "look"))
    screen.show(ToolCallPreview(0, "look", {"city": "Os"}, ("city",)))
    screen._live.refresh()
    screen.close()
    assert b"+- look --" in raw.getvalue()
    assert b"\\" not in raw.getvalue()


def test_a_live_screen_keeps_to_its_columns_and_leaves_out_what_commands_a_terminal() -> None:
    evil = "\x1b]0;title\x07"
    shown = drawn(
        [
            TextDelta(f"safe{evil} " + "word " * 40),
            ToolCallStart(0, "", f"na{evil}me\n" + "x" * 100),
            ToolCallPreview(0, "f", {f"k{evil}": f"v{evil} " + "y" * 300}, ()),
        ]
    )
    assert max(map(len, shown.splitlines())) <= 80
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert re.search(r"215 characters and 0 verified calls, [\d,]+/s; first after ", shown)


def test_whole_lines_of_a_long_answer_scroll_away_from_the_live_part() -> None:
    pieces = [TextDelta("one\ntwo [b]\nthr"), TextDelta("ee\nfour")]
    assert drawn(pieces).splitlines()[0] == "four"
    pytest.importorskip("rich")
    screen = LiveScreen(out := io.StringIO())
    for piece in pieces:
        screen.show(piece)
    screen.close()
    assert out.getvalue().startswith("one\ntwo [b]\nthree\nfour\n")


def drawn(shown: list[Delta | ToolCallPreview]) -> str:
    """What the live part of a screen shows at last, without colour, at 80 columns."""
    rich_console = pytest.importorskip("rich.console", reason="rich is not installed: the extra `cli`")
    screen = LiveScreen(io.StringIO())
    try:
        for one in shown:
            screen.show(one)
        out = io.StringIO()
        rich_console.Console(file=out, width=80).print(screen._live.renderable)
        return out.getvalue()
    finally:
        screen.close()


def test_events_of_a_stream_that_was_cut_fail(stream, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert main(["events", stream(b"data: a\n\ndata: b\n\ndata: c")]) == 1
    out, err = capsys.readouterr()
    assert out.count("\n") == 2
    assert err == "rillet: truncated_stream: the stream ended inside an event\n"


def test_events_of_what_has_none_fail(stream, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert main(["events", stream(b"Dear Sir,\n\nplease find\n")]) == 1
    assert "there is no event in it" in capsys.readouterr().err
    assert main(["events", stream(b"")]) == 0


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_what_its_provider_cut_short_is_no_error_but_told(  # type: ignore[no-untyped-def]
    stream, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    assert main(["parse", stream(wire(openai_chat_events(Script("Half", finish=reason))))]) == 0  # type: ignore[arg-type]
    assert capsys.readouterr().err == f"rillet: it arrived whole, but its provider cut it short: {reason}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["demo", "--after", "100"], "--fault is missing"),
        (["sandbox", "--after", "100"], "--fault is missing"),
        (["sandbox", "--pace", "10"], "--replay is missing"),
    ],
)
def test_a_flag_without_the_one_it_is_for_is_refused(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["-1", "nan", "soon"])
def test_a_wrong_timeout_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["ask", "hi", "--timeout", seconds])
    assert "is not a number of seconds" in capsys.readouterr().err
