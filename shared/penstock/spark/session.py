"""Opens Spark sessions. ``local[n]``, ``spark://…`` and ``sc://…`` differ only in their URL."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from penstock.errors import SparkUnreachableError, SpecError
from penstock.spark.class_archive import java_options
from penstock.spark.java import java_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

#: Options on which results depend: they switch off Spark's own coercions, time zone and name matching.
MEANING = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.execution.pythonUDTF.arrow.enabled": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
}
#: Only Java's quick compiler is used, because most jobs end before the optimizing compiler pays. The default
#: room for compiled code, 48 MB, is full after some fifty jobs; then Java stops compiling and every job is
#: slow.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
#: Workers of Python are forked from a daemon of ours. Only where this Python runs them: elsewhere Penstock may be absent.
PYTHON_DAEMON = {"spark.python.daemon.module": "penstock.spark.python_daemon"}
#: The options of a local Spark. A job may override them.
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "0",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    **PYTHON_DAEMON,
}


#: With this option Spark records, for its messages, the line of Python that made each column and expression.
#: That costs eight more round trips to Java each, and the lines would be ours instead of the user's.
_ORIGINS = "spark.python.sql.dataFrameDebugging.enabled"


def prepare_environment() -> None:
    """Sets the environment variables that Spark's launcher and its Python workers read."""
    os.environ.update(java_environment())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def is_remote(url: str) -> bool:
    """Whether the URL is that of a Spark Connect server."""
    return url.startswith("sc://")


def is_connect(session: SparkSession) -> bool:
    """Whether the session talks to a Spark Connect server. Otherwise Spark's driver runs in this process."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def open_session(
    url: str, config: Mapping[str, str] | None = None, *, name: str = "penstock", users_code: bool = False
) -> SparkSession:
    """The session at ``url``: ``local[n]``, ``spark://``, ``yarn``, ``k8s://`` or ``sc://``.

    ``config``: keys that begin with ``spark.`` are passed on. ``users_code``: DataFrames are made by a
    user's own lines, which Spark's messages are to name. JavaMissingError, SparkUnreachableError.
    """
    from pyspark.sql import SparkSession

    _check_url(url)
    given = {k: v for k, v in (config or {}).items() if k.startswith("spark.")}
    given = {k: v for k, v in given.items() if k not in ("spark.master", "spark.remote")}
    builder: Any = SparkSession.builder
    if is_remote(url):
        builder = builder.remote(url)
        settings = {**MEANING, **{k: v for k, v in given.items() if k.startswith("spark.sql.")}}
    else:
        prepare_environment()
        builder = builder.master(url).appName(name)
        java = f"{JAVA_OPTIONS} {java_options()}".rstrip()
        local = {**_LOCAL, "spark.driver.extraJavaOptions": java} if url.startswith("local") else {}
        if "://127.0.0.1" in url or "://localhost" in url:
            # The executors run on this machine, too, so the loopback address works even if the machine's name
            # does not resolve.
            local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        settings = {_ORIGINS: str(users_code).lower(), **local, **MEANING, **given}
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as err:
        raise _unreachable(url, err) from err
    apply_meaning(session, given)
    return session


def apply_meaning(session: SparkSession, config: Mapping[str, str] | None = None) -> None:
    """Sets the options of a session on which results depend. The session may have been opened by others."""
    given = {k: v for k, v in (config or {}).items() if k.startswith("spark.sql.") and k not in MEANING}
    settings: dict[str, Any] = {**MEANING, **given}
    conf: Any = session.conf
    if is_connect(session):
        conf._set_all(settings, silent=False)  # one message instead of one for each option
        return
    for key, value in settings.items():
        conf.set(key, value)


def _check_url(url: str) -> None:
    schemes = ("local", "spark://", "sc://", "k8s://", "yarn")
    if not url.startswith(schemes):
        raise SpecError(
            "not a Spark master",
            expected="local[n], spark://host:port, sc://host:port, k8s://… or yarn",
            got=repr(url),
            where="spark.master or spark.remote",
        )


def _unreachable(url: str, err: Exception) -> SparkUnreachableError:
    text = str(err).strip().splitlines()
    return SparkUnreachableError(
        f"no Spark session at {url}",
        expected="a Spark that answers there",
        got=f"{type(err).__name__}: {text[0] if text else ''}"[:400],
        where="spark.remote" if is_remote(url) else "spark.master",
        remedy="check that the server runs, its address and port, and that its version is that of PySpark here",
    )
