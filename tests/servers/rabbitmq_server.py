"""A real RabbitMQ in a folder of its own, on free ports of the loopback: never a system service."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from penstock.processes import die_with_parent_after_exec
from penstock.reserving import port_of, reserve_port
from tests.servers.postgres_server import account

#: How long a server may take to start: against hanging only.
_PATIENCE_S = 180
#: The script of the broker itself; that on the PATH changes the user, and would leave the broker behind when it is killed.
_SCRIPT = "/usr/lib/rabbitmq/bin/rabbitmq-server"


def missing() -> str | None:
    """Why no RabbitMQ can run here, in words for a skipped test; None: it can."""
    if not os.path.exists(_SCRIPT) or shutil.which("epmd") is None:
        return (
            "RabbitMQ is not installed: apt-get install rabbitmq-server (make test-servers does it as root)"
        )
    return None


class RabbitMqServer:
    """A RabbitMQ. ``url``: its address, the same over ``kill`` and ``start``. It ends with the thread that started it."""

    def __init__(self) -> None:
        self._reserved = [reserve_port() for _ in range(3)]
        self.port, self._dist, self._epmd_port = map(port_of, self._reserved)
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/"
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-rabbitmq-"))
        self._as: dict[str, Any] = {}
        user = account("rabbitmq") if os.getuid() == 0 else None
        if user is not None:
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        (self._folder / "plugins").write_text("[].")
        self._processes: list[subprocess.Popen[bytes]] = []

    def _environment(self) -> dict[str, str]:
        folder = str(self._folder)
        return {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"rabbit{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(self._dist),
            "RABBITMQ_MNESIA_BASE": folder,
            "RABBITMQ_LOG_BASE": folder,
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/none.conf",
            "RABBITMQ_CONFIG_FILE": f"{folder}/none",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            # The script becomes the broker, so that the process that is killed is the broker.
            "RABBITMQ_ALLOW_INPUT": "true",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +A 4 +sbwt none +sbwtdcpu none +sbwtdio none -noinput",
        }

    def start(self) -> None:
        """Starts it and waits until it answers."""
        log_path = self._folder / "server.log"
        with log_path.open("ab") as log:

            def run(*command: str) -> None:
                self._processes.append(
                    subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment(),
                        cwd=self._folder, preexec_fn=die_with_parent_after_exec, **self._as,
                    )
                )  # fmt: skip

            run("epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1")
            run(_SCRIPT)
        until = time.monotonic() + _PATIENCE_S
        while not self._answers():
            if self._processes[-1].poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"RabbitMQ does not start: {log_path.read_text()[-3000:]}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        """Whether it answers to the protocol's header, which it does when it has started wholly."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return bool(connection.recv(1))
        except OSError:
            return False

    def do(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """The result of ``work``, which is given a channel."""

        async def main() -> Any:
            import aiormq

            connection = await aiormq.connect(self.url)
            try:
                return await work(await connection.channel())
            finally:
                await connection.close()

        return asyncio.run(main())

    def kill(self) -> None:
        """As a power cut would."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()

    def stop(self) -> None:
        self.kill()
        for reserved in self._reserved:
            reserved.close()
        shutil.rmtree(self._folder, ignore_errors=True)
