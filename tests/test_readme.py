"""The README's programs run as printed, and so do the examples."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
SLOW = re.compile(r"Executing <.* took [0-9.]+ seconds\n")  # what else this machine does is not the program's fault
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def output_of(*arguments: str | Path) -> str:
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", *arguments], capture_output=True, text=True, check=False
    )
    assert (run.returncode, SLOW.sub("", run.stderr)) == (0, "")
    return run.stdout


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.split("\n", 1)[0])
def test_each_program_runs(program: str) -> None:
    assert output_of("-c", program)


def test_each_operator_alone_gives_what_the_comments_say() -> None:
    (program,) = (program for program in PROGRAMS if "through=decode_utf8()" in program)
    output = output_of("-c", program)
    assert output.startswith("Caf\né\none\ntwo\nServerSentEvent(event='message', data='a\\nb', id='')\n")
    assert "TextDelta(text='Hi', choice=0)\nDone()\n" in output
    assert "args={'a': 1}" in output
    assert output.splitlines()[-1].startswith("TruncatedStream - ")


def test_the_ten_lines_print_what_the_page_says() -> None:
    assert output_of("-c", PROGRAMS[0]) == "Let me look. run get_weather with {'city': 'Oslo'}\n"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_each_example_runs(example: Path) -> None:
    assert output_of(example)
