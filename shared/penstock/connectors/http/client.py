"""Sends requests; turns statuses and lost connections into Penstock's errors."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

from penstock.connectors.http.settings import OWNER, Codes
from penstock.errors import BrokerError, ConnectorError, PenstockError
from penstock.redaction import hide, without_credentials

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

#: The longest pause for which a server may ask, s.
_MOST_PAUSE_S = 60.0


def check_url(url: str | None, owner: str = OWNER) -> str:
    """The URL. Raises ConnectorError for a missing or wrong one."""
    import httpx

    try:
        right = url is not None and httpx.URL(url).scheme in ("http", "https") and bool(httpx.URL(url).host)
    except httpx.InvalidURL:
        right = False
    if url is None or not right:
        raise ConnectorError(
            "option 'url' is no address" if url is not None else "option 'url' is missing",
            expected="http://host/path or https://host/path",
            got="no such option" if url is None else without_credentials(url),
            where=owner,
        )
    return url


def place(url: str) -> str:
    """The address without credentials and parameters, for errors."""
    return without_credentials(url).partition("?")[0]


def tls_of(options: Mapping[str, Any]) -> ssl.SSLContext:
    """How certificates are checked. Raises ConnectorError for a file that cannot be read."""
    try:
        context = ssl.create_default_context(cafile=options["http.security.cert.server"])
        if options["http.security.cert.client"] is not None:
            context.load_cert_chain(options["http.security.cert.client"], options["http.security.key.client"])
    except OSError as err:  # also ssl.SSLError
        raise ConnectorError(
            "a certificate cannot be read",
            expected="PEM files in the options http.security.…",
            got=str(err),
            where=OWNER,
            remedy="correct the path, on every machine that runs the job",
        ) from None
    if options["http.security.cert.server.allowSelfSigned"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def client(
    options: Mapping[str, Any], headers: Mapping[str, str], *, role: str, most: int
) -> httpx.AsyncClient:
    """A client with at most ``most`` connections. ``role``: the part of option names, ``sink`` or ``source.lookup``."""
    import httpx

    for name, value in headers.items():
        if name.lower() in ("authorization", "proxy-authorization", "cookie", "x-api-key"):
            hide(value)
    whole = options.get(f"http.{role}.request.timeout") or options["http.request.timeout"]
    connect = options.get(f"http.{role}.connection.timeout") or options["http.connection.timeout"]
    return httpx.AsyncClient(
        headers=dict(headers),
        timeout=httpx.Timeout(whole / 1000, connect=connect / 1000),
        limits=httpx.Limits(max_connections=most, max_keepalive_connections=most),
        verify=tls_of(options),
        trust_env=False,
    )


async def answer_of(client: httpx.AsyncClient, request: httpx.Request, retry: Codes) -> httpx.Response:
    """The answer. Raises BrokerError when the server cannot be reached, or says that it cannot answer now; the pause
    for which the server asks has passed then."""
    import httpx

    where = f"{OWNER}, {place(str(request.url))}"
    try:
        answer = await client.send(request)
    except (httpx.TransportError, OSError) as err:
        raise BrokerError(
            "the server does not answer",
            got=str(err) or type(err).__name__,
            where=where,
            remedy="start it, or correct 'url'; Penstock tries again",
        ) from err
    if answer.status_code in retry:
        await asyncio.sleep(asked_pause_s(answer.headers.get("Retry-After")))
        raise BrokerError("the server cannot answer now", got=said(answer), where=where)
    return answer


def asked_pause_s(header: str | None) -> float:
    """The pause in a header Retry-After, as far as it is a number of seconds."""
    return min(_MOST_PAUSE_S, float(header)) if header is not None and header.strip().isdigit() else 0.0


def said(answer: httpx.Response) -> str:
    """Status and the beginning of the body."""
    return f"status {answer.status_code}: {answer.text[:300]}"


def refused(answer: httpx.Response) -> PenstockError:
    """The error for a status that no attempt will mend."""
    remedies = {
        401: "give credentials: 'header.Authorization' = 'Bearer ${secret:NAME}'",
        403: "allow the user the request",
        404: "correct 'url'",
        405: "correct 'insert-method' or 'lookup-method'",
        413: "lower 'http.sink.request.batch.size'",
    }
    if 300 <= answer.status_code < 400:
        remedies[answer.status_code] = (
            f"set 'url' to {place(answer.headers.get('Location', 'the new address'))}"
        )
    return ConnectorError(
        "the server refuses a request",
        got=said(answer),
        where=f"{OWNER}, {place(str(answer.request.url))}",
        remedy=remedies.get(
            answer.status_code, "see what the server says, or name the status in the options …-codes"
        ),
    )
