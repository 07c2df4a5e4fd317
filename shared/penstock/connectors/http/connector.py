"""Checks of the connectors of HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.base import (
    LookupSource,
    SinkWriter,
    SourceEnumerator,
    SourceReader,
    Split,
    TableInfo,
)
from penstock.connectors.http.client import check_url, tls_of
from penstock.connectors.http.settings import METADATA, OPTIONS, OWNER, own_keys, own_table
from penstock.connectors.receiving import SplitsOnce
from penstock.connectors.simple import DeclaredConnector
from penstock.connectors.texts import KeyTemplate, check_scalars
from penstock.errors import ConnectorError
from penstock.formats import message_format

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class HttpConnector(DeclaredConnector):
    """The connector ``http``: a web hook (``listen``), a polled or looked-up address, a sink (``url``)."""

    name = "http"
    takes_format = True
    location = ("listen", "path", "url")
    nested_projection = True
    metadata = METADATA
    lookup_caches: tuple[str, ...] = ("NONE", "PARTIAL")

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        table = own_table(table)
        super().validate(table, role=role)
        format_ = message_format(table.format, where=OWNER)
        format_.check(table.schema, table.options)
        options = OPTIONS.read(table.options)
        if role == "source" and options["listen"] is not None:
            _check_hook(options)
            return
        KeyTemplate(check_url(options["url"]), table.schema, OWNER, "url", in_url=True)
        tls_of(options)
        if role == "sink":
            format_.encoder(table.schema, table.options)
            self._check_sink(table, options)
        elif options["pagination"] in ("url", "cursor") and not options["pagination.pointer"]:
            raise _unfit(
                "the place of the next page is missing",
                "'pagination.pointer' = '/meta/next' for example",
                f"'pagination' = '{options['pagination']}' alone",
            )

    def _check_sink(self, table: TableInfo, options: Mapping[str, Any]) -> None:
        from penstock.connectors.http.sink import in_batches

        if not in_batches(table):
            return
        if table.format != "json":
            raise _unfit(
                "only rows of JSON can be put into one request",
                "'http.sink.writer.request.mode' = 'single', or 'format' = 'json'",
                f"'batch' and 'format' = '{table.format}'",
            )
        if "{" in options["url"]:
            raise _unfit(
                "a request of many rows has one address",
                "'http.sink.writer.request.mode' = 'single', or a 'url' without columns",
                f"'batch' and 'url' = '{options['url']}'",
            )

    def is_bounded(self, table: TableInfo) -> bool:
        options = OPTIONS.read(own_keys(table.options))
        return options["listen"] is None and options["scan.bounded.mode"] == "latest"

    def source_guarantee(self, table: TableInfo) -> str:
        options = OPTIONS.read(own_keys(table.options))
        if options["listen"] is None:
            return (
                "exactly-once while the answers do not change" if self.is_bounded(table) else "at-least-once"
            )
        if options["answer"] == "received":
            return "at-most-once"
        return "exactly-once" if options["request-id.header"] else "at-least-once"

    def sink_guarantee(self, table: TableInfo) -> str:
        return str(OPTIONS.read_one(own_keys(table.options), "sink.delivery-guarantee"))

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        options = OPTIONS.read(own_keys(table.options))
        if options["listen"] is not None:
            return SplitsOnce(lambda _readers: [Split("hook", {"listen": options["listen"]})])
        if KeyTemplate(options["url"], table.schema, OWNER, "url").columns:
            raise _unfit(
                "an address with columns in it can only be looked up",
                "JOIN … FOR SYSTEM_TIME AS OF a processing time, or a 'url' without columns",
                options["url"],
            )
        return SplitsOnce(lambda _readers: [Split("polled")])

    def reader(self, table: TableInfo) -> SourceReader:
        table = own_table(table)
        if "listen" in table.options:
            from penstock.connectors.http.webhook import WebhookReader

            return WebhookReader(table)
        from penstock.connectors.http.polling import PollingReader

        return PollingReader(table)

    def lookup(self, table: TableInfo) -> LookupSource:
        from penstock.connectors.http.lookup import HttpLookup

        table = own_table(table)
        check_url(table.options.get("url"))
        check_scalars(
            table.schema.select(KeyTemplate(table.options["url"], table.schema, OWNER).columns).fields, OWNER
        )
        return HttpLookup(table)

    def writer(self, table: TableInfo) -> SinkWriter:
        from penstock.connectors.http.sink import writer_of

        return writer_of(table)


class HttpSinkConnector(HttpConnector):
    """The connector ``http-sink``, as the HTTP connectors of Flink name it."""

    name = "http-sink"
    roles = ("sink",)
    lookup_caches = ()


class RestLookupConnector(HttpConnector):
    """The connector ``rest-lookup``, as the HTTP connectors of Flink name it."""

    name = "rest-lookup"
    roles = ("source",)


def host_and_port(listen: str) -> tuple[str, int]:
    """``host:port`` apart. Raises ConnectorError."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise _unfit("option 'listen' is no address", "'listen' = '0.0.0.0:8088'", repr(listen))
    return host, int(port)


def _check_hook(options: Mapping[str, Any]) -> None:
    host, _ = host_and_port(options["listen"])
    if options["url"] is not None:
        raise _unfit("a source listens or asks", "'listen' or 'url'", "both")
    if not options["path"].startswith("/"):
        raise _unfit("option 'path' is no path", "'path' = '/orders'", repr(options["path"]))
    if (options["tls.certificate"] is None) != (options["tls.key"] is None):
        raise _unfit(
            "a server with TLS has a certificate and its key",
            "'tls.certificate' and 'tls.key'",
            "one of them",
        )
    if options["token"] is None and not options["allow-anonymous"] and host not in _LOOPBACK:
        raise _unfit(
            "anybody could send rows",
            "'token' = 'secret:NAME', or 'allow-anonymous' = 'true'",
            f"neither, and 'listen' = '{options['listen']}'",
        )
    if options["answer"] == "received" and options["request-id.header"]:
        raise _unfit(
            "a request that is answered at once is not sent again",
            "'answer' = 'checkpoint', or no 'request-id.header'",
            "'answer' = 'received' with 'request-id.header'",
        )


def _unfit(what: str, expected: str, got: str) -> ConnectorError:
    return ConnectorError(what, expected=expected, got=got, where=OWNER, remedy="correct the table's options")
