"""Mutual TLS between the processes of a cluster: data connections between hosts, and the connections to NATS and Redis.

Services announce their files (``announce``) in the environment, which slots and helper processes inherit.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.config import SSL_INTERNAL_CA, SSL_INTERNAL_CERTIFICATE, SSL_INTERNAL_KEY
from penstock.errors import SpecError

CERTIFICATE_VARIABLE = "PENSTOCK_INTERNAL_CERTIFICATE"
KEY_VARIABLE = "PENSTOCK_INTERNAL_KEY"
CA_VARIABLE = "PENSTOCK_INTERNAL_CA"
_VARIABLES = (
    (SSL_INTERNAL_CERTIFICATE, CERTIFICATE_VARIABLE),
    (SSL_INTERNAL_KEY, KEY_VARIABLE),
    (SSL_INTERNAL_CA, CA_VARIABLE),
)


@dataclass(frozen=True)
class Files:
    """PEM files; empty: none. ``key`` empty: it is in the certificate's file."""

    certificate: str
    key: str
    ca: str


def announce(config: Mapping[str, str]) -> None:
    """Let this process and those that it starts use the files that ``config`` names.

    Raises:
        SpecError: A file cannot be used, or a certificate is set without the authority, or the other way round.
    """
    for option, variable in _VARIABLES:
        if option.key in config:
            os.environ[variable] = option.read(config)
    if data_tls() is None and any(option.read(config) for option, _ in _VARIABLES[:2]):
        raise SpecError(
            "a certificate for the cluster's processes is set without the authority that signed the others'",
            expected=f"{SSL_INTERNAL_CERTIFICATE.key} and {SSL_INTERNAL_CA.key}",
        )


def data_tls() -> tuple[ssl.SSLContext, ssl.SSLContext] | None:
    """The contexts of the accepting and the connecting side of data connections; None if they are without TLS. Each
    side shows its certificate and takes only those of the cluster's authority. Names are not compared: slots are
    addressed by numbers, and the authority signs for the cluster alone."""
    files = _files()
    if not files.certificate or not files.ca:
        return None
    made = []
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = _loaded(ssl.SSLContext(protocol), files)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        made.append(context)
    return made[0], made[1]


def server_tls() -> ssl.SSLContext | None:
    """How NATS is spoken to at ``tls://…``: its certificate must fit its name. None: with the system's authorities and
    no certificate."""
    files = _files()
    if not files.ca:
        return None
    return _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files)


def redis_options() -> dict[str, Any]:
    """What redis-py takes for ``rediss://…``."""
    files = _files()
    given = {
        "ssl_ca_certs": files.ca,
        "ssl_certfile": files.certificate,
        "ssl_keyfile": files.key or files.certificate,
    }
    return {name: path for name, path in given.items() if path}


def _files() -> Files:
    return Files(*(os.environ.get(variable, "") for _, variable in _VARIABLES))


def _loaded(context: ssl.SSLContext, files: Files) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(files.ca)
        if files.certificate:
            context.load_cert_chain(files.certificate, files.key or None, password=lambda: "")
    except (OSError, ssl.SSLError) as err:
        raise SpecError(
            "the certificates of the cluster's processes cannot be used",
            expected="PEM files without a password",
            got=str(err),
            where=", ".join(filter(None, (files.certificate, files.key, files.ca))),
            remedy="see security.ssl.internal.certificate, security.ssl.internal.key, security.ssl.internal.ca",
        ) from None
    return context
