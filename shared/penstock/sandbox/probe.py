"""Whether this machine allows a sandbox: a process enters it and looks at what it then is.

``python -m penstock.sandbox.probe`` reads the sandbox from standard input and writes an error, if there is one, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from penstock.errors import ExternalError, PenstockError, error_from_dict
from penstock.messages.sandbox import Sandbox
from penstock.sandbox import kernel
from penstock.sandbox.enter import enter

#: Only ends a process that hangs.
_PATIENCE_S = 60.0
_SECCOMP_FILTERED = "2"


def check(sandbox: Sandbox, folder: str = "") -> None:
    """Raises ExternalError, which names the measure and what to do, if a process of this machine cannot enter the
    sandbox, or can but is not confined. ``folder``: where its folder may be made; empty: the temporary one."""
    with tempfile.TemporaryDirectory(prefix="penstock-sandbox-", dir=folder or None) as private:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "penstock.sandbox.probe"],
            input=msgspec.json.encode(sandbox.at(private)),
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    if done.returncode:
        raise ExternalError(
            "the sandbox of slots cannot be tried",
            got=done.stderr.decode(errors="replace")[-500:],
            where="python -m penstock.sandbox.probe",
        )
    if done.stdout:
        raise error_from_dict(json.loads(done.stdout))


def _look(sandbox: Sandbox) -> None:
    """Raises ExternalError if a measure had no effect."""
    found = {
        "no-new-privileges": (sandbox.no_new_privileges, kernel.status("NoNewPrivs") == "1"),
        "drop-capabilities": (
            sandbox.drop_capabilities,
            not int(kernel.status("CapEff"), 16) and not int(kernel.status("CapPrm"), 16),
        ),
        "read-only-root": (
            sandbox.read_only_root,
            bool(os.statvfs("/").f_flag & os.ST_RDONLY) and _writes(sandbox.private),
        ),
        "seccomp": (bool(sandbox.seccomp), kernel.status("Seccomp") == _SECCOMP_FILTERED),
    }
    for measure, (wanted, works) in found.items():
        if wanted and not works:
            raise ExternalError(
                f"a measure of the sandbox has no effect on this machine: {measure}",
                where=f"taskmanager.sandbox.{measure}",
                remedy="leave the option out, and separate the task managers by containers or machines",
            )


def _writes(folder: str) -> bool:
    file = Path(folder) / "written"
    try:
        file.write_text("")
    except OSError:
        return False
    file.unlink()
    return True


def main() -> None:
    """The entry point of the process that is confined."""
    sandbox = msgspec.json.decode(sys.stdin.buffer.read(), type=Sandbox)
    try:
        enter(sandbox)
        _look(sandbox)
    except PenstockError as err:
        sys.stdout.write(json.dumps(err.to_dict()))


if __name__ == "__main__":
    main()
