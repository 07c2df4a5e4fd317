"""A slot's standard output in files of bounded size."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.messages.slot_output import file_of, newest, numbered
from penstock.runtime.output_files import OutputFiles


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., tuple[OutputFiles, int, int]]]:
    """Makes (the files, two descriptors that stand for standard output and error)."""
    descriptors: list[int] = []

    def make(max_bytes: int, max_files: int) -> tuple[OutputFiles, int, int]:
        out, err = os.open(os.devnull, os.O_WRONLY), os.open(os.devnull, os.O_WRONLY)
        descriptors.extend((out, err))
        files = OutputFiles(tmp_path / "log" / "j.a-1.log", max_bytes, max_files, descriptors=(out, err))
        files.open()
        return files, out, err

    yield make
    for descriptor in descriptors:
        os.close(descriptor)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((folder / "log").iterdir())}


def test_a_full_file_is_followed_by_the_next_and_the_oldest_goes(opened, tmp_path: Path) -> None:
    files, out, _ = opened(max_bytes=16, max_files=2)
    text = files.text(out)
    for n in range(8):
        print(f"line {n}", file=text)  # 7 bytes: two a file
    assert contents(tmp_path) == {"j.a-1.2.log": "line 4\nline 5\n", "j.a-1.3.log": "line 6\nline 7\n"}
    assert newest(tmp_path / "log" / "j.a-1.log").name == "j.a-1.3.log"


def test_both_streams_share_a_file_and_code_past_python_follows_them(opened, tmp_path: Path) -> None:
    files, out, err = opened(max_bytes=12, max_files=8)
    print("first", file=files.text(out))
    print("second", file=files.text(err))
    os.write(out, b"native\n")
    print("third", file=files.text(err))
    assert contents(tmp_path) == {
        "j.a-1.log": "first\n",
        "j.a-1.1.log": "second\nnative\n",
        "j.a-1.2.log": "third\n",
    }


@pytest.mark.parametrize("line", ["x" * 5, "x" * 99, "ü" * 40, ""])
def test_nothing_is_lost_or_larger_than_a_file_while_all_are_kept(opened, tmp_path: Path, line: str) -> None:
    files, out, _ = opened(max_bytes=32, max_files=1000)
    text, written = files.text(out), ""
    for n in range(20):
        written += f"{n} {line}\n"
        print(n, line, file=text)
    text.write(many := "".join(f"{n}{line}\n" for n in range(50)))  # one write, larger than a file
    paths = sorted((tmp_path / "log").iterdir(), key=lambda p: numbered(p.name) or ("", -1))
    assert b"".join(p.read_bytes() for p in paths).decode() == written + many
    assert max(p.stat().st_size for p in paths) <= 32


def test_threads_do_not_mix_their_lines(opened, tmp_path: Path) -> None:
    files, out, _ = opened(max_bytes=256, max_files=10_000)
    streams = [files.text(out) for _ in range(4)]
    lines = [f"{n}" * 30 + "\n" for n in range(4)]
    threads = [
        threading.Thread(target=lambda n=n: [streams[n].write(lines[n]) for _ in range(100)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = "".join(contents(tmp_path).values()).splitlines(keepends=True)
    assert sorted(found) == sorted(lines * 100)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("j.a-1.log", ("j.a-1", 0)),
        ("j.a-1.12.log", ("j.a-1", 12)),
        ("job-2.a-b-10.3.log", ("job-2.a-b-10", 3)),
        ("taskmanager.log", None),
        ("taskmanager.log.1", None),
        ("j.a-1.log.bak", None),
    ],
)
def test_names_are_read_as_they_are_made(name: str, expected: tuple[str, int] | None) -> None:
    assert numbered(name) == expected
    if expected is not None:
        assert file_of(Path(f"{expected[0]}.log"), expected[1]) == Path(name)
