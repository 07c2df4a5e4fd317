"""Users and certificates: a real broker that asks for both, read and written, at least and exactly once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import ConnectorError
from penstock.reserving import port_of, reserve_port
from penstock.types import Batch, Schema
from penstock.types import logical as t
from tests.servers import cache, certificates
from tests.servers.kafka_server import KafkaServer

pytestmark = pytest.mark.cluster

SCHEMA = Schema.of(("id", t.BigIntType()))
_PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="a" user_admin="a" user_paula="paulas";'
)
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaServer, str, Path]]:
    """A broker; its address for TLS with users; the authority's certificate."""
    if why := cache.missing("kafka") or certificates.missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("secure")
    made = certificates.make(folder / "certificates")
    with reserve_port() as reserved:
        place = f"127.0.0.1:{port_of(reserved)}"
        server = KafkaServer(
            folder / "kafka",
            users=["SCRAM-SHA-256=[name=sam,password=sams]", "SCRAM-SHA-512=[name=sam,password=sams]"],
            **{
                "listeners": f"PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}},SECURE://{place}",
                "advertised_listeners": f"PLAINTEXT://127.0.0.1:{{port}},SECURE://{place}",
                "listener_security_protocol_map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
                "listener_name_secure_sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "listener_name_secure_plain_sasl_jaas_config": _PLAIN,
                "listener_name_secure_scram-sha-256_sasl_jaas_config": _SCRAM,
                "listener_name_secure_scram-sha-512_sasl_jaas_config": _SCRAM,
                "ssl_keystore_type": "PEM",
                "ssl_keystore_location": str(made.server),
            },
        )
        try:
            server.start()
            yield server, place, made.authority
        finally:
            server.stop()


def jaas(module: str, user: str, password: str) -> str:
    kind = "plain.Plain" if module == "PLAIN" else "scram.Scram"
    return f'org.apache.kafka.common.security.{kind}LoginModule required username="{user}" password="{password}";'


def table(place: str, topic: str, authority: Path, mechanism: str, login: str, **more: str) -> dict[str, str]:
    return {
        "connector": "kafka", "topic": topic, "format": "json", "properties.bootstrap.servers": place,
        "properties.security.protocol": "SASL_SSL", "properties.ssl.ca.location": str(authority),
        "properties.sasl.mechanism": mechanism, "properties.sasl.jaas.config": login, **more,
    }  # fmt: skip


READ = {"scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset"}


@pytest.mark.parametrize(
    ("mechanism", "user", "password", "guarantee"),
    [
        ("PLAIN", "paula", "paulas", "at-least-once"),
        ("SCRAM-SHA-256", "sam", "sams", "exactly-once"),
        ("SCRAM-SHA-512", "sam", "sams", "at-least-once"),
    ],
)
async def test_rows_go_through(harness, secure, mechanism, user, password, guarantee):
    server, place, authority = secure
    topic = server.topic()
    options = table(place, topic, authority, mechanism, jaas(mechanism, user, password))
    writer = await harness.writer(SCHEMA, {**options, "sink.delivery-guarantee": guarantee})
    writer.write(Batch.of(SCHEMA, [(1,), (2,)]))
    await writer.begin_checkpoint(1)
    await writer.commit(1)
    await writer.close()
    assert sorted(await harness.read_all(SCHEMA, {**options, **READ})) == [(1,), (2,)]


@pytest.mark.parametrize("role", ["source", "sink"])
@pytest.mark.parametrize("wrong", ["password", "authority"])
async def test_what_is_wrong_is_named(harness, secure, tmp_path, role, wrong):
    server, place, authority = secure
    login = jaas("PLAIN", "paula", "paulas" if wrong == "authority" else "no")
    if wrong == "authority":
        authority = certificates.make(tmp_path).authority
    options = table(place, server.topic(), authority, "PLAIN", login)
    asked = harness.splits if role == "source" else harness.writer
    words = r"user and password" if wrong == "password" else r"ssl\.ca\.location"
    with pytest.raises(ConnectorError, match=words):
        await asked(SCHEMA, {**options, **READ} if role == "source" else options)
