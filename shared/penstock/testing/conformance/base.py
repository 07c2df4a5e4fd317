"""The base of all conformance kits. A kit is a class whose ``test_…`` methods check one guarantee each.

The author of a plug-in derives a class, says what is to be tested, and lets pytest collect it::

    class TestMySource(SourceConformance):
        def connector(self):
            return MyConnector()
        …

``run_kit(TestMySource)`` runs the same checks without pytest and returns what failed. Kits start no server
and set no time limit; ``PATIENCE_S`` only ends a check that hangs.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import traceback
import unittest
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")

#: Only ends a check that hangs; it is no limit of speed.
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Failure:
    """One check that failed. ``check``: the method's name; ``error``: what it raised."""

    check: str
    error: BaseException

    def __str__(self) -> str:
        return f"{self.check}: {type(self.error).__name__}: {self.error}"


class Conformance:
    """The base of all kits. ``folder``: an empty folder for each check; ``patience_s``: seconds after which a
    check counts as hanging."""

    folder: Path
    patience_s: float = PATIENCE_S
    _temporary: tempfile.TemporaryDirectory[str]

    def setup_method(self) -> None:
        """pytest calls this before each check. A class that overrides the method must call it."""
        self._temporary = tempfile.TemporaryDirectory(prefix="penstock-kit-")
        self.folder = Path(self._temporary.name)

    def teardown_method(self) -> None:
        """pytest calls this after each check. A class that overrides the method must call it."""
        self._temporary.cleanup()

    @classmethod
    def checks(cls) -> list[str]:
        """The names of all checks, in the order in which they are written."""
        names: dict[str, None] = {}
        for base in reversed(cls.__mro__):
            names.update(dict.fromkeys(n for n in vars(base) if n.startswith("test_")))
        return list(names)

    def within_patience(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in an event loop of its own; AssertionError when it hangs."""

        async def limited() -> T:
            try:
                return await asyncio.wait_for(work, self.patience_s)
            except TimeoutError as err:
                raise AssertionError(
                    f"nothing happened for {self.patience_s:.0f} s: something hangs"
                ) from err

        return asyncio.run(limited())


def run_kit(kit: type[Conformance], *, only: str = "") -> list[Failure]:
    """Run all checks of a kit (those whose names contain ``only``) and return the failures. A check that
    raises ``unittest.SkipTest`` does not apply and is no failure."""
    failures = []
    for name in kit.checks():
        if only not in name:
            continue
        subject = kit()
        subject.setup_method()
        try:
            getattr(subject, name)()
        except unittest.SkipTest:
            continue
        except Exception as err:
            err.add_note("".join(traceback.format_tb(err.__traceback__)[-2:]))
            failures.append(Failure(name, err))
        finally:
            subject.teardown_method()
    return failures


def same_rows(got: list[tuple[Any, ...]], want: list[tuple[Any, ...]], what: str) -> None:
    """AssertionError unless both hold the same rows the same number of times, in any order."""
    left, right = sorted(map(repr, got)), sorted(map(repr, want))
    if left == right:
        return
    missing, surplus = list(right), []
    for row in left:
        if row in missing:
            missing.remove(row)
        else:
            surplus.append(row)
    raise AssertionError(
        f"{what}: {len(missing)} rows are missing and {len(surplus)} are too many; "
        f"missing {missing[:3]}, too many {surplus[:3]}"
    )


def refusal(call: Callable[[], Any], what: str) -> str:
    """The text of the PenstockError that ``call`` raises; AssertionError when it raises none."""
    try:
        call()
    except PenstockError as err:
        return str(err)
    raise AssertionError(what)


# -- what is left behind --------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """What a process holds: threads, open files, child processes, tasks of the running loop."""

    threads: frozenset[int]
    files: int
    children: frozenset[str]
    tasks: frozenset[int]

    @classmethod
    def now(cls) -> Held:
        children: set[str] = set()
        for task in Path("/proc/self/task").glob("*"):
            try:
                children.update((task / "children").read_text().split())
            except OSError:
                continue  # the thread has ended, or this kernel does not show its files
        return cls(
            # Threads of the loop's own pool (``asyncio.to_thread``) do not count: they end with the loop.
            frozenset(t.ident or 0 for t in threading.enumerate() if not t.name.startswith("asyncio_")),
            len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
            frozenset(children),
            frozenset(id(t) for t in asyncio.all_tasks()),
        )

    def beyond(self, before: Held) -> list[str]:
        """Descriptions of what is held now and was not held before."""
        names = {t.ident: t.name for t in threading.enumerate()}
        out = [f"thread '{names.get(i, '?')}'" for i in self.threads - before.threads]
        if self.files > before.files:
            out.append(f"{self.files - before.files} open files or sockets")
        out += [f"process {pid}" for pid in self.children - before.children]
        tasks = {id(t): t for t in asyncio.all_tasks()}
        out += [
            f"asyncio task {tasks[i].get_name()} {tasks[i].get_coro()}"
            for i in self.tasks - before.tasks
            if i in tasks
        ]
        return out


#: The number of loop iterations after which everything that was closed must be gone.
_ROUNDS = 200


async def leaves_nothing(cycle: Callable[[], Awaitable[None]], what: str) -> None:
    """AssertionError when ``cycle`` leaves a thread, file, process or task behind. The first cycle is a
    warm-up: it makes the imports and pools that stay with the process."""
    await cycle()
    await asyncio.sleep(0)
    before = Held.now()
    await cycle()
    left: list[str] = []
    for _ in range(_ROUNDS):
        left = Held.now().beyond(before)
        if not left:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"{what} leaves behind: " + ", ".join(left))
