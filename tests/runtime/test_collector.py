"""The collector runs when something may be found and nobody waits."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from penstock.runtime import collector

if TYPE_CHECKING:
    from collections.abc import Iterator


class Knot:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def tidy() -> Iterator[collector.Collector]:
    gc.collect()
    made = collector.Collector()
    made.start()
    yield made
    gc.enable()


def _tie(n: int) -> list[weakref.ref[Knot]]:
    return [weakref.ref(Knot()) for _ in range(n)]


def test_nothing_is_switched_off_before_it_starts() -> None:
    """A slot that is made and never run, as tests do, would leave its process without a collector."""
    collector.Collector()
    assert gc.isenabled()


def test_off_until_ticked(tidy: collector.Collector) -> None:
    refs = _tie(collector.LEAST + 1)
    assert all(ref() is not None for ref in refs)
    assert tidy.tick(idle=True)
    assert all(ref() is None for ref in refs)


def test_little_garbage_is_left(tidy: collector.Collector) -> None:
    ref = _tie(1)[0]
    assert not tidy.tick(idle=True)
    assert ref() is not None


def test_a_busy_slot_is_spared_until_much_lies_about(
    tidy: collector.Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = _tie(collector.LEAST + 1)
    assert not tidy.tick(idle=False)
    monkeypatch.setattr(collector, "MOST", collector.LEAST)
    assert tidy.tick(idle=False)
    assert refs[0]() is None


def test_not_again_at_once(tidy: collector.Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "SHARE", 1e-6)  # a small heap is looked through in no time
    _tie(collector.LEAST + 1)
    assert tidy.tick(idle=True)
    _tie(collector.LEAST + 1)
    assert not tidy.tick(idle=True), "it would take more than its share of time"
