"""pytest imports the plugin wherever Penstock is installed, also for tests that do not use it."""

from __future__ import annotations

import subprocess
import sys

import penstock.testing


def test_the_plugin_imports_neither_kits_nor_the_runtime() -> None:
    code = "import sys, penstock.testing.pytest_plugin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "penstock.testing.pytest_plugin" in loaded
    assert not {"penstock.testing.conformance", "penstock.runtime", "penstock.sql", "pyarrow"} & loaded


def test_every_public_name_is_there() -> None:
    for name in penstock.testing.__all__:
        assert getattr(penstock.testing, name).__name__ == name
    assert not hasattr(penstock.testing, "NoSuchKit")
