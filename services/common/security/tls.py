"""TLS of the REST servers. Certificates, keys and authorities are read again when their files change: connections
that are open keep what they began with, new ones get the new."""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Any

from penstock import config as conf
from penstock.errors import SpecError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

_log = EventLog("penstock.security")


class ServerTls:
    """The certificates of a server. ``client_ca``: who signs the clients'; empty: they are asked for none.
    ``required``: whether a client without one is refused. Raises SpecError if the files cannot be used."""

    def __init__(self, certificate: str, key: str, client_ca: str, *, required: bool) -> None:
        self._files = (certificate, key, client_ca)
        self._required = required
        self._stamp = self._look()
        self._current = self._load()
        #: What the server is given. Each connection is moved to the newest context when its handshake begins.
        self.context = self._load()
        self.context.sni_callback = self._renew

    def _renew(self, connection: Any, _: Any, __: Any) -> None:
        connection.context = self.current()

    def current(self) -> ssl.SSLContext:
        """The context of the files as they are now; the former one if they cannot be used (with a log line)."""
        try:
            stamp = self._look()
            if stamp != self._stamp:
                self._current, self._stamp = self._load(), stamp
                _log.info("certificates_read", file=self._files[0])
        except SpecError as err:
            _log.error("certificates_not_read", file=self._files[0], error=str(err))
        return self._current

    def _look(self) -> tuple[tuple[int, int], ...]:
        try:
            found = [os.stat(path) for path in self._files if path]
        except OSError as err:
            raise _unusable(err.strerror or str(err), self._files) from None
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in found)

    def _load(self) -> ssl.SSLContext:
        certificate, key, client_ca = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # A password would be asked for at the terminal.
            context.load_cert_chain(certificate, key or None, password=lambda: "")
            if client_ca:
                context.load_verify_locations(client_ca)
                context.verify_mode = ssl.CERT_REQUIRED if self._required else ssl.CERT_OPTIONAL
        except (OSError, ssl.SSLError) as err:
            raise _unusable(str(err), self._files) from None
        return context


def _unusable(got: str, files: tuple[str, ...]) -> SpecError:
    return SpecError(
        "the certificates of the REST server cannot be used",
        expected="PEM files: a certificate with its key, without a password, and the authorities of clients",
        got=got,
        where=", ".join(filter(None, files)),
        remedy=f"see {conf.SSL_REST_CERTIFICATE.key}, {conf.SSL_REST_KEY.key}, {conf.SSL_REST_CLIENT_CA.key}",
    )


def server_tls(config: Mapping[str, str]) -> ServerTls | None:
    """The TLS of a REST server; None if it has none. Raises SpecError for options that contradict each other."""
    certificate, ca = conf.SSL_REST_CERTIFICATE.read(config), conf.SSL_REST_CLIENT_CA.read(config)
    required = conf.SSL_REST_AUTHENTICATION.read(config)
    if not certificate:
        for option in (conf.SSL_REST_KEY, conf.SSL_REST_CLIENT_CA, conf.SSL_REST_AUTHENTICATION):
            if option.read(config):
                raise SpecError(
                    f"'{option.key}' is set, but no certificate of the server",
                    expected=conf.SSL_REST_CERTIFICATE.key,
                )
        return None
    if not ca and (required or conf.REST_CERTIFICATE_ROLES.read(config)):
        raise SpecError(
            "certificates of clients are asked for, but nobody is named who signs them",
            expected=conf.SSL_REST_CLIENT_CA.key,
        )
    return ServerTls(certificate, conf.SSL_REST_KEY.read(config), ca, required=required)


def name_of_client(transport: asyncio.Transport) -> str | None:
    """The common name in the certificate of a connection's client; None if it showed none."""
    certificate = transport.get_extra_info("peercert") or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names[-1] if names else None
