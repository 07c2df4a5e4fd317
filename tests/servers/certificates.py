"""An authority, and a certificate for 127.0.0.1 that it signs, made by openssl for one test run."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """PEM files. ``authority``: its certificate; ``server``: key and certificate of 127.0.0.1, one behind another."""

    authority: Path
    server: Path


def missing() -> str | None:
    """Why none can be made here; None: they can."""
    return None if shutil.which("openssl") else "openssl is not installed"


def make(folder: Path) -> Certificates:
    """New certificates in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, key, request, signed = (
        folder / n for n in ("ca.pem", "server.key", "server.csr", "server.pem")
    )
    names = folder / "names.cnf"
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for words in (
        ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test authority",
         "-keyout", str(folder / "ca.key"), "-out", str(authority)],
        ["req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-keyout", str(key), "-out", str(request)],
        ["x509", "-req", "-in", str(request), "-CA", str(authority), "-CAkey", str(folder / "ca.key"),
         "-CAcreateserial", "-days", "2", "-extfile", str(names), "-out", str(signed)],
    ):  # fmt: skip
        subprocess.run(["openssl", *words], check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_text(key.read_text() + signed.read_text())
    return Certificates(authority, both)
