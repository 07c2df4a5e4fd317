"""Credentials in options and URLs never reach what is shown."""

import pytest

from penstock.errors import BrokerError, error_from_dict
from penstock.redaction import sensitive, shown_options, without_credentials
from penstock.runtime.failures import error_info


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nats://me:hidden@a:4222,nats://you:hidden@b:4222", "nats://******@a:4222,nats://******@b:4222"),
        ("cannot reach nats://hidden@a, nor redis://:hidden@b:6379/0!", "cannot reach nats://******@a, nor redis://******@b:6379/0!"),
        ("rediss://me:hid@den@b:6379", "rediss://******@b:6379"),
        ("jdbc:postgresql://h/db?user=hidden&password=hidden&ssl=true", "jdbc:postgresql://h/db?user=******&password=******&ssl=true"),
        ("jdbc:sqlserver://h:1433;databaseName=x;Password=hidden;", "jdbc:sqlserver://h:1433;databaseName=x;Password=******;"),
        ("s3://key:hidden@bucket/prefix", "s3://******@bucket/prefix"),
        ("https://b.s3/x?X-Amz-Credential=hidden&X-Amz-Signature=hidden", "https://b.s3/x?X-Amz-Credential=******&X-Amz-Signature=******"),
        ("'url' = 'nats://me:hidden@a:4222', 'subject' = 'x'", "'url' = 'nats://******@a:4222', 'subject' = 'x'"),
        ("http://127.0.0.1:8081/jobs?user-config=1", "http://127.0.0.1:8081/jobs?user-config=1"),
        ("mail me@example.org about file:///a/b@c", "mail me@example.org about file:///a/b@c"),
        ("SELECT a // b FROM t", "SELECT a // b FROM t"),
    ],
)  # fmt: skip
def test_credentials_are_taken_out_of_urls(text, shown):
    assert without_credentials(text) == shown


@pytest.mark.parametrize(
    "key",
    [
        "password", "sasl.password", "properties.sasl.jaas.config", "properties.ssl.key.password", "ssl.key.pem",
        "avro-confluent.basic-auth.user-info", "value.avro-confluent.bearer-auth.token", "token", "credential",
        "s3.secret-access-key", "s3.access-key", "secret_access_key", "fs.azure.account.key.x.blob.core.windows.net",
        "apikey", "x.api-key", "auth-params", "service-key", "http-headers", "header.authorization", "passphrase",
        "PASSWORD", "adls.connection-string", "storage.options.aws_session_token",
    ],
)  # fmt: skip
def test_options_that_may_hold_a_password_are_sensitive(key):
    assert sensitive(key)
    assert shown_options({key: "hidden", "topic": "t"}) == {key: "******", "topic": "t"}
    named = {key: "secret:name", f"more.{key}": 'user="u" password="${secret:name}"'}
    assert shown_options(named) == named


@pytest.mark.parametrize(
    "key",
    [
        "connector", "key.fields", "key.format", "primary-key", "avro-confluent.basic-auth.credentials-source",
        "properties.sasl.oauthbearer.token.endpoint.url", "table-name", "partition.keys", "username", "hosts",
        "csv.field-delimiter", "fields.n.kind", "scan.startup.mode", "decoding.plugin.name", "slot.name",
    ],
)  # fmt: skip
def test_other_options_are_shown(key):
    assert not sensitive(key)
    assert shown_options({key: "x", "url": "redis://me:hidden@h"}) == {key: "x", "url": "redis://******@h"}


def test_an_error_of_ours_shows_no_credentials_wherever_they_stand():
    url = "nats://me:hidden@a:4222"
    err = BrokerError(
        f"cannot connect to {url}", expected=url, got=url, where=url, remedy=url, user_traceback=url
    )
    for said in (str(err), repr(err), err.message, str(err.to_dict()), str(error_from_dict(err.to_dict()))):
        assert "hidden" not in said
        assert "a:4222" in said


def test_a_failed_task_shows_no_credentials():
    try:
        raise OSError("no route to redis://:hidden@b:6379")
    except OSError as err:
        info = error_info(err, task="t")
    assert "redis://******@b:6379" in info.traceback
    assert "hidden" not in repr(info).replace('raise OSError("no route to redis://:hidden@b:6379")', "")
