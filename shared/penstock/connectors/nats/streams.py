"""Finds, checks or creates the stream that a sink writes to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.connectors.nats.client import JetStreamApi, JetStreamError
from penstock.connectors.nats.subjects import covers, split_filters
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME_IN_USE = 10058
_STREAM_NOT_FOUND = 10059


def marker_subject(stream: str, prefix: str, subtask: int) -> str:
    """The subject of one subtask's transaction markers. It contains the stream's name, because no two
    streams may share a subject."""
    return f"_penstock.tx.{stream}.{re.sub(r'[^A-Za-z0-9_-]', '_', prefix)}.{subtask}"


async def sink_stream(
    api: JetStreamApi, options: Mapping[str, Any], wildcard: str, *, transactional: bool = False
) -> str:
    """Name of the stream that takes ``wildcard`` (and atomic batches with their markers).

    With ``stream.create`` the stream is created if it is missing, and made transactional if it is not.
    """
    name = options["stream"]
    if name is None:
        name = await api.find_stream(wildcard)
    marker = f"_penstock.tx.{name}.>" if transactional else None
    try:
        info = await api.request(f"STREAM.INFO.{name}")
    except JetStreamError as err:
        if err.err_code != _STREAM_NOT_FOUND or not options["stream.create"]:
            info = await api.stream_info(name)  # raises an error that names the existing streams
        else:
            info = await _create(api, options, name, wildcard, marker)
    config = info["config"]
    subjects = config.get("subjects") or []
    if not any(covers(s, wildcard) for s in subjects):
        raise ConnectorError(
            f"stream '{name}' does not capture '{wildcard}'",
            expected=f"a stream subject that covers '{wildcard}'",
            got="subjects " + (", ".join(subjects) or "none"),
            where="connector 'nats', option 'subject'",
            remedy=f"nats stream edit {name} --subjects … , or write to a subject of the stream",
        )
    if marker is not None:
        await _make_transactional(api, options, name, config, marker)
    return name


async def _create(
    api: JetStreamApi, options: Mapping[str, Any], name: str, wildcard: str, marker: str | None
) -> dict[str, Any]:
    subjects = split_filters(options["stream.subjects"]) if options["stream.subjects"] else [wildcard]
    config: dict[str, Any] = {
        "name": name,
        "subjects": subjects,
        "storage": options["stream.storage"],
        "num_replicas": options["stream.replicas"],
        "allow_direct": True,
    }
    if marker is not None:
        config["allow_atomic"] = True
        if not any(covers(s, marker) for s in subjects):
            config["subjects"] = [*subjects, marker]
    try:
        return await api.request(f"STREAM.CREATE.{name}", config)
    except JetStreamError as err:
        if err.err_code == _NAME_IN_USE:  # another subtask was faster
            return await api.stream_info(name)
        raise api.refused(f"to create stream '{name}'", err) from err


async def _make_transactional(
    api: JetStreamApi, options: Mapping[str, Any], name: str, config: dict[str, Any], marker: str
) -> None:
    subjects = config.get("subjects") or []
    has_marker = any(covers(s, marker) for s in subjects)
    if has_marker and config.get("allow_atomic"):
        return
    if not options["stream.create"]:
        missing = [] if config.get("allow_atomic") else ["allow_atomic"]
        missing += [] if has_marker else [f"the subject '{marker}' for transaction markers"]
        raise ConnectorError(
            f"stream '{name}' cannot take exactly-once output",
            expected="allow_atomic (nats-server 2.12 or newer) and a subject for transaction markers",
            got="it lacks " + " and ".join(missing),
            where="connector 'nats', option 'sink.delivery-guarantee'",
            remedy="set 'stream.create' = 'true' to let the sink add them, or change the stream",
        )
    wanted = {**config, "allow_atomic": True}
    if not has_marker:
        wanted["subjects"] = [*subjects, marker]
    try:
        answer = await api.request(f"STREAM.UPDATE.{name}", wanted)
    except JetStreamError as err:
        raise api.refused(f"to prepare stream '{name}' for exactly-once output", err) from err
    if not answer["config"].get("allow_atomic"):
        raise ConnectorError(
            f"the server of stream '{name}' knows no atomic batches",
            expected="nats-server 2.12 or newer",
            got="it ignored allow_atomic",
            where="connector 'nats'",
            remedy="update the server, or use 'sink.delivery-guarantee' = 'at-least-once'",
        )
