"""``penstock init``: a new project, with a job that runs and a test of it."""

from __future__ import annotations

from pathlib import Path

import typer

from penstock.errors import SpecError

_JOB = '''"""Counts words. Run it: penstock run job.py"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api import StreamExecutionEnvironment, Types

if TYPE_CHECKING:
    from penstock.api import DataStream

COUNT = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])


def counts(lines: DataStream) -> DataStream:
    """The number of times that each word has come so far."""
    words = lines.flat_map(lambda line: [(word, 1) for word in line.split()], COUNT)
    return words.key_by("word").reduce(lambda a, b: (a.word, a.n + b.n)).uid("counts")


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    lines = env.from_collection(["to be or not", "to be"], Types.STRING())
    counts(lines).print()
    env.execute("word count")


if __name__ == "__main__":
    main()
'''

_TEST = '''"""Tests of the job: pytest. The fixture is the real runtime in this process (docs: Test your jobs)."""

from __future__ import annotations

from job import counts
from penstock.api import Sink, StreamExecutionEnvironment, Types


def test_each_word_is_counted(penstock):
    env = StreamExecutionEnvironment.get_execution_environment()
    lines = env.from_collection(["a b", "b"], Types.STRING())
    out = penstock.table("out", "word STRING, n BIGINT")
    counts(lines).sink_to(Sink.connector("memory", {"name": "out"}))

    penstock.program(env).wait()

    assert sorted(out.rows) == [("a", 1), ("b", 1), ("b", 2)]
'''

_README = """# {name}

    penstock run job.py          # in a cluster of its own, which ends with the job
    penstock up                  # a cluster that stays; then: penstock run job.py --cluster http://127.0.0.1:8081
    pytest                       # the test
"""

_PROJECT = """[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["penstock"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

_FILES = {"job.py": _JOB, "test_job.py": _TEST, "README.md": _README, "pyproject.toml": _PROJECT}


def new_project(folder: str) -> None:
    """Writes the files of a project into ``folder``, which is made if it is not there.

    Raises:
        SpecError: A file is there already; nothing is written then.
    """
    root = Path(folder)
    name = root.resolve().name
    there = [file for file in _FILES if (root / file).exists()]
    if there:
        raise SpecError(
            f"{folder} has these files already",
            expected="a folder without " + ", ".join(_FILES),
            got=", ".join(there),
            remedy="name another folder: penstock init FOLDER",
        )
    others = sum(1 for _ in root.iterdir()) if root.exists() else 0
    if others:
        kept = "1 file or folder stays" if others == 1 else f"{others} files and folders stay"
        typer.echo(f"{folder} is not empty: {kept} as before; {', '.join(_FILES)} are added")
    root.mkdir(parents=True, exist_ok=True)
    for file, text in _FILES.items():
        (root / file).write_text(text.format(name=name) if file in ("README.md", "pyproject.toml") else text)
    typer.echo(f"{folder}: {', '.join(_FILES)}\nTry it:  cd {folder} && penstock run job.py && pytest")
