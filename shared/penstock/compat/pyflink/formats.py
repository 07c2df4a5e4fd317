"""The names of ``pyflink.datastream.formats`` and its modules."""

from __future__ import annotations

from penstock.compat.pyflink.absent import ABSENT
from penstock.compat.pyflink.names import finder

__getattr__, __all__ = finder(__name__, {}, ABSENT["formats"])


def __dir__() -> list[str]:
    return __all__
