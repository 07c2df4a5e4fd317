"""What is asked of the brokers before a job starts: topics, rights and limits, on a real broker that guards them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.connectors.registry import validate_table
from penstock.errors import ConnectorError
from penstock.reserving import port_of, reserve_port
from penstock.types import Schema
from penstock.types import logical as t
from tests.servers import cache
from tests.servers.kafka_server import KafkaServer

SCHEMA = Schema.of(("id", t.BigIntType()))
_PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="a" user_admin="a" user_rita="ritas";'
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaServer, str]]:
    """A broker; its address for users whose rights it checks. (Its plain address is a superuser's.)"""
    if why := cache.missing("kafka"):
        pytest.skip(why)
    with reserve_port() as reserved:
        place = f"127.0.0.1:{port_of(reserved)}"
        server = KafkaServer(
            tmp_path_factory.mktemp("guarded"),
            listeners=f"PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}},USERS://{place}",
            advertised_listeners=f"PLAINTEXT://127.0.0.1:{{port}},USERS://{place}",
            listener_security_protocol_map="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
            listener_name_users_sasl_enabled_mechanisms="PLAIN",
            listener_name_users_plain_sasl_jaas_config=_PLAIN,
            authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            super_users="User:ANONYMOUS",
            transaction_max_timeout_ms="60000",
            offsets_retention_minutes="30",
        )
        try:
            server.start()
            yield server, place
        finally:
            server.stop()


def grant(server: KafkaServer, topic: str, *operations: str) -> None:
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    acls = [
        AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:rita", "*",
                   AclOperation[operation], AclPermissionType.ALLOW)
        for operation in operations
    ]  # fmt: skip
    admin = server.admin()
    for answer in admin.create_acls(acls).values():
        answer.result()


def table(place: str, topic: str, **more: str) -> dict[str, str]:
    return {
        "connector": "kafka",
        "topic": topic,
        "format": "json",
        "properties.bootstrap.servers": place,
        **more,
    }


def as_rita(place: str, topic: str, **more: str) -> dict[str, str]:
    return table(
        place, topic, **{
            "properties.security.protocol": "SASL_PLAINTEXT", "properties.sasl.mechanism": "PLAIN",
            "properties.sasl.username": "rita", "properties.sasl.password": "ritas", **more,
        },
    )  # fmt: skip


@pytest.mark.cluster
@pytest.mark.parametrize("role", ["source", "sink"])
def test_a_topic_must_be_there(guarded, role):
    server, _ = guarded
    with pytest.raises(ConnectorError, match=r"topic 'nowhere'(.|\n)*make the topic, or correct its name"):
        validate_table(SCHEMA, table(server.bootstrap, "nowhere"), role=role)


@pytest.mark.cluster
@pytest.mark.parametrize(("role", "right", "wrong"), [("source", "READ", "WRITE"), ("sink", "WRITE", "READ")])
def test_the_user_must_have_the_right(guarded, role, right, wrong):
    server, place = guarded
    topic = server.topic()
    with pytest.raises(ConnectorError, match="allow the user to read, write or describe the topic"):
        validate_table(SCHEMA, as_rita(place, topic), role=role)
    grant(server, topic, "DESCRIBE", wrong)
    with pytest.raises(ConnectorError, match=f"grant the user of the table {right} on topic '{topic}'"):
        validate_table(SCHEMA, as_rita(place, topic), role=role)
    grant(server, topic, right)
    validate_table(SCHEMA, as_rita(place, topic), role=role)


@pytest.mark.cluster
def test_the_limits_of_transactions_are_read(guarded, caplog: Any):
    server, place = guarded
    topic = server.topic()
    once = {"sink.delivery-guarantee": "exactly-once"}
    with pytest.raises(ConnectorError, match=r"transaction\.max\.timeout\.ms \(60000\)(.|\n)*= '60000'"):
        validate_table(SCHEMA, table(server.bootstrap, topic, **once), role="sink")
    short = {**once, "properties.transaction.timeout.ms": "60000"}
    with caplog.at_level("WARNING"):
        validate_table(SCHEMA, table(server.bootstrap, topic, **short), role="sink")
    assert "kafka_short_retention" in caplog.text
    # A user who may not see the broker's settings is not kept from writing.
    grant(server, topic, "DESCRIBE", "WRITE")
    validate_table(SCHEMA, as_rita(place, topic, **once), role="sink")


@pytest.mark.cluster
def test_wrong_credentials_are_found_before_the_job_starts(guarded):
    _, place = guarded
    options = as_rita(place, "t", **{"properties.sasl.password": "wrong"})
    with pytest.raises(ConnectorError, match="correct the user and password"):
        validate_table(SCHEMA, options, role="sink")


def test_brokers_that_are_away_are_left_to_the_job(caplog: Any):
    with reserve_port() as reserved, caplog.at_level("WARNING"):
        validate_table(SCHEMA, table(f"127.0.0.1:{port_of(reserved)}", "t"), role="sink")
    assert "kafka_not_checked" in caplog.text
