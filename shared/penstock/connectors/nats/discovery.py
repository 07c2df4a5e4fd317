"""Discovers JetStream splits: each is a (stream, filter subject) with its start and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.base import SourceEnumerator, Split, TableInfo
from penstock.connectors.nats.client import JetStreamApi, check_subject, connect, server_url
from penstock.connectors.nats.settings import OPTIONS
from penstock.connectors.nats.subjects import has_wildcard, split_filters
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.base import SourceContext

#: With more subjects than this, the filters become the splits instead, because every split is a consumer on
#: the server.
MAX_SUBJECT_SPLITS = 1024


def split_by_subject(options: Mapping[str, Any]) -> bool:
    """Whether each subject is a split. With a known end, all subjects are known at once. Without one, the
    rows of a subject that is discovered later could be late for the watermark, so one split reads a whole
    filter."""
    if options["scan.split"] == "auto":
        return options["scan.bounded.mode"] in ("latest", "sequence")
    return options["scan.split"] == "subject"


class NatsEnumerator(SourceEnumerator):
    """Discovers the splits of a stream."""

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)
        self._filters = split_filters(self._options["subject"] or ">")
        self._api: JetStreamApi | None = None
        wild = any(has_wildcard(f) for f in self._filters)
        endless = self._options["scan.bounded.mode"] == "unbounded"
        if wild and endless and split_by_subject(self._options):
            self.discovery_interval_ms = self._options["scan.discovery-interval"]

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        if self._api is None:
            url = server_url(self._options, ctx.config)
            self._api = JetStreamApi(await connect(url, f"penstock enumerator {ctx.uid}"), url)
        stream = self._options["stream"] or await self._api.find_stream(self._filters[0])
        out = []
        for subject in self._filters:
            info = await self._api.stream_info(stream)
            check_subject(stream, info, subject)
            for name in await self._subjects(stream, subject):
                split_id = f"{stream}:{name}"
                if split_id not in known:
                    payload = self._payload(stream, name, info["state"], not known)
                    out.append(Split(split_id, {**payload, "created": info["created"]}))
        return out

    async def _subjects(self, stream: str, subject: str) -> list[str]:
        assert self._api is not None
        if not (has_wildcard(subject) and split_by_subject(self._options)):
            return [subject]
        info = await self._api.stream_info(stream, subjects=subject)
        names = sorted(info["state"]["subjects"])
        if len(names) > MAX_SUBJECT_SPLITS:
            raise ConnectorError(
                f"{len(names)} subjects match '{subject}' in stream '{stream}'",
                expected=f"at most {MAX_SUBJECT_SPLITS} with one split a subject",
                got=f"{names[0]}, {names[1]}, …",
                where="connector 'nats', option 'scan.split'",
                remedy="set 'scan.split' = 'filter'",
            )
        return names

    def _payload(self, stream: str, subject: str, state: Mapping[str, Any], first: bool) -> dict[str, Any]:
        """The payload of a split. ``start``: the first sequence to read, or ``start_time_ms``; ``end``: the
        last sequence. Both are fixed now, so that a restart reads the same messages. ``created``: the
        server's time of the stream's creation, because another stream of the same name numbers its messages
        from 1 again."""
        payload: dict[str, Any] = {"stream": stream, "subject": subject}
        match self._options["scan.startup.mode"]:
            case "earliest" if self.pinned and first:
                payload["start"] = max(1, state["first_seq"])
            case "latest" if first:
                # A subject that appears later has only new messages.
                payload["start"] = state["last_seq"] + 1
            case "sequence":
                payload["start"] = self._options["scan.startup.sequence"]
            case "timestamp":
                payload["start_time_ms"] = self._options["scan.startup.timestamp-millis"]
        match self._options["scan.bounded.mode"]:
            case "latest":
                payload["end"] = state["last_seq"]
            case "sequence":
                payload["end"] = self._options["scan.bounded.sequence"]
            case "marker":
                payload["marker"] = True
        return payload

    async def close(self) -> None:
        if self._api is not None:
            await self._api.client.close()
            self._api = None
