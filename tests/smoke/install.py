"""A wheel -> an empty virtual environment outside the checkout -> the first things a user does there.

`make dist` runs it: python tests/smoke/install.py dist/fewone-*.whl [EXTRA], the core first, then with EXTRA (cli).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONSTRAINTS = HERE.parent.parent / "constraints.txt"
TYPED = """import numpy as np

import fewone

detector = fewone.load("series")
labels: str = fewone.__version__
fewone.load(3)  # a mistake that only the types can tell
"""


class Environment:
    """An empty virtual environment in a folder, and what is run in it: never anything of the checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "environment", with_pip=True)

    def run(self, program: str, *words: str, code: int = 0) -> str:
        """What a program of the environment prints; its exit code must be `code`."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [str(self.folder / "environment" / "bin" / program), *words]
        done = subprocess.run(command, cwd=self.folder, env=clean, capture_output=True, text=True)
        printed = done.stdout + done.stderr
        assert done.returncode == code, f"{' '.join(command)}: exit code {done.returncode}, expected {code}\n{printed}"
        assert "Traceback" not in printed, printed
        return printed

    def install(self, *what: str) -> None:
        self.run("python", "-m", "pip", "install", "--quiet", "--constraint", str(CONSTRAINTS), *what)


def check_core(place: Environment) -> None:
    """Without any extra: the library works, and the command line says in one line what it needs."""
    print(place.run("python", "program.py"), end="")
    print(place.run("fewone", "--version"), end="")
    said = place.run("fewone", "models", code=2)
    assert "fewone[cli]" in said and len(said.splitlines()) == 1, said
    print(said, end="")


def check_types(place: Environment) -> None:
    """mypy sees py.typed: it finds the one mistake of a small program, and no other."""
    place.install("mypy")
    (place.folder / "typed.py").write_text(TYPED)
    said = place.run("mypy", "--strict", "typed.py", code=1)
    assert "typed.py:7: error: " in said and "Found 1 error" in said, said
    print(said, end="")


def check_command_line(place: Environment) -> None:
    """With the command line: the zoo is listed, a detector fitted from a file and asked about another."""
    assert "usage: fewone VERB" in place.run("fewone", "--help")
    print(place.run("fewone", "models"), end="")
    place.run("fewone", "fit", "series", "normals.csv", "--out", "press-8")
    print(place.run("fewone", "score", "press-8", "new.csv", code=1).splitlines()[0])


def main(wheel: str, extra: str = "cli") -> None:
    path = Path(wheel).resolve()
    print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    with tempfile.TemporaryDirectory(prefix="fewone-") as folder:
        place = Environment(Path(folder))
        shutil.copy(HERE / "program.py", place.folder)
        place.install(str(path))
        check_core(place)
        check_types(place)
        place.install(f"{path}[{extra}]")
        print(place.run("python", "program.py"), end="")
        check_command_line(place)
    print(f"the wheel works, alone and with [{extra}]")


if __name__ == "__main__":
    main(*sys.argv[1:])
