"""Credentials in URLs never reach what is shown."""

import pytest

from penstock.errors import BrokerError, error_from_dict
from penstock.redaction import without_credentials
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
