"""The hour 24, which Python 3.14 reads and earlier versions refuse."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from penstock.connectors.faker.fields import _moment as of_faker
from penstock.connectors.hybrid.cut import _naive as of_seam
from penstock.connectors.jdbc.values import _timestamp as of_database
from penstock.connectors.texts import reader_of
from penstock.types import iso
from penstock.types import logical as t


@pytest.mark.parametrize("text", ["24:00", "24:00:00", "T24:00", "2400", "24"])
def test_a_time_has_no_hour_24(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iso, "dt", _Later)
    with pytest.raises(ValueError, match="hour"):
        iso.time_of(text)


@pytest.mark.parametrize(
    "text",
    ["2024-01-01 24:00:00", "2024-01-01T24:00", "20240101T2400", "2024-01-01T24", "2024-01-01 24:00+02:00"],
)
def test_a_timestamp_has_no_hour_24(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iso, "dt", _Later)
    with pytest.raises(ValueError, match="hour"):
        iso.datetime_of(text)


@pytest.mark.parametrize(
    "text", ["2024-01-24", "2024-01-24 00:24:24.24", "2024-W24", "2024-01-01T02:24:00-24:00"]
)
def test_a_24_elsewhere_is_read(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iso, "dt", _Later)
    assert iso.datetime_of(text) == dt.datetime(1, 1, 1)
    assert iso.time_of("00:24:24") == dt.time()


@pytest.mark.parametrize(
    "read",
    [
        of_faker, lambda text: of_seam(text, t.TimestampType(3)), of_database,
        lambda text: reader_of(t.TimestampType(3))(text.encode()),
    ],
)  # fmt: skip
def test_connectors_refuse_it(read: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert read("2024-01-01 23:00:00") == dt.datetime(2024, 1, 1, 23)
    monkeypatch.setattr(iso, "dt", _Later)
    with pytest.raises(ValueError, match="hour"):
        read("2024-01-01 24:00:00")


class _Later:
    """A Python that reads everything."""

    class time(dt.time):
        @classmethod
        def fromisoformat(cls, _: str) -> dt.time:
            return dt.time()

    class datetime(dt.datetime):
        @classmethod
        def fromisoformat(cls, _: str) -> dt.datetime:
            return dt.datetime(1, 1, 1)
