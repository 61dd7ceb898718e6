"""Recordings: what is written is read again, whatever it is; and a replay gives it as it came."""

from __future__ import annotations

import asyncio
import json
import math
import stat
import threading
from collections.abc import Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import reactivex
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Observable, Subject

from rillet.operators.errors import HttpStatusError, IdleTimeout, StreamError, TruncatedStream
from rillet.pipeline import Recording, Timeouts, ask, bytes_from, collect_stream, iterate, recorder
from rillet.pipeline.recorder import Piece, RecordedEnd, is_recording
from rillet.pipeline.sandbox import Fault, Replay, Sandbox, Script, ScriptedCall, Wire

SCRIPT = Script("Café ☕ of an answer.", calls=(ScriptedCall("look", {"dish": "crème"}),), usage=(5, 7))
FAST = math.inf


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answer.jsonl"


def recorded(path: Path, source: Observable[bytes], **options: Any) -> Recording:
    source.pipe(recorder(path, **options)).subscribe(on_error=lambda _: None)
    return Recording.load(path)


def data_of(recording: Recording) -> list[bytes]:
    return [piece.data for piece in recording.pieces]


@given(pieces=st.lists(st.binary(max_size=40) | st.text(max_size=20).map(str.encode)))
def test_any_bytes_in_any_pieces_are_read_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("recorder") / "recording"
    recording = recorded(path, reactivex.from_iterable(pieces))
    assert (data_of(recording), recording.end) == (pieces, "complete")


@given(pieces=st.lists(st.binary(max_size=9), max_size=4), cut=st.integers(min_value=0))
def test_a_file_that_was_cut_anywhere_gives_what_is_whole_in_it(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], cut: int
) -> None:
    path = tmp_path_factory.mktemp("recorder") / "recording"
    recorded(path, reactivex.from_iterable(pieces))
    content = path.read_bytes()
    header = content.index(b"\n") + 1
    cut = header + cut % (len(content) - header + 1)
    recording = Recording.parse(content[:cut])
    assert data_of(recording) == pieces[: len(recording.pieces)]
    whole = content[:cut].count(b"\n") - 1
    assert len(recording.pieces) + (recording.end == "complete") in (whole, whole + 1)  # one that lacks its LF alone


def test_the_file_is_lines_that_people_can_read(path: Path) -> None:
    times = iter([10.0, 10.5, 10.75, 11.0])
    source = reactivex.from_iterable(["data: Café\n\n".encode(), b"\xff"])
    recorded(path, source, content_type="application/x-ndjson", clock=lambda: next(times))
    assert path.read_text() == (
        '{"rillet":"recording","version":1,"content_type":"application/x-ndjson"}\n'
        '{"t":0.5,"text":"data: Café\\n\\n"}\n'
        '{"t":0.75,"b64":"/w=="}\n'
        '{"t":1.0,"end":"complete"}\n'
    )
    assert Recording.load(path) == Recording(
        (Piece(0.5, "data: Café\n\n".encode()), Piece(0.75, b"\xff")),
        "complete",
        1.0,
        content_type="application/x-ndjson",
    )


def test_only_its_owner_may_read_it(path: Path) -> None:
    recorded(path, reactivex.empty())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (TruncatedStream("cut"), "truncated_stream", None),
        (HttpStatusError(429, {"Authorization": "SECRET"}, "SECRET"), "http_status_error", 429),
        (KeyError("SECRET"), "KeyError", None),
    ],
)
def test_a_failure_is_kept_by_its_kind(path: Path, error: Exception, kind: str, status: int | None) -> None:
    recording = recorded(path, reactivex.throw(error))
    assert (recording.end, recording.error_kind, recording.status) == ("failed", kind, status)
    assert "SECRET" not in path.read_text()


def test_a_reader_that_leaves_is_no_end_of_the_stream(path: Path) -> None:
    source: Subject[bytes] = Subject()
    subscription = source.pipe(recorder(path)).subscribe()
    source.on_next(b"a")
    assert (data_of(Recording.load(path)), Recording.load(path).end) == ([b"a"], "cut")  # so far
    thread = threading.Thread(target=subscription.dispose)
    thread.start()
    thread.join()
    assert (data_of(Recording.load(path)), Recording.load(path).end) == ([b"a"], "left")


def test_each_subscription_starts_the_file_anew(path: Path) -> None:
    turns = iter([reactivex.from_iterable([b"a", b"b"]), reactivex.from_iterable([b"c"])])
    observable = reactivex.defer(lambda _: next(turns)).pipe(recorder(path))
    observable.subscribe()
    observable.subscribe()
    assert data_of(Recording.load(path)) == [b"c"]


def test_a_file_that_cannot_be_opened_fails_the_stream_before_it_begins(tmp_path: Path) -> None:
    errors: list[Exception] = []
    source: Subject[bytes] = Subject()
    source.pipe(recorder(tmp_path / "no" / "file")).subscribe(on_error=errors.append)
    assert (type(errors[0]), source.observers) == (FileNotFoundError, [])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk here")
async def test_a_full_disk_is_reported_once_and_the_stream_goes_on() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    seen: list[object] = []
    source = reactivex.from_iterable([b"a", b"b"])
    source.pipe(recorder("/dev/full")).subscribe(seen.append, seen.append, lambda: seen.append("completed"))
    assert seen == [b"a", b"b", "completed"]
    assert [type(context["exception"]) for context in reported] == [OSError]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "line 1 is not the header"),
        (b"data: x\n\n", "line 1 is not JSON"),
        (b'{"rillet":"recording","version":2,"content_type":"a/b"}\n', "of version 1"),
        (b'{"rillet":"recording","version":1}\n', "no content_type"),
        (b"HEADER7\n", "line 2 is not a JSON object"),
        (b"HEADERoops\n{}\n", "line 2 is not JSON"),
        (b'HEADER{"t":1}\n', "line 2 is neither a piece nor an end"),
        (b'HEADER{"t":1,"b64":"?"}\n', "line 2 is not base 64"),
        (b'HEADER{"text":"a"}\n', "line 2 has no time"),
        (b'HEADER{"t":-1,"text":"a"}\n', "line 2 has no time"),
        (b'HEADER{"t":true,"text":"a"}\n', "line 2 has no time"),
        (b'HEADER{"t":1,"end":"well"}\n', "line 2 tells of no end"),
        (b'{"rillet":"recording","version":1,"content_type":"a/b\\r\\nX: y"}\n', "no content_type"),
        (b'HEADER{"t":1,"end":"failed","status":199}\n', "line 2 has a status that no answer has"),
        (b'HEADER{"t":1,"end":"failed","status":1000}\n', "line 2 has a status that no answer has"),
        (b'HEADER{"t":1,"end":"failed","status":true}\n', "line 2 has a status that no answer has"),
    ],
)
def test_what_is_no_recording_is_said_to_be_none(content: bytes, says: str) -> None:
    header = b'{"rillet":"recording","version":1,"content_type":"text/event-stream"}\n'
    with pytest.raises(ValueError, match=says):
        Recording.parse(content.replace(b"HEADER", header))


@pytest.mark.parametrize(
    ("head", "is_one"),
    [
        (b'{"rillet":"recording","version":1,"content_type":"a/b"}\ndata', True),
        (b'{ "version": 1, "rillet": "recording" }\n', True),
        (b'{"rillet":"recor', False),
        (b'{"text":"rillet recording"}\n', False),
        (b'"rillet"\n', False),
        (b"data: {}\n\n", False),
        (b"", False),
    ],
)
def test_a_recording_is_known_by_its_header(head: bytes, is_one: bool) -> None:
    assert is_recording(head) is is_one


async def record(path: Path, session: aiohttp.ClientSession, fault: Fault | None) -> None:
    async with Sandbox(SCRIPT, fault=fault) as base_url:
        answer = ask(session, "hi", provider="openai", base_url=base_url, record=path, timeouts=Timeouts(liveness=0.05))
        with suppress(StreamError):
            async with aclosing(iterate(answer)) as flow:
                async for _ in flow:
                    pass


async def chunks(base_url: str) -> list[bytes]:
    """The chunks of the body, as they are on the wire."""
    url = urlsplit(base_url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(b"GET /any/path HTTP/1.1\r\nHost: here\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    found = []
    while size := int(await reader.readline(), 16):
        found.append(await reader.readexactly(size))
        await reader.readline()
    writer.close()
    return found


async def test_a_replay_keeps_the_cuts(path: Path) -> None:
    body = "data: Café ☕\r\n\r\n".encode() * 30
    cuts = [body[at : at + 7] for at in range(0, len(body), 7)]
    sandbox = Sandbox(Replay(recorded(path, reactivex.from_iterable(cuts)), FAST))
    async with sandbox as base_url:
        assert await chunks(base_url) == cuts
        assert sandbox.requests[0].sent == len(body)


async def test_an_empty_piece_ends_no_body() -> None:
    recording = Recording((Piece(0.0, b"a"), Piece(0.0, b""), Piece(0.0, b"b")), "complete", 0.0)
    async with Sandbox(Replay(recording)) as base_url:
        assert await chunks(base_url) == [b"a", b"b"]


@pytest.mark.parametrize("pace", [1.0, 20.0])
async def test_a_replay_takes_its_time(session: aiohttp.ClientSession, pace: float) -> None:
    pieces = tuple(Piece(0.02 * n, b"data: %d\n\n" % n) for n in range(1, 5))
    body = b""
    loop = asyncio.get_running_loop()
    async with Sandbox(Replay(Recording(pieces, "complete", 0.1), pace)) as base_url:
        begin = loop.time()
        async for chunk in iterate(bytes_from(session, "GET", base_url)):
            body += chunk
            assert loop.time() - begin >= 0.02 * body.count(b"data") / pace
        assert loop.time() - begin >= 0.1 / pace
    assert body == b"".join(piece.data for piece in pieces)


@pytest.mark.parametrize(
    ("fault", "end", "kind"),
    [
        (None, "left", None),
        (Fault("end", 900), "complete", None),
        (Fault("cut", 900), "failed", "truncated_stream"),
        (Fault("reset", 900), "failed", "truncated_stream"),
        (Fault("stall", 900), "failed", "idle_timeout"),
        (Fault("status", status=429), "failed", "http_status_error"),
    ],
)
async def test_a_replay_ends_as_the_recorded_answer_did(
    path: Path, session: aiohttp.ClientSession, fault: Fault | None, end: RecordedEnd, kind: str | None
) -> None:
    await record(path, session, fault=fault)
    recording = Recording.load(path)
    assert (recording.end, recording.error_kind) == (end, kind)
    again = path.with_suffix(".again")
    async with Sandbox(Replay(recording, FAST)) as base_url:
        answer = collect_stream(
            "hi", provider="openai", base_url=base_url, record=again, timeouts=Timeouts(liveness=0.05)
        )
        if fault is None:
            assert await answer == SCRIPT.text
        else:
            with pytest.raises(StreamError):
                await answer
    replayed = Recording.load(again)
    assert (replayed.end, replayed.error_kind, replayed.status) == (end, kind, recording.status)
    assert b"".join(data_of(replayed)) == b"".join(data_of(recording))


async def test_a_recording_that_was_cut_is_an_answer_that_was_cut(session: aiohttp.ClientSession) -> None:
    async with Sandbox(Replay(Recording((Piece(0.0, b"data: x\n\n"),)))) as base_url:
        with pytest.raises(TruncatedStream):
            async for _ in iterate(bytes_from(session, "GET", base_url)):
                pass


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda replay: Sandbox(replay, Wire(seed=1)), TypeError),
        (lambda replay: Sandbox(replay, fault=Fault("cut")), TypeError),
        (lambda replay: Sandbox(Replay(replay.recording, 0)), ValueError),
        (lambda replay: Sandbox(Replay(replay.recording, math.nan)), ValueError),
        (lambda replay: Sandbox(replay.recording), TypeError),
    ],
)
def test_what_a_replay_is_not_is_refused(make: Callable[[Replay], Sandbox], error: type[Exception]) -> None:
    with pytest.raises(error):
        make(Replay(Recording()))


def test_no_header_and_no_key_is_recorded(path: Path) -> None:
    async def main() -> None:
        async with Sandbox(SCRIPT) as base_url:
            await collect_stream("PROMPT", "KEY", provider="openai", base_url=base_url, record=path)

    asyncio.run(main())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {key for line in lines[1:] for key in line} == {"t", "text", "end"}
    assert not any(word in path.read_text() for word in ("KEY", "PROMPT", "Bearer"))


async def test_silence_replayed_falls_silent(session: aiohttp.ClientSession) -> None:
    recording = Recording((Piece(0.0, b"data: x\n\n"),), "failed", 0.0, "idle_timeout")
    async with Sandbox(Replay(recording)) as base_url:
        with pytest.raises(IdleTimeout):
            async for _ in iterate(bytes_from(session, "GET", base_url, timeouts=Timeouts(liveness=0.05))):
                pass
