"""``Encoder`` and ``SimpleStringSchema`` under Flink's names: they write records as lines and messages of
text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import SpecError

if TYPE_CHECKING:
    from penstock.api.datastream import DataStream
    from penstock.types.logical import Schema

_UTF8 = ("utf-8", "utf8")


def _check_charset(charset: str) -> None:
    if charset.lower() not in _UTF8:
        raise SpecError("a text in another encoding", expected="UTF-8", got=repr(charset))


class Encoder:
    """Writes records into files line by line. Made by ``Encoder.simple_string_encoder()``."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """An encoder that writes each record as a line, as ``DataStream.print`` shows it.

        Args:
            charset_name: ``UTF-8``.

        Raises:
            SpecError: Another encoding.
        """
        _check_charset(charset_name)
        return Encoder()


class SimpleStringSchema:
    """A message is a text. ``charset``: ``UTF-8``; SpecError for another."""

    def __init__(self, charset: str = "UTF-8") -> None:
        _check_charset(charset)


class ByteArraySchema:
    """A message is its bytes."""


class AsText:
    """A map function that gives each record as the text that ``DataStream.print`` shows. ``schema``: the records' columns."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def map(self, value: Any) -> str:
        from penstock.columnar.python_values import is_bare
        from penstock.connectors.print import record_text

        return record_text((value,) if is_bare(self._schema) else value, self._schema)


def as_text(stream: DataStream) -> DataStream:
    """The records of ``stream`` as texts."""
    from penstock.api.typeinfo import Types

    return stream.map(AsText(stream.schema), Types.STRING()).name("To text")
