"""Asks a schema registry over HTTP. What it said once of an id stays true, and is kept."""

from __future__ import annotations

import asyncio
import ssl
import weakref
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from penstock.errors import ConnectorError, ExternalError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import httpx

    from penstock.formats.schema_registry.settings import RegistrySettings

_log = EventLog("penstock.formats.schema_registry")

_ANSWER_S = 10.0
#: A registry that is away is asked again for so long; then the task fails, and its restart asks again.
_PATIENCE_S = 60.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
#: Schemas may refer to schemas that refer to others.
_MAX_REFERENCES = 256


class _AwayError(Exception):
    """The registry does not answer, or says that it cannot now."""


class UnknownSchemaError(Exception):
    """The registry knows no schema of that id. The text is its answer."""


class SchemaText:
    """A registered schema: its text, and the texts of the schemas that it refers to, deepest first."""

    __slots__ = ("references", "text")

    def __init__(self, text: str, references: tuple[str, ...] = ()) -> None:
        self.text = text
        self.references = references


class SchemaRegistry:
    """One registry, as one user.

    Args:
        settings: Where it is.
        transport: Of httpx, for tests.
    """

    def __init__(self, settings: RegistrySettings, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._settings = settings
        self._transport = transport
        self._sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
        self._first_url = 0
        #: By id: what was fetched, or the reason why there is none.
        self._schemas: dict[int, SchemaText | UnknownSchemaError] = {}
        self._tls: ssl.SSLContext | None = None

    @property
    def where(self) -> str:
        """The registry's place, for errors."""
        return ", ".join(self._settings.urls)

    def known(self, schema_id: int) -> SchemaText | UnknownSchemaError | None:
        """What was fetched of an id, or the registry's word that there is no such schema; None: not asked."""
        return self._schemas.get(schema_id)

    async def fetch(self, schema_id: int, kind: str) -> None:
        """Asks for the schema of an id, and for those that it refers to; then ``known`` has the answer.

        Args:
            schema_id: The id in a message's header.
            kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.

        Raises:
            ConnectorError: The registry refuses the question, or the schema is of another kind.
            ExternalError: The registry was away for too long.
        """
        subject = f"schema id {schema_id}"
        status, body = await self._ask("GET", f"/schemas/ids/{schema_id}", None, subject)
        if status == 404 and body.get("error_code") == 40403:
            self._schemas[schema_id] = UnknownSchemaError(_said(status, body))
            return
        self._check(status, body, subject, kind)
        texts = await self._references(body.get("references") or [], subject, kind, {})
        self._schemas[schema_id] = SchemaText(body["schema"], tuple(texts))

    async def _references(
        self, references: list[dict[str, Any]], subject: str, kind: str, seen: dict[tuple[str, int], None]
    ) -> list[str]:
        out = []
        for reference in references:
            name, version = reference["subject"], reference["version"]
            if (name, version) in seen:
                continue
            seen[name, version] = None
            where = f"{subject}, which refers to subject '{name}', version {version}"
            if len(seen) > _MAX_REFERENCES:
                raise ConnectorError(
                    f"a schema refers to more than {_MAX_REFERENCES} others", where=f"{where}, {self.where}"
                )
            path = f"/subjects/{quote(name, safe='')}/versions/{version}"
            status, body = await self._ask("GET", path, None, where)
            self._check(status, body, where, kind)
            out += await self._references(body.get("references") or [], where, kind, seen)
            out.append(body["schema"])
        return out

    async def id_of(self, subject: str, text: str, kind: str, *, register: bool) -> int:
        """The id of a schema under a subject.

        Args:
            subject: The subject.
            text: The schema.
            kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.
            register: Registers it where the subject does not have it; else the schema is only looked up.

        Raises:
            ConnectorError: The schema is not there, or is not compatible, or the registry refuses the request.
            ExternalError: The registry was away for too long.
        """
        where = f"subject '{subject}'"
        path = f"/subjects/{quote(subject, safe='')}" + ("/versions" if register else "")
        if self._settings.normalize:
            path += "?normalize=true"
        sent = {"schema": text} | ({} if kind == "AVRO" else {"schemaType": kind})
        status, body = await self._ask("POST", path, sent, where)
        if status == 404 and not register and body.get("error_code") in (40401, 40403):
            raise self._refused(
                "the schema registry does not have the table's schema", where, status, body,
                "register it, set 'auto.register.schemas' to true, or correct the subject or the columns",
            )  # fmt: skip
        self._check(status, body, where, kind)
        if not isinstance(found := body.get("id"), int):
            raise self._refused("the schema registry answers without an id", where, status, body, _IS_ONE)
        return found

    def _check(self, status: int, body: dict[str, Any], subject: str, kind: str) -> None:
        """ConnectorError for an answer that is none of a schema of the right kind."""
        if status in (401, 403):
            raise self._refused(
                "the schema registry refuses the credentials", subject, status, body,
                "correct 'basic-auth.user-info' or 'bearer-auth.token', or allow the user to use the subject",
            )  # fmt: skip
        if status == 409:
            raise self._refused(
                "the table's schema is not compatible with those of the subject", subject, status, body,
                "change the columns as the subject's compatibility allows, change the compatibility, or use "
                "another subject",
            )  # fmt: skip
        if status != 200:
            remedy = "correct the table's columns or 'schema'" if status == 422 else _IS_ONE
            raise self._refused("the schema registry refuses the request", subject, status, body, remedy)
        found = body.get("schemaType") or "AVRO"
        if found != kind:
            raise ConnectorError(
                "a schema of the registry is of another kind",
                expected=kind,
                got=str(found),
                where=f"{subject}, {self.where}",
                remedy="read the topic with the format of that kind, or correct the subject",
            )
        if "schema" not in body and "id" not in body:
            raise self._refused(
                "the schema registry answers without a schema", subject, status, body, _IS_ONE
            )

    def _refused(
        self, message: str, subject: str, status: int, body: dict[str, Any], remedy: str
    ) -> ConnectorError:
        got = _said(status, body)
        return ConnectorError(message, got=got, where=f"{subject}, {self.where}", remedy=remedy)

    # -- HTTP -------------------------------------------------------------------------------------

    async def _ask(
        self, method: str, path: str, sent: dict[str, Any] | None, subject: str
    ) -> tuple[int, dict[str, Any]]:
        """Status and answer of a registry that can answer; asks again while none can."""
        loop = asyncio.get_running_loop()
        until, pause_s = loop.time() + _PATIENCE_S, _FIRST_PAUSE_S
        while True:
            try:
                return await self._ask_any(method, path, sent)
            except _AwayError as err:
                if loop.time() + pause_s > until:
                    raise ExternalError(
                        "the schema registry does not answer",
                        expected=f"an answer within {_PATIENCE_S:g} s",
                        got=str(err),
                        where=f"{subject}, {self.where}",
                        remedy="check that the registry runs and is reached from this machine, and the format's 'url'",
                    ) from None
                _log.warning(
                    "schema_registry_away", url=self.where, subject=subject, error=str(err), retry_in_s=pause_s
                )  # fmt: skip
            await self._sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _ask_any(
        self, method: str, path: str, sent: dict[str, Any] | None
    ) -> tuple[int, dict[str, Any]]:
        """Asks one URL after another, first the one that answered last."""
        import httpx

        settings, said = self._settings, ""
        if self._tls is None:
            self._tls = settings.tls()
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json"}
        if settings.token:
            headers["Authorization"] = f"Bearer {settings.token}"
        if sent is not None:
            headers["Content-Type"] = _MEDIA_TYPE
        async with httpx.AsyncClient(
            auth=settings.basic, headers=headers, timeout=_ANSWER_S, follow_redirects=True,
            verify=self._tls, transport=self._transport,
        ) as client:  # fmt: skip
            for i in range(len(settings.urls)):
                at = (self._first_url + i) % len(settings.urls)
                try:
                    answer = await client.request(method, settings.urls[at] + path, json=sent)
                except httpx.TransportError as err:
                    self._check_tls(err, settings.urls[at])
                    said = f"{settings.urls[at]}: {type(err).__name__} {err}"
                    continue
                if answer.status_code == 429 or answer.status_code >= 500:
                    said = f"{settings.urls[at]}: {_said(answer.status_code, _body(answer))}"
                    continue
                self._first_url = at
                return answer.status_code, _body(answer)
        raise _AwayError(said)

    def _check_tls(self, err: Exception, url: str) -> None:
        """ConnectorError where the certificate is the trouble: asking again would not mend it."""
        cause: BaseException | None = err
        while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            raise ConnectorError(
                "the certificate of the schema registry is not trusted",
                got=f"{type(cause).__name__} {cause}",
                where=url,
                remedy="set 'ssl.truststore.location' to a PEM file of the authority that signed it",
            ) from None


_IS_ONE = "check that the format's 'url' is the base URL of a Confluent-compatible schema registry"


def _body(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"message": answer.text[:200]}


def _said(status: int, body: dict[str, Any]) -> str:
    code = f", error code {body['error_code']}" if "error_code" in body else ""
    return f"HTTP status {status}{code}: {str(body.get('message', ''))[:500]}"


#: Subtasks of one process share what was fetched.
_REGISTRIES: weakref.WeakValueDictionary[RegistrySettings, SchemaRegistry] = weakref.WeakValueDictionary()


def registry_for(settings: RegistrySettings) -> SchemaRegistry:
    """The registry of ``settings``, one for each process."""
    found = _REGISTRIES.get(settings)
    if found is None:
        found = _REGISTRIES[settings] = SchemaRegistry(settings)
    return found
