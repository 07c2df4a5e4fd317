"""A user's own package may be named as one of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

PROGRAM = """
from penstock.api import StreamExecutionEnvironment, Types
from services.pricing import gross

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([100, 200], Types.LONG()).map(gross, Types.LONG()).print()
env.execute("prices")
"""


def test_a_package_named_services(tmp_path: Path) -> None:
    package = tmp_path / "services"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "pricing.py").write_text("def gross(net):\n    return net * 119 // 100\n")
    program = tmp_path / "prices.py"
    program.write_text(PROGRAM)
    penstock = Path(sys.executable).with_name("penstock")
    done = subprocess.run([penstock, "run", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["119", "238"]
