"""The programs of the README and of docs/ run as printed, their links lead somewhere, and the examples run, too."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))
PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
SLOW = re.compile(r"Executing <.* took [0-9.]+ seconds\n")  # what else this machine does is not the program's fault
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def programs(page: Path) -> list[str]:
    return PROGRAM.findall(page.read_text(encoding="utf-8"))


def program_with(words: str) -> str:
    (program,) = (program for page in PAGES for program in programs(page) if words in program)
    return program


def output_of(*arguments: str | Path) -> str:
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", *arguments], capture_output=True, text=True, check=False
    )
    assert (run.returncode, SLOW.sub("", run.stderr)) == (0, "")
    return run.stdout


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, id=f"{page.name}-{number}")
        for page in PAGES
        for number, program in enumerate(programs(page), 1)
    ],
)
def test_each_program_runs_and_says_something(program: str) -> None:
    output = output_of("-c", program)
    assert output or "assert " in program


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for path, heading in LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / path) if path else page
        assert target.exists(), path
        titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE) if heading else []
        assert not heading or heading in {title.lower().replace(" ", "-") for title in titles}


def test_each_operator_alone_gives_what_the_comments_say() -> None:
    output = output_of("-c", program_with("through=decode_utf8()"))
    assert output.startswith("Caf\né\none\ntwo\nServerSentEvent(event='message', data='a\\nb', id='')\n")
    assert "TextDelta(text='Hi', choice=0)\nDone()\n" in output
    assert "args={'a': 1}" in output
    assert output.splitlines()[-1].startswith("TruncatedStream - ")


def test_the_ten_lines_print_what_the_page_says() -> None:
    (said,) = re.findall(r"^It prints `(.*?)`\.", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert output_of("-c", programs(README)[0]) == f"{said}\n"


def test_the_second_attempt_brings_the_whole_answer() -> None:
    output = output_of("-c", program_with("attempts("))
    assert re.fullmatch(
        r"A lo.*\ntruncated: \d+ deltas\nattempt 2: forget the above\nA long answer\.\ncomplete: \d+ deltas\n", output
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_each_example_runs(example: Path) -> None:
    assert output_of(example)
