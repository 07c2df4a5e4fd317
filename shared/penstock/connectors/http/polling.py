"""Asks an address again and again, page by page."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.connectors.http.bodies import records, text_at
from penstock.connectors.http.client import answer_of, client, place, refused
from penstock.connectors.http.settings import METADATA, OPTIONS, OWNER, RETRY_CODES, headers_of, status_codes
from penstock.connectors.receiving import Arrived, Place, ReceivingReader
from penstock.errors import ConnectorError, RecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx

    from penstock.connectors.away import Away
    from penstock.connectors.base import SourceContext, TableInfo


class PollingReader(ReceivingReader):
    """Reads all pages, waits, and begins again. A position names the page, a digest of it, and the records that were
    read of it: after a restart the rest follows if the page is still the same, else all of the page."""

    metadata = METADATA

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._options = OPTIONS.read(table.options)
        self._first: str = self._options["url"]
        super().__init__(OWNER, f"{OWNER}, {place(self._first)}")
        self._kind: str = self._options["body"] or "array"
        self._retry = status_codes(RETRY_CODES)
        self._client: httpx.AsyncClient | None = None
        #: Whether a round is under way.
        self._asking = True

    async def open(self, ctx: SourceContext) -> None:
        await super().open(ctx)
        self._client = client(self._options, headers_of(self._table.options), role="source", most=1)

    async def receive(self, place: Place, away: Away) -> None:
        self.discard(place)
        position = dict(place.position or {})
        while True:
            self._asking = True
            position = await self._round(place, away, position)
            self._asking = False
            if self._options["scan.bounded.mode"] == "latest":
                return
            await asyncio.sleep(self._options["poll.interval"] / 1000)

    async def _round(self, place: Place, away: Away, position: dict[str, Any]) -> dict[str, Any]:
        """Reads from the page in ``position`` (none: the first) to the last; returns where the next round begins."""
        page: str | None = position.get("page", self._first)
        seen = position
        while page is not None:
            answer = await self._answer(page, seen)
            away.answered()
            if answer.status_code == 304:
                break
            seen, rows, following = await self._page(place, page, answer, seen)
            if following == page:
                # An API that always gives a cursor has no more rows now.
                if not self._options["pagination.resume"]:
                    raise self._circle(page)
                break
            page = following
            if not rows and self._options["pagination.resume"]:
                break
        if not self._options["pagination.resume"]:
            page = self._first
        elif page is None:
            page = seen.get("page", self._first)
        return seen if page == seen.get("page") else {"page": page}

    async def _answer(self, page: str, seen: dict[str, Any]) -> httpx.Response:
        assert self._client is not None, "the reader was used before open()"
        known = seen if seen.get("page") == page and seen.get("whole") else {}
        headers = {}
        if known.get("etag"):
            headers["If-None-Match"] = known["etag"]
        elif known.get("modified"):
            headers["If-Modified-Since"] = known["modified"]
        answer = await answer_of(
            self._client, self._client.build_request("GET", page, headers=headers), self._retry
        )
        if not answer.is_success and not (answer.status_code == 304 and headers):
            raise refused(answer)
        return answer

    async def _page(
        self, place: Place, page: str, answer: httpx.Response, seen: dict[str, Any]
    ) -> tuple[dict[str, Any], int, str | None]:
        """Hands on the records of a page: its position, how many records it has, and the next page."""
        body = answer.content
        digest = hashlib.sha256(body).hexdigest()[:32]
        same = seen.get("page") == page and seen.get("digest") == digest
        where = f"{self._where}, page {page}"
        try:
            found = records(body, self._kind, self._options["body.pointer"], where)
            following = self._following(page, answer)
        except RecordError as err:
            self.ctx.bad_record(err, body, where)
            found, following = [], None
        told = {
            "url": page, "headers": list(answer.headers.items()), "request-id": None, "remote-address": None,
            "timestamp": _at(self.ctx.now_ms()),
        }  # fmt: skip
        position: dict[str, Any] = {"page": page, "digest": digest}
        # Only of the last page may the server say that nothing is new: pages behind another one must still be read.
        last = {} if following is not None else {
            "whole": True, "etag": answer.headers.get("ETag"), "modified": answer.headers.get("Last-Modified"),
        }  # fmt: skip
        for number in range(seen.get("rows", 0) if same else 0, len(found)):
            token = {**position, "rows": number + 1}
            if number == len(found) - 1:
                token |= last
            await self.put(place, Arrived(found[number], f"{where}, record {number + 1}", told, None, token))
        return {**position, "rows": len(found), **last}, len(found), following

    def _following(self, page: str, answer: httpx.Response) -> str | None:
        """The address of the next page; None: there is none. Raises RecordError."""
        import httpx

        way = self._options["pagination"]
        if way == "none":
            return None
        try:
            if way == "link":
                next_: str | None = answer.links.get("next", {}).get("url")
            else:
                next_ = text_at(answer.content, self._options["pagination.pointer"])
            if next_ is None:
                return None
            if way == "cursor":
                return str(httpx.URL(page).copy_set_param(self._options["pagination.parameter"], next_))
            url = httpx.URL(page).join(next_)
        except (msgspec.DecodeError, ValueError, httpx.InvalidURL) as err:
            raise RecordError(
                "the next page cannot be told",
                expected=f"an address or cursor at '{self._options['pagination.pointer']}'",
                got=str(err),
                where=self._where,
            ) from None
        first = httpx.URL(self._first)
        if (url.scheme, url.netloc) != (first.scheme, first.netloc):
            # The table's headers, which may hold credentials, are for the table's server alone.
            raise ConnectorError(
                "the next page is on another server",
                expected=f"an address at {first.scheme}://{first.host}",
                got=f"{url.scheme}://{url.host}",
                where=self._where,
            )
        return str(url)

    def _circle(self, page: str) -> ConnectorError:
        return ConnectorError(
            "a page names itself as the next page",
            expected="another page, or none",
            got=page,
            where=self._where,
        )

    def advance(self, place: Place, messages: Sequence[Arrived]) -> Any:
        return messages[-1].token

    def caught_up(self, split_id: str) -> bool:
        place = self._places[split_id]
        return (
            place.done
            if self._options["scan.bounded.mode"] == "latest"
            else not (place.waiting or self._asking)
        )

    async def close(self) -> None:
        await super().close()
        if self._client is not None:
            await self._client.aclose()


def _at(now_ms: int) -> Any:
    import datetime as dt

    return dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)
