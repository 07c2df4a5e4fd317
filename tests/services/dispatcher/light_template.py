"""A template of planners that starts at once, for tests whose planners need nothing of the product."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from penstock_services.dispatcher import planner_processes

if TYPE_CHECKING:
    import pytest


def light_template(monkeypatch: pytest.MonkeyPatch, *preload: str) -> None:
    """Templates of this test import only ``preload``."""
    program = "import sys, penstock.api.planner_template as t; "
    program += f"t.PRELOAD, t.PROGRAMS = {preload!r}, {{}}; t.main(['template', sys.argv[1]])"
    monkeypatch.setattr(planner_processes, "_ARGV", [sys.executable, "-P", "-c", program])
