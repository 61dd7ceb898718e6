"""What the commands of `rillet` do; `cli` reads their arguments."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from itertools import chain as chain_iterables
from typing import TypeVar

import aiohttp
from reactivex import Observable

from rillet.operators import ByteWindow, Chain, Delta, Message, ServerSentEvent, Stage, ToolCallPreview, WireProtocol
from rillet.operators.decode_utf8 import DecodeUtf8
from rillet.operators.errors import HttpStatusError, NotAnEventStream, StreamError, TruncatedStream
from rillet.operators.events import make_event
from rillet.operators.group_events import GroupEvents
from rillet.operators.split_lines import SplitLines

from .answer import Answer
from .chain import DeltaChain, deltas
from .cli import DEMO_FAULT_AFTER
from .client import ask
from .iterate import iterate
from .protocols import OPENAI_CHAT
from .providers import PROVIDERS
from .recognise import recognise
from .recorder import Recording, is_recording
from .sandbox import Fault, Replay, Sandbox, Script, ScriptedCall, Wire
from .screen import JsonScreen, Screen, TextScreen, live_screen_or, printable
from .source import bytes_from
from .timeouts import Timeouts

Out = TypeVar("Out")

READ_SIZE = 64 * 1024
BODY_SHOWN = 200
RECOGNISE_WITHIN = 256 * 1024

DEMO = Script(
    text="Two things to look up: the weather in Orléans, and a recipe for crème brûlée ☕. One moment…",
    calls=(
        ScriptedCall("get_weather", {"city": "Orléans", "unit": "celsius", "days": 3}),
        ScriptedCall("find_recipe", {"dish": "crème brûlée", "servings": 4, "without": ["nuts"]}),
    ),
    usage=(41, 63),
)
DEMO_WIRE = Wire(seed=7, delay=0.006, comments=1, crlf=True)
DEMO_PATIENCE = 2.0
NO_EVENT = "there is no event in it: is it an event stream?"
CUT_SHORT = ("length", "content_filter")

SCRIPTED = """\
serving {base_url}/chat/completions and {base_url}/plain; Ctrl-C ends it
try: rillet ask hello --provider openai --base-url {base_url}
there too: openai-responses, anthropic and gemini; and ollama, with --base-url {root}"""
REPLAYED = """\
serving {base_url} where every path answers with the recording; Ctrl-C ends it
try: rillet ask hello --base-url {base_url} --provider, and the one that was recorded"""


def run(options: argparse.Namespace) -> int:
    """Run the command that was asked for; the result is the exit code."""
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        return _COMMANDS[options.command](options)
    except StreamError as error:
        return _failed(error)
    except BrokenPipeError:
        return _reader_gone()
    except OSError as error:
        _reader_gone()
        return _complain(f"cannot write: {error.strerror}", 2)
    except _UsageError as error:
        return _complain(str(error), 2)


class _UsageError(Exception):
    """What was asked for can't be done; the message says why."""


def _demo(options: argparse.Namespace) -> int:
    answer = asyncio.run(_run_demo(_fault(options), live_screen_or(TextScreen(sys.stdout, growing=True))))
    message = answer.message()
    for call in message.tool_calls:
        print(f"verified: {call.name}({json.dumps(call.args, ensure_ascii=False)})")
    print(f"complete: {len(message.text)} characters of text and {len(message.tool_calls)} verified tool calls")
    return 0


async def _run_demo(fault: Fault | None, screen: Screen) -> Answer:
    patience = Timeouts(liveness=DEMO_PATIENCE)
    async with Sandbox(DEMO, DEMO_WIRE, fault) as base_url, aiohttp.ClientSession() as session:
        source = bytes_from(session, "POST", base_url + "/chat/completions", json={"stream": True}, timeouts=patience)
        return await _show(deltas(source, "openai-chat"), screen)


def _ask(options: argparse.Namespace) -> int:
    asyncio.run(_run_ask(options, JsonScreen(sys.stdout) if options.json else live_screen_or(TextScreen(sys.stdout))))
    return 0


async def _run_ask(options: argparse.Namespace, screen: Screen) -> None:
    async with aiohttp.ClientSession() as session:
        try:
            answer = ask(
                session,
                options.prompt,
                provider=options.provider,
                model=options.model,
                base_url=options.base_url,
                timeouts=Timeouts(liveness=options.timeout),
                record=options.record,
            )
        except ValueError as error:  # the provider is one of those there are: what it lacks is the key
            variable = PROVIDERS[options.provider].key_variable
            raise _UsageError(f"no API key for {options.provider}: set {variable}") from error
        try:
            await _show(answer, screen)
        except aiohttp.InvalidURL as error:
            raise _UsageError(f"{options.base_url} is no base URL") from error
        except OSError as error:
            if options.record is None or error.filename != options.record:
                raise
            raise _UsageError(f"{options.record}: {error.strerror}") from error


async def _show(observable: Observable[Delta], screen: Screen) -> Answer:
    answer = Answer()
    window = ByteWindow()
    try:
        async with aclosing(iterate(screen.follow(observable, window), window=window)) as flow:
            async for shown in flow:
                if not isinstance(shown, ToolCallPreview):
                    answer.add(shown)
                screen.show(shown)
    except StreamError as error:
        screen.end(error.partial, error)
        raise
    finally:
        screen.close()
    screen.end(answer.messages, None)
    _tell_finish(answer.messages)
    return answer


def _parse(options: argparse.Namespace) -> int:
    screen = JsonScreen(sys.stdout) if options.json else TextScreen(sys.stdout)
    chain: DeltaChain | None = None
    try:
        chain, chunks = _opened(options)
        for delta in _run(chain, chunks):
            screen.show(delta)
    except StreamError as error:
        if isinstance(error, TruncatedStream) and chain and error.bytes_seen and not chain.events_seen:
            error.add_note(NO_EVENT)
        screen.end(error.partial, error)
        raise
    screen.end(chain.messages, None)
    _tell_finish(chain.messages)
    return 0


def _opened(options: argparse.Namespace) -> tuple[DeltaChain, Iterator[bytes]]:
    """The chain for the dialect asked for or recognised, and the chunks."""
    chunks = _chunks(options.file)
    protocol = options.protocol
    try:
        if protocol in (None, "auto"):
            protocol, chunks = _recognised(chunks)
        # A stream that shows no dialect is read as the commonest, which says what it lacks.
        chain = DeltaChain(protocol or OPENAI_CHAT)
    except ModuleNotFoundError as error:
        raise _UsageError(error) from error
    if options.protocol == "auto":
        print(f"rillet: this is {protocol.name if protocol else 'no dialect that I know'}", file=sys.stderr)
    return chain, chunks


def _recognised(chunks: Iterator[bytes]) -> tuple[WireProtocol | None, Iterator[bytes]]:
    """The dialect, None where none shows, and the chunks again."""
    head = b""
    protocol = None
    for chunk in chunks:
        head += chunk
        protocol = recognise(head)
        if protocol is not None or len(head) > RECOGNISE_WITHIN:
            break
    return protocol, chain_iterables((head,), chunks)


def _events(options: argparse.Namespace) -> int:
    decode = DecodeUtf8()
    lines, group = SplitLines(eof="dispatch"), GroupEvents(make_event, half="fail")
    chain: Chain[bytes, ServerSentEvent] = Chain(decode, lines, group)
    is_empty = True
    for event in _run(chain, _chunks(options.file)):
        is_empty = False
        print(json.dumps({"event": event.event, "data": event.data, "id": event.id}, ensure_ascii=False), flush=True)
    if is_empty and decode.bytes_seen:
        raise TruncatedStream(NO_EVENT)
    return 0


def _run(stage: Stage[bytes, Out], chunks: Iterator[bytes]) -> Iterator[Out]:
    """What a stage gives for the chunks, and for their end."""
    yield from stage.feed(chunks)
    if not stage.closed:
        yield from stage.finish()


def _chunks(file: str) -> Iterator[bytes]:
    """A file, or standard input, as it comes."""
    try:
        with open(0 if file == "-" else file, "rb", buffering=0, closefd=file != "-") as stream:
            os.set_blocking(stream.fileno(), True)  # whoever gave us standard input may have had other plans
            first = stream.read(READ_SIZE)
            if is_recording(first):
                recording = _recording(file, first + stream.readall())
                yield from (piece.data for piece in recording.pieces)
                return
            if first.lstrip().startswith(b"<"):
                raise NotAnEventStream("an HTML or XML page", first.decode("utf-8", "replace"))
            yield first
            while chunk := stream.read(READ_SIZE):
                yield chunk
    except OSError as error:
        raise _UsageError(f"{file}: {error.strerror}") from error


def _recording(file: str, content: bytes | None = None) -> Recording:
    """The recording in a file, whose content may have been read already."""
    try:
        return Recording.load(file) if content is None else Recording.parse(content)
    except OSError as error:
        raise _UsageError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise _UsageError(f"{file}: {error}") from error


def _sandbox(options: argparse.Namespace) -> int:
    if options.replay is None and options.pace is not None:
        raise _UsageError("--pace says how fast a recording is replayed: --replay is missing")
    if options.replay is None:
        sandbox, banner = Sandbox(DEMO, DEMO_WIRE, _fault(options), port=options.port), SCRIPTED
    elif options.fault is None:
        replay = Replay(_recording(options.replay), 1.0 if options.pace is None else options.pace)
        sandbox, banner = Sandbox(replay, port=options.port), REPLAYED
    else:
        raise _UsageError("a recording ends as it ended: --replay takes no --fault")
    try:
        asyncio.run(_serve(sandbox, banner))
    except OSError as error:
        raise _UsageError(f"port {options.port}: {error.strerror}") from error
    return 0


async def _serve(sandbox: Sandbox, banner: str) -> None:
    async with sandbox as base_url:
        print(banner.format(base_url=base_url, root=base_url.removesuffix("/v1")), flush=True)
        await asyncio.Event().wait()


def _fault(options: argparse.Namespace) -> Fault | None:
    if options.fault is not None:
        return Fault(options.fault, DEMO_FAULT_AFTER if options.after is None else options.after)
    if options.after is not None:
        raise _UsageError("--after says where a fault comes: --fault is missing")
    return None


def _tell_finish(messages: Sequence[Message]) -> None:
    """An answer that its provider cut short arrived whole: that is no error, but nobody should take it for all."""
    for message in messages[:1]:
        if message.finish is not None and message.finish.reason in CUT_SHORT:
            _complain(f"it arrived whole, but its provider cut it short: {message.finish.reason}", 0)


def _failed(error: StreamError) -> int:
    is_no_stream = isinstance(error, HttpStatusError | NotAnEventStream)
    arrived = [] if error.bytes_seen is None or is_no_stream else [f"{error.bytes_seen:,} bytes"]
    for message in error.partial[:1]:
        arrived.append(f"{len(message.text):,} characters of text")
        arrived.append(f"{len(message.tool_calls)} finished tool calls")
    how_much = f" ({', '.join(arrived)} had arrived)" if arrived else ""
    if isinstance(error, HttpStatusError) and error.body and not error.message:
        error.add_note(f"it says: {error.body[:BODY_SHOWN]}")
    if isinstance(error, NotAnEventStream) and error.snippet:
        error.add_note(f"it says: {error.snippet}")
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    return _complain(f"{error.kind}: {error}{how_much}{notes}", 1)


def _complain(message: str, code: int) -> int:
    line = f"rillet: {printable(message)}"
    if sys.stderr.isatty():
        columns = shutil.get_terminal_size().columns
        line = textwrap.fill(line, columns, break_long_words=False, break_on_hyphens=False)
    print(line, file=sys.stderr)
    return code


def _reader_gone() -> int:
    """Whoever read the output has left; what is still buffered must not complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "demo": _demo,
    "parse": _parse,
    "events": _events,
    "ask": _ask,
    "sandbox": _sandbox,
}
