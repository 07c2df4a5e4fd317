"""A cluster with everything locked: tokens and TLS for REST, a user of NATS for each service with permissions and TLS
(by password, nkey, or an operator's JWT),
Valkey with a user's password behind TLS, mutual TLS between task managers. A job runs on it, and who must not cannot."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx
import nats
import nats.errors
import pytest
import trustme

from penstock.api.client import ClusterClient
from penstock.bus.permissions import inbox_prefix, permissions, users
from penstock.embedded.servers import nats_server_binary, valkey_server_binary
from penstock.errors import ExternalError
from penstock.reserving import port_of, reserve_port
from penstock_services.common.security.tokens import digest
from tests.servers.nats_keys import Key, Operator

ROOT = Path(__file__).parents[2]
ROLES = ("resourcemanager", "taskmanager", "jobmanager", "dispatcher")
TOKEN = "pst_locked_0123456789abcdefghij"
WAIT_S = 120
JOB = """
CREATE TABLE n (i BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '5000', 'fields.i.kind' = 'sequence',
  'fields.i.start' = '1', 'fields.i.end' = '5000');
SELECT i % 7 AS k, COUNT(*) AS c FROM n GROUP BY i % 7;
"""

#: The packaged Valkey has no TLS: this ends it, and asks for a certificate, before the server.
PROXY = """
import asyncio, ssl, sys
port, behind, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=f"{folder}/ca.pem")
tls.verify_mode = ssl.CERT_REQUIRED
tls.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
async def pipe(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def serve(reader, writer):
    inner = await asyncio.open_connection("127.0.0.1", behind)
    await asyncio.gather(pipe(reader, inner[1]), pipe(inner[0], writer), return_exceptions=True)
async def main():
    await (await asyncio.start_server(serve, "127.0.0.1", port, ssl=tls)).serve_forever()
asyncio.run(main())
"""


class Locked:
    """The cluster's processes. ``operator``: users of NATS have an operator's JWTs; else passwords, but for the job manager,
    which has an nkey."""

    def __init__(self, folder: Path, operator: bool) -> None:
        self.folder = folder
        self.operator = Operator() if operator else None
        self.nkey = Key()
        (folder / "nkey").write_text(self.nkey.seed)
        for user, of in permissions("locked").items() if self.operator is not None else ():
            self.operator.credentials(folder / f"{user}.creds", user, of.publish, of.subscribe)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.held = [reserve_port() for _ in range(4)]
        self.nats_port, self.redis_port, self.rest_port, self.valkey_port = map(port_of, self.held)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        certificate.private_key_pem.write_to_path(folder / "key.pem")
        for blob in certificate.cert_chain_pems:
            blob.write_to_path(folder / "cert.pem")
        (folder / "tokens.yaml").write_text(
            json.dumps([{"name": "me", "role": "submit", "sha256": digest(TOKEN)}])
        )

    def start(self, name: str, argv: list[str]) -> None:
        env = {**os.environ, **{f"{user.upper()}_PASSWORD": f"pw-{user}" for user in permissions("locked")}}
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(argv, stdout=log, stderr=log, env=env))

    def start_all(self) -> None:
        f = self.folder
        tls = f"tls {{ cert_file: '{f}/cert.pem', key_file: '{f}/key.pem', ca_file: '{f}/ca.pem', verify: true }}"
        known = users("locked").replace(
            "user: jobmanager, password: $JOBMANAGER_PASSWORD", f"nkey: {self.nkey.public}"
        )
        known = known if self.operator is None else self.operator.configuration()
        (f / "nats.conf").write_text(f"host: 127.0.0.1\nport: {self.nats_port}\n{tls}\n{known}")
        self.start("nats", [nats_server_binary(), "-c", str(f / "nats.conf")])
        (f / "acl").write_text("user default off\nuser penstock on >pw-redis ~locked:lease:* +@all\n")
        self.start(
            "valkey",
            [valkey_server_binary(), "--bind", "127.0.0.1", "--port", str(self.valkey_port), "--aclfile", f"{f}/acl",
             "--save", "", "--dir", str(f)],
        )  # fmt: skip
        self.start(
            "proxy", [sys.executable, "-c", PROXY, str(self.redis_port), str(self.valkey_port), str(f)]
        )
        for role in ROLES:
            for number in range(2 if role == "taskmanager" else 1):
                self.start(f"{role}{number}", self.command(role, f"{role}-{number}"))

    def command(self, role: str, name: str) -> list[str]:
        f = self.folder
        config = {
            "cluster.id": "locked",
            **self._nats(role),
            "high-availability.redis.url": f"rediss://penstock:pw-redis@127.0.0.1:{self.redis_port}",
            "high-availability.storageDir": (f / "store").as_uri(),
            "security.ssl.internal.certificate": f"{f}/cert.pem",
            "security.ssl.internal.key": f"{f}/key.pem",
            "security.ssl.internal.ca": f"{f}/ca.pem",
            "security.ssl.rest.certificate": f"{f}/cert.pem",
            "security.ssl.rest.key": f"{f}/key.pem",
            "security.rest.tokens-file": f"{f}/tokens.yaml",
            "rest.port": self.rest_port,
            "rest.bind-address": "0.0.0.0",
            "taskmanager.numberOfTaskSlots": 1,
            "io.tmp.dirs": f"{f}/tmp",
            **({"taskmanager.resource-id": name} if role == "taskmanager" else {}),
        }
        pairs = [f"-D{key}={value}" for key, value in config.items()]
        return [sys.executable, "-P", "-m", f"penstock_services.{role}", *pairs]

    def _nats(self, role: str) -> dict[str, str]:
        url = f"tls://127.0.0.1:{self.nats_port}"
        match self.proof(role):
            case {"user_credentials": path}:
                return {"nats.url": url, "security.nats.credentials-file": path}
            case {"nkeys_seed": path}:
                return {"nats.url": url, "security.nats.nkey-file": path}
        return {"nats.url": f"tls://{role}:pw-{role}@127.0.0.1:{self.nats_port}"}

    def proof(self, user: str) -> dict[str, str]:
        """Who connects to NATS, as nats-py takes it."""
        if self.operator is not None:
            return {"user_credentials": f"{self.folder}/{user}.creds"}
        return (
            {"nkeys_seed": f"{self.folder}/nkey"}
            if user == "jobmanager"
            else {"user": user, "password": f"pw-{user}"}
        )

    def tails(self) -> str:
        return "\n".join(f"{p.name}: {p.read_text()[-1500:]}" for p in self.folder.glob("*.log"))

    def stop(self) -> None:
        # The servers are the first three: services say good-bye to them.
        for group in (self.processes[3:], self.processes[:3]):
            for process in group:
                process.terminate()
            for process in group:
                process.wait(WAIT_S)
        for held in self.held:
            held.close()


@pytest.fixture(params=["users", "operator"])
def locked(request, tmp_path, monkeypatch):
    made = Locked(tmp_path, request.param == "operator")
    monkeypatch.setenv("PENSTOCK_TOKEN", TOKEN)
    monkeypatch.setenv("PENSTOCK_CA_FILE", f"{tmp_path}/ca.pem")
    made.start_all()
    try:
        yield made
    finally:
        made.stop()


def ready(client: ClusterClient, locked: Locked) -> None:
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        try:
            if client.overview()["slots-total"] == 2:
                return
        except ExternalError:
            pass  # it is starting
        time.sleep(0.2)
    raise AssertionError(locked.tails())


@pytest.mark.cluster
def test_a_job_runs_and_nobody_exceeds_his_permissions(locked):
    with ClusterClient(f"https://127.0.0.1:{locked.rest_port}", patience_s=0) as client:
        ready(client, locked)
        # Without the Unix sockets, data goes by TCP, as between hosts.
        sockets = [path for path in (locked.folder / "tmp").rglob("*") if path.is_socket()]
        data_ports = [path for path in sockets if "data" in path.name]
        assert len(data_ports) == 2, sockets
        for path in data_ports:
            path.unlink()
        job = client.submit({"sql": JOB, "parallelism": 2})
        chunks = [chunk for found in client.results(job) for chunk in found]
        assert chunks, locked.tails()
        assert client.job(job)["state"] == "FINISHED"
        events(locked, job)
    assert sorted(through_gateway(locked)) == [[k, 714 + (0 < k < 3)] for k in range(7)], locked.tails()
    log = (locked.folder / "nats.log").read_text()
    assert "Permissions Violation" not in log
    asyncio.run(refusals(locked))
    assert "Publish Violation" in (locked.folder / "nats.log").read_text()


def through_gateway(locked: Locked) -> list[list[int]]:
    """The rows of the job's query from a SQL gateway, whose configuration names no dispatcher."""
    held = reserve_port()
    locked.held.append(held)
    command = locked.command("gateway", "gateway")
    locked.start("gateway", [*command, f"-Dsql-gateway.endpoint.rest.port={port_of(held)}"])
    context = ssl.create_default_context(cafile=f"{locked.folder}/ca.pem")
    with httpx.Client(
        base_url=f"https://127.0.0.1:{port_of(held)}", verify=context, timeout=WAIT_S,
        headers={"authorization": f"Bearer {TOKEN}"},
    ) as http:  # fmt: skip
        return _rows(http, locked)


def _rows(http: httpx.Client, locked: Locked) -> list[list[int]]:
    until = time.monotonic() + WAIT_S
    while True:
        try:
            session = http.post("/v2/sessions", json={}).json()["sessionHandle"]
            break
        except httpx.TransportError:
            assert time.monotonic() < until, locked.tails()
            time.sleep(0.2)
    rows: list[list[int]] = []
    for statement in JOB.split(";")[:2]:
        body = {"statement": statement, "executionConfig": {"execution.engine": "streaming"}}
        operation = http.post(f"/v2/sessions/{session}/statements", json=body).json()["operationHandle"]
        rows, path = [], f"/v2/sessions/{session}/operations/{operation}/result/0"
        while time.monotonic() < until:
            page = http.get(path).json()
            assert "errors" not in page, page
            rows += [row["fields"] for row in page.get("results", {}).get("data", [])]
            if page["resultType"] == "EOS":
                break
            path = page["nextResultUri"]
        else:
            raise AssertionError(locked.tails())
    return rows


def events(locked: Locked, job: str) -> None:
    """The dispatcher heard the events on the bus, and tells them to who may read."""
    url = f"https://127.0.0.1:{locked.rest_port}/jobs/events"
    with httpx.Client(verify=_context(locked), timeout=60) as http:
        assert http.get(url).status_code == 401
        with http.stream("GET", url, headers={"authorization": f"Bearer {TOKEN}"}) as told:
            for line in told.iter_lines():
                if (
                    line.startswith("data: ")
                    and json.loads(line.removeprefix("data: ")).get("status") == "FINISHED"
                ):
                    assert job in line
                    return
    raise AssertionError(locked.tails())


async def refusals(locked: Locked) -> None:
    """A task manager cannot submit, list or cancel; a submitter cannot speak as a service; nobody hears answers to others."""
    for user, publish in (
        ("taskmanager", "locked.jobs.submit"),
        ("taskmanager", "locked.jobs.cancel"),
        ("taskmanager", "locked.jobmanager.run"),
        ("taskmanager", "locked.taskmanager.x.deploy"),
        ("submitter", "locked.taskmanager.x.deploy"),
        ("submitter", "locked.job.x.report"),
        ("jobmanager", "locked.jobs.submit"),
    ):
        said: list[str] = []

        async def heard(err: Exception, said: list[str] = said) -> None:
            said.append(str(err))

        client = await nats.connect(
            f"tls://127.0.0.1:{locked.nats_port}", **locked.proof(user), tls=_context(locked),
            error_cb=heard, allow_reconnect=False,
            inbox_prefix="_INBOX" if user == "submitter" else inbox_prefix(user),
        )  # fmt: skip
        with pytest.raises((nats.errors.TimeoutError, nats.errors.NoRespondersError)):
            await client.request(publish, b"sql: SELECT 1", timeout=0.3)
        await client.close()
        assert any("permissions violation" in text.lower() for text in said), (user, publish, said)
    refused = (("taskmanager", "dispatcher"), ("submitter", "jobmanager"), ("dispatcher", "resourcemanager"))
    for user, other in refused:
        client = await nats.connect(
            f"tls://127.0.0.1:{locked.nats_port}", **locked.proof(user), tls=_context(locked),
            allow_reconnect=False,
        )  # fmt: skip
        await client.subscribe(f"{inbox_prefix(other)}.>")
        await client.flush()
        await client.close()
    log = (locked.folder / "nats.log").read_text()
    for user, other in refused:
        name = user if locked.operator is None else ""
        words = f'{name}" - Subscription Violation - Subject "{inbox_prefix(other)}.>"'
        assert words in log, log[-2000:]
    client = await nats.connect(
        f"tls://127.0.0.1:{locked.nats_port}", **locked.proof("submitter"), tls=_context(locked)
    )
    answer = json.loads((await client.request("locked.jobs.list", b"", timeout=20)).data)
    assert [job["state"] for job in answer["jobs"]] == ["FINISHED", "FINISHED"]
    await client.close()


def _context(locked: Locked):
    context = ssl.create_default_context(cafile=f"{locked.folder}/ca.pem")
    context.load_cert_chain(f"{locked.folder}/cert.pem", f"{locked.folder}/key.pem")
    return context


def test_the_example_is_the_codes():
    text = (ROOT / "deploy" / "nats-permissions.conf").read_text()
    assert text.endswith(users("penstock")), (
        "python -m penstock.bus.permissions > deploy/nats-permissions.conf"
    )
