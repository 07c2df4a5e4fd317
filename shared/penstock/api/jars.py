"""The JARs that a program written for Flink names. Penstock runs no Java, so it cannot load them."""

from __future__ import annotations

import re

from penstock.errors import UnsupportedError

#: Names of the JARs whose connectors and formats Penstock has itself.
_OWN = (
    "kafka",
    "jdbc",
    "files",
    "json",
    "csv",
    "avro",
    "avro-confluent-registry",
    "parquet",
    "orc",
    "datagen",
    "print",
)
_FLINK = re.compile(r"flink-(?:sql-)?(?:connector-)?([a-z-]+?)(?:[-_]\d.*)?\.jar$")


def refuse_foreign_jar(path: str) -> None:
    """Accepts the JAR of a connector or format that Penstock has itself, and refuses every other.

    Args:
        path: A JAR's path or URL.

    Raises:
        UnsupportedError: The JAR is another one.
    """
    name = path.rsplit("/", 1)[-1]
    found = _FLINK.match(name)
    if found is None or found[1] not in _OWN:
        raise UnsupportedError(
            f"the JAR '{name}'",
            expected=f"JARs of connectors and formats that Penstock has itself: {', '.join(_OWN)}",
            got=path,
            where="add_jars",
            remedy="leave it out, and use a connector of docs/connectors.md; a function in Java has to be written in Python",
        )
