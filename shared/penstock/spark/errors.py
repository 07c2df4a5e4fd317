"""Carries our errors through Spark, as text in the exception of a Python worker.

A ``PenstockError`` on an executor is raised there as a ``TaskError`` whose message contains the error. The
driver finds the error in Spark's report, with a classic session and with Spark Connect. Any other failure of
Spark becomes a ``SparkJobError`` with the first line of Spark's message instead of a Java stack.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from penstock.errors import (
    ConnectorError,
    FunctionError,
    PenstockError,
    SparkBusyError,
    SparkJobError,
    SpecError,
    error_from_dict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

_MARK = "PENSTOCK-ERROR:"
_FOUND = re.compile(_MARK + r"([A-Za-z0-9+/=]+)")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_FILE = re.compile(r"\[FAILED_READ_FILE\.(\w+)\] Encountered error while reading file (.+?)\.(?=\s|$)")
#: A missing class, as a Java exception says it and as Spark Connect writes it.
_CLASS = re.compile(r"java\.lang\.ClassNotFoundException\)?:? ([\w.$]+)")
#: The class of a Java exception before its message, such as ``java.io.IOException: ``.
_THROWABLE = re.compile(r"^(?:\w+\.)+[A-Z][\w$]*: (?=\S)")
_CRASHED = re.compile(r"Python worker exited unexpectedly \(crashed\)")
#: Spark waits a fixed 10 seconds for a Python process that it starts.
_NOT_IN_TIME = re.compile(
    r"Python worker failed to connect back|waiting for the Python worker to connect back"
)
#: The path at which a worker found a module that was shipped with the job (``packages.zipped``).
_SHIPPED = re.compile(r'(?<=File ")[^"\n]*/job-[0-9a-f]{16}\.zip/')
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):.*?^\w[\w.]*: .*?$", re.DOTALL | re.MULTILINE)


class TaskError(Exception):
    """Carries a ``PenstockError`` out of a Python worker."""

    def __init__(self, error: PenstockError) -> None:
        data = base64.b64encode(json.dumps(error.to_dict()).encode()).decode()
        super().__init__(f"{error.message}\n{_MARK}{data}")


def carried(batches: Iterator[T], where: str) -> Iterator[T]:
    """Passes on the items of an executor's generator, and turns its errors into ``TaskError``s."""
    try:
        yield from batches
    except PenstockError as err:
        raise TaskError(err) from None
    except TaskError:
        raise
    except Exception as err:
        import traceback

        raise TaskError(
            FunctionError(
                f"{where} raised {type(err).__name__}: {err}",
                where=where,
                user_traceback=traceback.format_exc(),
            )
        ) from None


def _cause(text: str) -> str:
    """The first line of an exception's text, with the deepest cause that a Java trace names."""
    lines = text.strip().splitlines()
    if not lines:
        return ""
    causes = [x.strip() for x in lines if x.lstrip().startswith("Caused by:")]
    java = [x.strip() for x in lines if x.startswith(": ")]
    return " | ".join((lines[0], *java[:1], *causes[-1:]))


def _unread(kind: str, url: str, text: str) -> ConnectorError:
    """The error for a file that Spark's own reader could not read."""
    path = unquote(urlsplit(url).path) if url.startswith("file:") else url
    causes = [x.strip().removeprefix("Caused by: ") for x in text.splitlines() if "Caused by:" in x]
    if kind == "FILE_NOT_EXIST":
        return ConnectorError(
            f"cannot read '{path}'",
            expected="a readable file that stays until the job ends",
            got="it is not there any more",
            where=path,
            remedy="restore the file, or start the job anew",
        )
    return ConnectorError(
        f"'{path}' is damaged",
        expected="a whole file of the table's 'format'",
        got=(_THROWABLE.sub("", causes[-1]) if causes else kind)[:400],
        where=path,
        remedy="write or copy the file anew, or move it out of 'path'",
    )


def translated(err: BaseException) -> PenstockError:
    """A Spark exception as one of our errors."""
    if isinstance(err, PenstockError):
        return err
    text = str(err)
    found = _FOUND.search(text)
    if found is not None:
        out = error_from_dict(json.loads(base64.b64decode(found.group(1))))
        out.__cause__ = err
        return out
    missing = _MISSING.search(text)
    if missing is not None:
        return SpecError(
            f"the executors have no module '{missing.group(1)}'",
            expected="the job's package, what it imports, and penstock itself in the Python of every executor",
            got=missing.group(0),
            remedy="ship it with the job (files), add it to the executors' environment, "
            "or set spark.pyspark.python to an environment that has it",
        )
    absent = _CLASS.search(text)
    if absent is not None:
        return SpecError(
            f"Spark has no Java class '{absent.group(1)}'",
            expected="the jar with it, on this machine and named by spark.jars, or on Spark's own class path",
            got=absent.group(0),
            remedy="set spark.jars to the jar's path in the job's configuration; check the class's name",
        )
    unread = _FILE.search(text)
    if unread is not None:
        return _unread(unread.group(1), unread.group(2), text)
    if _CRASHED.search(text) is not None:
        return FunctionError(
            "the job's code ended its Python process",
            expected="code that returns, or raises what went wrong",
            got="no exception; Spark does not learn the exit code",
            remedy="look for os._exit() and for crashes of native libraries; where memory was short, "
            "the kernel's log names the process that it killed",
        )
    if _NOT_IN_TIME.search(text) is not None:
        return SparkBusyError(
            "a Python process did not connect to Spark in time",
            expected="a connection within Spark's fixed 10 seconds",
            got=_cause(text),
            remedy="the job restarts; if this recurs, give the machine fewer jobs or slots, or more cores",
        )
    python = _TRACEBACK.search(text)
    if python is not None:
        lines = _SHIPPED.sub("", python.group(0))
        return FunctionError(
            f"Python code that Spark runs raised {lines.splitlines()[-1]}", user_traceback=lines
        )
    first = _cause(text) or type(err).__name__
    return SparkJobError(
        "the Spark job failed",
        got=f"{type(err).__name__}: {first}"[:1000],
        remedy="Spark's log has the details",
    )
