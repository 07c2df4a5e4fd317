"""What the tests of the kits themselves share."""

from __future__ import annotations

from penstock.testing import run_kit
from penstock.types import Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


def found(kit, check):
    """The kit fails in ``check``, with the text that it gives."""
    failures = run_kit(kit, only=check)
    assert failures, f"{check} finds nothing"
    return str(failures[0].error)
