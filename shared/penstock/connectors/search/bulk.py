"""Sends requests to a search server, and turns its error responses into Penstock's errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import BrokerError, ConnectorError, ExternalError, PenstockError, RecordError
from penstock.redaction import hide

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Seconds that a check at planning waits.
_CHECK_S = 2.0
#: Statuses of a document or a request after which another attempt may succeed.
_PASSING = (408, 409, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Action:
    """The change of one document. ``source`` None: the document is deleted. ``upsert``: fields that the table
    does not have are kept."""

    index: str
    id: str
    source: bytes | None
    upsert: bool

    def lines(self) -> bytes:
        """The action in the form of the bulk API."""
        kind = "delete" if self.source is None else "update" if self.upsert else "index"
        head = msgspec.json.encode({kind: {"_index": self.index, "_id": self.id}})
        if self.source is None:
            return head + b"\n"
        body = b'{"doc":' + self.source + b',"doc_as_upsert":true}' if self.upsert else self.source
        return head + b"\n" + body + b"\n"


def hosts_of(options: Mapping[str, Any], owner: str) -> list[str]:
    """The servers' URLs. ConnectorError for a wrong URL."""
    import httpx

    found = [host.strip().rstrip("/") for host in options["hosts"].split(";") if host.strip()]
    for host in found:
        try:
            right = httpx.URL(host).scheme in ("http", "https") and httpx.URL(host).host
        except httpx.InvalidURL:
            right = False
        if not right:
            raise ConnectorError(
                "option 'hosts' has no URL",
                expected="http://host:9200, ';' between several",
                got=repr(host),
                where=f"{owner}, option 'hosts'",
            )
    prefix = options["connection.path-prefix"].strip("/")
    return [f"{host}/{prefix}".rstrip("/") for host in found]


class Server:
    """The servers of a table; a request goes to one that answers."""

    def __init__(self, options: Mapping[str, Any], owner: str) -> None:
        self._options, self._owner = options, owner
        self._hosts = hosts_of(options, owner)
        self._at = 0
        self._client: Any = None
        if options["password"]:
            hide(options["password"])

    @property
    def where(self) -> str:
        """The connector and the server that is asked."""
        return f"{self._owner}, {self._hosts[self._at]}"

    def settings(self) -> dict[str, Any]:
        """The arguments of an httpx client."""
        import httpx

        user = self._options["username"]
        return {
            "auth": None if user is None else (user, self._options["password"] or ""),
            "timeout": httpx.Timeout(
                self._options["connection.request-timeout"] / 1000,
                connect=self._options["connection.timeout"] / 1000,
                read=self._options["socket.timeout"] / 1000,
            ),
            "verify": not self._options["allow-insecure"],
            "trust_env": False,
        }

    async def ask(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> Any:
        """The answer to a request, whatever its status. BrokerError if the server does not answer; the next request
        goes to another one."""
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(**self.settings())
        try:
            return await self._client.request(
                method,
                f"{self._hosts[self._at]}/{path}",
                content=body or None,
                headers={"Content-Type": kind} if body else None,
            )
        except (httpx.TransportError, OSError) as err:
            where, self._at = self.where, (self._at + 1) % len(self._hosts)
            raise away(err, where) from err

    async def bulk(self, actions: Sequence[Action]) -> list[tuple[Action, int, str]]:
        """Send actions; returns for each action its status and the server's message."""
        body = b"".join(action.lines() for action in actions)
        answer = await self.ask("POST", "_bulk", body, "application/x-ndjson")
        if answer.status_code != 200:
            raise refused(answer.status_code, answer.text, self.where)
        items = msgspec.json.decode(answer.content)["items"]
        out = []
        for action, item in zip(actions, items, strict=True):
            [told] = item.values()
            error = told.get("error") or {}
            said = error if isinstance(error, str) else f"{error.get('type')}: {error.get('reason')}"
            out.append((action, int(told["status"]), said))
        return out

    async def close(self) -> None:
        """Close connections."""
        if self._client is not None:
            await self._client.aclose()


def away(err: Exception, where: str) -> BrokerError:
    """The error for a server that does not answer."""
    return BrokerError(
        "the search server does not answer",
        got=str(err) or type(err).__name__,
        where=where,
        remedy="start it, or correct 'hosts'; Penstock tries again",
    )


def refused(status: int, said: str, where: str) -> PenstockError:
    """The error for a request that was answered with ``status``."""
    remedies = {
        401: "set 'username' and 'password'",
        403: "allow the user to write the index",
        404: "check 'hosts' and 'connection.path-prefix'",
        413: "lower 'sink.bulk-flush.max-size', or raise http.max_content_length",
    }
    got = f"status {status}: {said[:500]}"
    if status in _PASSING:
        return BrokerError("the search server is not able to answer", got=got, where=where)
    return ConnectorError(
        "the search server refuses",
        got=got,
        where=where,
        remedy=remedies.get(status, "see what the server says"),
    )


def passing(status: int) -> bool:
    """Whether another attempt may mend this status of a document."""
    return status in _PASSING


def record_error(action: Action, status: int, said: str, where: str) -> RecordError:
    """The error of a document that the server will never take."""
    return RecordError(
        "the search server refuses a document",
        expected=f"a document that fits the mapping of index '{action.index}'",
        got=f"status {status}, {said[:500]}",
        where=f"{where}, index '{action.index}'",
        remedy="correct the mapping or the column's type; 'on-error' = 'skip' leaves such rows out",
    )


def check_server(options: Mapping[str, Any], owner: str) -> None:
    """ConnectorError if a server answers and refuses the user. A server that does not answer is no error: the
    job waits for it."""
    import httpx

    server = Server(options, owner)
    settings = {**server.settings(), "timeout": _CHECK_S}
    for host in hosts_of(options, owner):
        try:
            answer = httpx.get(host + "/", **settings)
        except (httpx.TransportError, OSError):
            continue
        if answer.status_code != 200:
            error = refused(answer.status_code, answer.text, f"{owner}, {host}")
            if not isinstance(error, ExternalError):
                raise error
        return
