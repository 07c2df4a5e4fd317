"""The one tree of errors.

::

    PenstockError                 code, expected, got, where, remedy, retryable
    ├── UserError                 the user's program, spec, SQL or data
    │   ├── SpecError             a malformed job spec or configuration value
    │   ├── SqlError              parsing, naming or typing; carries line and column
    │   ├── ConnectorError        an unknown connector, option, stream or file
    │   ├── RecordError           a record that does not parse or fit its schema
    │   ├── FunctionError         a user's function raised; the user's traceback first
    │   └── UnsupportedError      valid, but this engine cannot run it (said at planning)
    ├── ExternalError             something outside: broker, lease store, object store
    │   ├── BrokerError
    │   ├── LeaseStoreError
    │   ├── ObjectStoreError
    │   ├── PeerLostError         the slot at the other end of a data connection is gone
    │   ├── SlotLostError         a slot's process, its machine or its network is gone
    │   ├── HelperLostError       a connector's helper process is gone
    │   ├── SnapshotError         a damaged, missing or unreadable snapshot object
    │   ├── JavaMissingError      no Java that Spark can run on
    │   ├── SparkUnreachableError no session at the Spark that was named
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
    "SlotLostError",
    "SnapshotError",
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


class PenstockError(Exception):
    """Base of all errors.

    ``code`` is stable (``PS-SPEC``, ``PS-SQL`` ...), ``retryable`` tells a restart
    strategy whether trying again may help: of a kind of error, unless one says otherwise.
    Credentials of URLs in its texts are taken out.
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
    code, domain = "PS-USER", "user"


class SpecError(UserError):
    code = "PS-SPEC"


class SqlError(UserError):
    code = "PS-SQL"


class ConnectorError(UserError):
    code = "PS-CONNECTOR"


class RecordError(UserError):
    code = "PS-RECORD"


class FunctionError(UserError):
    code, retryable = "PS-FUNCTION", True


class UnsupportedError(UserError):
    code = "PS-UNSUPPORTED"


class ExternalError(PenstockError):
    code, domain, retryable = "PS-EXTERNAL", "external", True


class BrokerError(ExternalError):
    code = "PS-BROKER"


class LeaseStoreError(ExternalError):
    code = "PS-LEASES"


class ObjectStoreError(ExternalError):
    code = "PS-STORE"


class PeerLostError(ExternalError):
    code = "PS-PEER"


class SlotLostError(ExternalError):
    code = "PS-SLOT-LOST"


class HelperLostError(ExternalError):
    code = "PS-HELPER-LOST"


class SnapshotError(ExternalError):
    code, retryable = "PS-SNAPSHOT", False


class JavaMissingError(ExternalError):
    code, retryable = "PS-JAVA", False


class SparkUnreachableError(ExternalError):
    code = "PS-SPARK"


class SparkJobError(ExternalError):
    code, retryable = "PS-SPARK-JOB", False


class InternalError(PenstockError):
    code = "PS-INTERNAL"
    retryable = True


class FencedError(InternalError):
    code, retryable = "PS-FENCED", False


def _tree(cls: type[PenstockError]) -> dict[str, type[PenstockError]]:
    found = {cls.__name__: cls}
    for sub in cls.__subclasses__():
        found.update(_tree(sub))
    return found


_BY_NAME = _tree(PenstockError)


def error_from_dict(data: dict[str, Any]) -> PenstockError:
    """The inverse of ``to_dict``; an unknown type becomes a ``PenstockError`` with its code."""
    cls = _BY_NAME.get(data.get("type", ""), PenstockError)
    fields = ("expected", "got", "where", "remedy", "user_traceback")
    error = cls(data.get("message", "unknown error"), **{f: data.get(f) for f in fields})
    if cls is PenstockError:
        error.code = data.get("code", cls.code)
    if "retryable" in data:
        error.retryable = data["retryable"]
    return error


def nearest(name: str, known: Any, n: int = 3) -> str | None:
    """A 'did you mean' phrase for ``name`` among ``known``, or None where none is really near."""
    word = name.lower()
    near = sorted(
        (distance(word, str(k).lower()), at, str(k))
        for at, k in enumerate(known)
        if is_near(word, str(k).lower())
    )
    return "did you mean " + " or ".join(repr(k) for _, _, k in near[:n]) + "?" if near else None


def is_near(word: str, other: str) -> bool:
    """Whether one is likely to be meant by the other: a slip or two of the finger, or its beginning."""
    shorter, longer = sorted((word, other), key=len)
    doubled = len(shorter) == 1 and len(longer) == 2
    if (len(shorter) >= 4 or doubled) and longer.startswith(shorter):
        return True
    slips = 0 if len(longer) <= 2 else 1 if len(longer) <= 4 else 2 if len(longer) <= 8 else 3
    return abs(len(word) - len(other)) <= slips and distance(word, other) <= slips


def distance(a: str, b: str) -> int:
    """How many letters were missed, added, changed, or turned with their neighbour."""
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
    """For a RecursionError on what somebody wrote: every structure of ours is shallow."""
    return SpecError(
        f"the {what} is nested too deeply",
        expected="brackets and operators within each other, but not hundreds of them",
        where=where,
        remedy="split the expression, or put its constants into a table",
    )
