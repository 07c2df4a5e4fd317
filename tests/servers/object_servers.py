"""Azurite, which speaks the protocol of Azure's blob storage, in memory, on a free port of the loopback."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from email.utils import formatdate

from penstock.processes import die_with_parent_after_exec
from penstock.reserving import port_of, reserve_port
from tests.servers import cache

#: How long a server may take to start: against hanging only.
_PATIENCE_S = 120
ACCOUNT, KEY = "penstock", base64.b64encode(b"a key of this test alone").decode()


def _program(name: str) -> str | None:
    place = cache.folder() / "azurite/node_modules/.bin" / name
    return str(place) if place.exists() else shutil.which(name)


def missing(name: str) -> str | None:
    """Why the server cannot run here, in words for a skipped test; None: it can."""
    return None if _program(name) else f"{name} is not there: make test-servers fetches it"


class _Server:
    """``options``: the options of a table (``fs.*``) or of a store; ``url``: its bucket."""

    program = ""
    options: dict[str, str]
    url: str

    def __init__(self) -> None:
        self._reserved = reserve_port()
        self.port = port_of(self._reserved)
        self._process: subprocess.Popen[bytes] | None = None

    def _arguments(self) -> list[str]:
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        return {}

    def start(self) -> None:
        """Starts it, waits until it listens, and makes the bucket."""
        program = _program(self.program)
        assert program is not None
        self._process = subprocess.Popen(
            [program, *self._arguments()], env={**os.environ, **self._environment()},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent_after_exec,
        )  # fmt: skip
        end = time.monotonic() + _PATIENCE_S
        while True:
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.program} did not start")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                break
            time.sleep(0.05)
        self.make_bucket()

    def make_bucket(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Ends it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._reserved.close()


class AzuriteServer(_Server):
    """Microsoft's own imitation of Azure's blob storage."""

    program = "azurite-blob"

    def __init__(self) -> None:
        super().__init__()
        self.url = "az://penstock"
        self.options = {
            "account_name": ACCOUNT, "account_key": KEY, "endpoint": f"http://127.0.0.1:{self.port}/{ACCOUNT}",
            "allow_http": "true",
        }  # fmt: skip

    def _arguments(self) -> list[str]:
        return ["--inMemoryPersistence", "--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--skipApiVersionCheck",
                "--disableTelemetry"]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        return {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}

    def make_bucket(self) -> None:
        now, version = formatdate(usegmt=True), "2021-12-02"
        text = f"PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{now}\nx-ms-version:{version}\n/{ACCOUNT}/{ACCOUNT}/penstock\nrestype:container"
        signature = base64.b64encode(
            hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        ).decode()
        headers = {
            "x-ms-date": now,
            "x-ms-version": version,
            "Authorization": f"SharedKey {ACCOUNT}:{signature}",
            "Content-Length": "0",
        }
        url = f"http://127.0.0.1:{self.port}/{ACCOUNT}/penstock?restype=container"
        urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers), timeout=30).close()


def fetch_azurite() -> str:
    """Install Azurite into the cache; says what was done."""
    target = cache.folder() / "azurite"
    if (target / "node_modules/.bin/azurite-blob").exists():
        return f"azurite: is there, in {target}"
    npm = shutil.which("npm")
    if npm is None:
        return "azurite: not fetched, because npm is not installed"
    partly = target.with_suffix(".partly")
    shutil.rmtree(partly, ignore_errors=True)
    partly.mkdir(parents=True)
    (partly / "package.json").write_text('{"private": true}')
    done = subprocess.run([npm, "install", "--no-audit", "--no-fund", "azurite@3"], cwd=partly, check=False)
    if done.returncode != 0:
        return f"azurite: not fetched, because npm ended with {done.returncode}"
    shutil.rmtree(target, ignore_errors=True)
    partly.rename(target)
    return f"azurite: fetched into {target}"
