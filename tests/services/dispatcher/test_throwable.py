"""Failures as Java objects. Java itself reads them in ``test_flink_client.py``."""

import pytest

from penstock_services.dispatcher.views.throwable import failure, modified_utf8, serialized


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a\u00e4", b"a\xc3\xa4"),
        ("\x00", b"\xc0\x80"),
        ("\U0001f600", b"\xed\xa0\xbd\xed\xb8\x80"),
        ("\ud800", b"\xed\xa0\x80"),
    ],
)
def test_text_is_encoded_as_java_encodes_it(text: str, data: bytes) -> None:
    assert modified_utf8(text) == data


def test_a_failure_has_its_text_in_both_forms() -> None:
    found = failure("PS-STATE", "it does not fit")
    assert (found.class_, found.stack_trace) == ("PS-STATE", "it does not fit")
    assert found.serialized_throwable.startswith(b"\xac\xed\x00\x05sr")
    assert b"it does not fit" in found.serialized_throwable


def test_a_text_longer_than_a_short_string_is_a_long_one() -> None:
    data = serialized("PS-X", "x" * 70_000)
    assert data.count(b"\x7c" + (70_000).to_bytes(8, "big") + b"xxx") == 2
