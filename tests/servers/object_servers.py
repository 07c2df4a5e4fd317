"""Servers of object stores on a free port of the loopback: Azurite speaks the protocol of Azure's blob storage, in memory; MinIO
speaks S3's, on disk, and may be killed and started again."""

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
from pathlib import Path

from penstock.processes import die_with_parent_after_exec
from penstock.reserving import port_of, reserve_port
from tests.servers import cache

#: How long a server may take to start: against hanging only.
_PATIENCE_S = 120
ACCOUNT, KEY = "penstock", base64.b64encode(b"a key of this test alone").decode()


#: The newest MinIO of Go's modules, whose versions have dates instead of numbers.
_MINIO = "github.com/minio/minio@latest"


def _program(name: str) -> str | None:
    for place in (cache.folder() / "azurite/node_modules/.bin" / name, cache.folder() / name / "bin" / name):
        if place.exists():
            return str(place)
    return shutil.which(name)


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

    def kill(self) -> None:
        """As a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Ends it."""
        self.kill()
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


class MinioServer(_Server):
    """MinIO with one drive, the folder ``folder``."""

    program = "minio"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.url = "s3://penstock"
        self.options = {
            "access_key_id": ACCOUNT, "secret_access_key": KEY, "endpoint": self.endpoint, "allow_http": "true",
            "region": "us-east-1",
        }  # fmt: skip
        #: The same for pyiceberg.
        self.iceberg_options = {
            "s3.endpoint": self.endpoint, "s3.access-key-id": ACCOUNT, "s3.secret-access-key": KEY, "s3.region": "us-east-1",
        }  # fmt: skip

    def _arguments(self) -> list[str]:
        return ["server", "--quiet", "--address", f"127.0.0.1:{self.port}", str(self._folder)]

    def _environment(self) -> dict[str, str]:
        return {"MINIO_ROOT_USER": ACCOUNT, "MINIO_ROOT_PASSWORD": KEY, "MINIO_BROWSER": "off"}

    def make_bucket(self) -> None:
        from pyarrow.fs import S3FileSystem

        files = S3FileSystem(
            access_key=ACCOUNT, secret_key=KEY, endpoint_override=self.endpoint, region="us-east-1",
            allow_bucket_creation=True,
        )  # fmt: skip
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                files.create_dir("penstock")
                return
            except OSError:  # it listens before its drive is ready
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)


def fetch_minio() -> str:
    """Build MinIO into the cache; says what was done."""
    target = cache.folder() / "minio"
    if (target / "bin" / "minio").exists():
        return f"minio: is there, in {target}"
    go = shutil.which("go")
    if go is None:
        return "minio: not built, because Go is not installed"
    partly = target.with_suffix(".partly")
    shutil.rmtree(partly, ignore_errors=True)
    (partly / "bin").mkdir(parents=True)
    built = {**os.environ, "GOBIN": str(partly / "bin"), "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    done = subprocess.run([go, "install", "-ldflags", "-s -w", _MINIO], env=built, check=False)
    if done.returncode != 0:
        return f"minio: not built, because go ended with {done.returncode}"
    shutil.rmtree(target, ignore_errors=True)
    partly.rename(target)
    return f"minio: built into {target}"


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
