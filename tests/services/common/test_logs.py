"""Lines of a service's log, as a process writes them."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
from penstock_services.common import logs
log = logs.configure("dispatcher", "d1")
log.info("request_audited", path="/jobs/\\x00\\x1b[2J\\x9b", name="é\\n")
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_control_characters_of_requests_are_escaped(form: str) -> None:
    env = {"PENSTOCK_LOG_FORMAT": form, "PATH": ""}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, check=True)
    [line] = done.stderr.decode().splitlines()
    assert "é" in line or "\\u00e9" in line
    assert not [c for c in line if ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0]
    assert "request_audited" in line
