"""The one tree of errors.

::

    PenstockError                 code, expected, got, where, remedy, retryable
    ├── UserError                 the user's program, spec, SQL or data
    │   ├── SpecError             a malformed job spec or configuration value
    │   │   ├── SpecValueError    a wrong value in a program; Python's ValueError, too
    │   │   └── SpecTypeError     a value of a wrong type in a program; Python's TypeError, too
    │   ├── SqlError              parsing, naming or typing; carries line and column
    │   ├── ConnectorError        an unknown connector, option, stream or file
    │   │   └── SecretError       a secret that an option names is not there
    │   ├── RecordError           a record that does not parse or fit its schema
    │   ├── FunctionError         a user's function raised; the user's traceback first
    │   └── UnsupportedError      valid, but this engine cannot run it (said at planning)
    ├── ExternalError             something outside: broker, lease store, object store
    │   ├── BrokerError
    │   ├── LeaseStoreError
    │   ├── ObjectStoreError
    │   ├── ServerAwayError       a server that a connector needs does not answer now
    │   ├── PeerLostError         the slot at the other end of a data connection is gone
    │   ├── SlotLostError         a slot's process, its machine or its network is gone
    │   ├── HelperLostError       a connector's helper process is gone
    │   ├── SnapshotError         a damaged, missing or unreadable snapshot object
    │   ├── JavaMissingError      no Java that Spark can run on
    │   ├── SparkUnreachableError no session at the Spark that was named
    │   ├── SparkBusyError        Spark gave up on a Python process that a busy machine had not started in time
    │   └── SparkJobError         Spark failed a job, and said no more of it than its own words
    └── InternalError             a broken invariant of ours
        └── FencedError           the sender's epoch, attempt or token is old

Each says what was expected, what was got, where, and what to do. ``to_dict`` and
``from_dict`` carry an error across processes without pickle.
"""

from __future__ import annotations

from typing import Any

from penstock.redaction import without_credentials

__all__ = [
    "REST_ERROR_TYPE",
    "BrokerError",
    "ConnectorError",
    "ExternalError",
    "FencedError",
    "FunctionError",
    "HelperLostError",
    "InternalError",
    "JavaMissingError",
    "LeaseStoreError",
    "ObjectStoreError",
    "PeerLostError",
    "PenstockError",
    "RecordError",
    "SecretError",
    "ServerAwayError",
    "SlotLostError",
    "SnapshotError",
    "SparkBusyError",
    "SparkJobError",
    "SparkUnreachableError",
    "SpecError",
    "SqlError",
    "UnsupportedError",
    "UserError",
    "error_from_dict",
    "nearest",
    "nested_too_deeply",
]

#: What a client of the REST API accepts when it wants an error's fields (``to_dict``) beside its text.
REST_ERROR_TYPE = "application/vnd.penstock.error+json"


class PenstockError(Exception):
    """Base of all errors.

    ``code`` is stable (``PS-SPEC``, ``PS-SQL`` …). ``retryable`` tells a restart strategy whether trying again may
    help: it belongs to the kind of error, unless one error says otherwise. Credentials in URLs are taken out of all
    texts.

    Args:
        message: What is wrong.
        expected: What would be right.
        got: What was found instead.
        where: File, line, option or component.
        remedy: What to do about it.
        user_traceback: The traceback of the user's own code; shown first.
    """

    code = "PS-ERROR"
    domain = "internal"
    retryable = False

    def __init__(
        self,
        message: str,
        *,
        expected: str | None = None,
        got: str | None = None,
        where: str | None = None,
        remedy: str | None = None,
        user_traceback: str | None = None,
    ) -> None:
        self.message = without_credentials(message)
        super().__init__(self.message)
        self.expected = _shown(expected)
        self.got = _shown(got)
        self.where = _shown(where)
        self.remedy = _shown(remedy)
        self.user_traceback = _shown(user_traceback)

    def __str__(self) -> str:
        lines = [self.user_traceback.rstrip()] if self.user_traceback else []
        lines.append(f"[{self.code}] {self.message}")
        for label, value in (
            ("at", self.where),
            ("expected", self.expected),
            ("got", self.got),
            ("do", self.remedy),
        ):
            if value:
                lines.append(f"  {label + ':':<10}{value}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The error as plain JSON types, for messages and REST."""
        fields = ("message", "expected", "got", "where", "remedy", "user_traceback")
        out: dict[str, Any] = {"type": type(self).__name__, "code": self.code}
        out.update({name: getattr(self, name) for name in fields if getattr(self, name)})
        if self.retryable is not type(self).retryable:
            out["retryable"] = self.retryable
        return out


def _shown(text: str | None) -> str | None:
    return without_credentials(text) if isinstance(text, str) else text


class UserError(PenstockError):
    """The user's program, SQL, options or data are wrong. Trying again does not help."""

    code, domain = "PS-USER", "user"


class SpecError(UserError):
    """A configuration value, a job spec, or an argument of an API call is wrong."""

    code = "PS-SPEC"


class SpecValueError(SpecError, ValueError):
    """A ``SpecError`` where PyFlink raises a ``ValueError``, so that a program's ``except`` finds it."""


class SpecTypeError(SpecError, TypeError):
    """A ``SpecError`` where PyFlink raises a ``TypeError``, so that a program's ``except`` finds it."""


class SqlError(UserError):
    """A statement or expression is wrong; it has line and column."""

    code = "PS-SQL"


class ConnectorError(UserError):
    """A table's options, schema or data are wrong."""

    code = "PS-CONNECTOR"


class SecretError(ConnectorError):
    """A secret that an option names is not where this process looks for secrets."""

    code = "PS-SECRET"


class RecordError(UserError):
    """A record cannot be decoded, encoded or written."""

    code = "PS-RECORD"


class FunctionError(UserError):
    """A user's function raised; its traceback comes first."""

    code, retryable = "PS-FUNCTION", True


class UnsupportedError(UserError):
    """A valid program that this engine cannot run. Raised while planning."""

    code = "PS-UNSUPPORTED"


class ExternalError(PenstockError):
    """A system outside failed or does not answer. Trying again may help."""

    code, domain, retryable = "PS-EXTERNAL", "external", True


class BrokerError(ExternalError):
    """NATS does not answer, or refuses a request."""

    code = "PS-BROKER"


class LeaseStoreError(ExternalError):
    """Redis or Valkey does not answer, or refuses a request."""

    code = "PS-LEASES"


class ObjectStoreError(ExternalError):
    """The object store does not answer, or refuses a request."""

    code = "PS-STORE"


class ServerAwayError(ExternalError):
    """A server that a connector needs does not answer now, or asks for another try later."""

    code = "PS-AWAY"


class PeerLostError(ExternalError):
    """The slot at the other end of a data connection is gone."""

    code = "PS-PEER"


class SlotLostError(ExternalError):
    """A slot's process, its machine or its network is gone."""

    code = "PS-SLOT-LOST"


class HelperLostError(ExternalError):
    """A connector's helper process is gone."""

    code = "PS-HELPER-LOST"


class SnapshotError(ExternalError):
    """A snapshot object is damaged, missing or unreadable. Trying again does not help."""

    code, retryable = "PS-SNAPSHOT", False


class JavaMissingError(ExternalError):
    """There is no Java that Spark can run on."""

    code, retryable = "PS-JAVA", False


class SparkUnreachableError(ExternalError):
    """No Spark answers at the address that was named."""

    code = "PS-SPARK"


class SparkBusyError(ExternalError):
    """Spark gave up on a Python process that the busy machine had not started in time."""

    code = "PS-SPARK-BUSY"


class SparkJobError(ExternalError):
    """Spark failed a job, and gave no reason of Penstock's."""

    code, retryable = "PS-SPARK-JOB", False


class InternalError(PenstockError):
    """A defect of Penstock: something that must hold does not."""

    code = "PS-INTERNAL"
    retryable = True


class FencedError(InternalError):
    """The sender's epoch, attempt or token is old."""

    code, retryable = "PS-FENCED", False


def _tree(cls: type[PenstockError]) -> dict[str, type[PenstockError]]:
    found = {cls.__name__: cls}
    for sub in cls.__subclasses__():
        found.update(_tree(sub))
    return found


_BY_NAME = _tree(PenstockError)


def error_from_dict(data: dict[str, Any]) -> PenstockError:
    """The inverse of ``to_dict``: ``data`` as an error. An unknown type becomes a ``PenstockError`` with its code."""
    cls = _BY_NAME.get(data.get("type", ""), PenstockError)
    fields = ("expected", "got", "where", "remedy", "user_traceback")
    error = cls(data.get("message", "unknown error"), **{f: data.get(f) for f in fields})
    if cls is PenstockError:
        error.code = data.get("code", cls.code)
    if "retryable" in data:
        error.retryable = data["retryable"]
    return error


def nearest(name: str, known: Any, n: int = 3) -> str | None:
    """A phrase "did you mean …?" for ``name`` with up to ``n`` names of ``known``; None where no name is near."""
    word = name.lower()
    near = sorted(
        (distance(word, str(k).lower()), at, str(k))
        for at, k in enumerate(known)
        if is_near(word, str(k).lower())
    )
    return "did you mean " + " or ".join(repr(k) for _, _, k in near[:n]) + "?" if near else None


def is_near(word: str, other: str) -> bool:
    """Whether ``word`` may be meant by ``other``: one or two slips of the finger, or its beginning."""
    shorter, longer = sorted((word, other), key=len)
    doubled = len(shorter) == 1 and len(longer) == 2
    if (len(shorter) >= 4 or doubled) and longer.startswith(shorter):
        return True
    slips = 0 if len(longer) <= 2 else 1 if len(longer) <= 4 else 2 if len(longer) <= 8 else 3
    return abs(len(word) - len(other)) <= slips and distance(word, other) <= slips


def distance(a: str, b: str) -> int:
    """How many letters of ``a`` must be added, left out, changed, or swapped with their neighbour, to give ``b``."""
    rows = [list(range(len(b) + 1))]
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            least = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                least = min(least, rows[-2][j - 2] + 1)
            row.append(least)
        rows.append(row)
    return rows[-1][-1]


def nested_too_deeply(what: str, where: str | None = None) -> SpecError:
    """The error for a RecursionError on text that a user wrote. ``what``: the text's kind; ``where``: its place."""
    return SpecError(
        f"the {what} is nested too deeply",
        expected="brackets and operators within each other, but not hundreds of them",
        where=where,
        remedy="split the expression, or put its constants into a table",
    )
