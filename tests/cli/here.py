"""The command line in this process: a Python that starts takes a second, and loads what is loaded here already.

For commands that end by themselves. How a process ends, at a signal say, is for tests that start one.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
from pathlib import Path
from unittest import mock

from penstock.cli.main import main


def penstock_here(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What ``penstock`` with these arguments prints, and its exit code."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch("sys.argv", ["penstock", *args]),
        mock.patch("penstock.cli.signals.leave_on_signals"),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return subprocess.CompletedProcess(list(args), code, out.getvalue(), err.getvalue())
