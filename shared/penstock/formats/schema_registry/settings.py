"""How a schema registry is reached: Flink's options of ``avro-confluent`` and the properties behind them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from penstock.config import parse_bool
from penstock.errors import ConnectorError, nearest
from penstock.options import Option, boolean, choice, text

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Properties of the registry's own client: those that have no option of their own.
_PROPERTIES = {
    "basic.auth.credentials.source": "basic-auth.credentials-source",
    "basic.auth.user.info": "basic-auth.user-info",
    "bearer.auth.credentials.source": "bearer-auth.credentials-source",
    "bearer.auth.token": "bearer-auth.token",
    "schema.registry.ssl.truststore.location": "ssl.truststore.location",
    "schema.registry.ssl.truststore.password": "ssl.truststore.password",
    "schema.registry.ssl.keystore.location": "ssl.keystore.location",
    "schema.registry.ssl.keystore.password": "ssl.keystore.password",
    "auto.register.schemas": "auto.register.schemas",
}
_NORMALIZE = "normalize.schemas"
_PEM = b"-----BEGIN "


def registry_options(name: str) -> list[Option]:
    """The options of the format ``name`` that say how its schema registry is reached."""
    return [
        Option(f"{name}.url", text, None, "Of the schema registry; several with ',' between.", required=True),
        Option(f"{name}.subject", text, None, "Under which the sink registers its schema; Kafka: <topic>-value or <topic>-key."),
        Option(f"{name}.auto.register.schemas", boolean, True, "false: the sink looks its schema up, and never registers one."),
        Option(f"{name}.basic-auth.credentials-source", choice("URL", "USER_INFO", "SASL_INHERIT"), None, "Where user and password stand: in the URL, or in basic-auth.user-info."),
        Option(f"{name}.basic-auth.user-info", text, None, "user:password."),
        Option(f"{name}.bearer-auth.credentials-source", choice("STATIC_TOKEN"), None, "Where the token stands: in bearer-auth.token."),
        Option(f"{name}.bearer-auth.token", text, None, "The token itself."),
        Option(f"{name}.ssl.truststore.location", text, None, "A PEM file of the authorities to trust."),
        Option(f"{name}.ssl.truststore.password", text, None, "Accepted from Flink; a PEM file of certificates has none."),
        Option(f"{name}.ssl.keystore.location", text, None, "A PEM file of the client's certificate and key."),
        Option(f"{name}.ssl.keystore.password", text, None, "Of the key in it."),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where a registry is and who asks.

    Args:
        urls: Base URLs, without credentials and without a slash at the end.
        basic: User and password.
        token: Sent as a bearer token.
        truststore: A PEM file.
        keystore: A PEM file.
        keystore_password: Of the key in it.
        normalize: The registry takes schemas that differ in layout only for one.
        register: A sink registers its schema; else it only looks it up.
    """

    urls: tuple[str, ...]
    basic: tuple[str, str] | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    truststore: str | None = None
    keystore: str | None = None
    keystore_password: str | None = field(default=None, repr=False)
    normalize: bool = False
    register: bool = True

    def tls(self) -> ssl.SSLContext:
        """How certificates are checked, and which one is shown. ConnectorError for a file that is none."""
        context = ssl.create_default_context()
        if self.truststore is not None:
            _check_pem(self.truststore, "truststore")
            context = ssl.create_default_context(cafile=self.truststore)
        if self.keystore is not None:
            _check_pem(self.keystore, "keystore")
            try:
                context.load_cert_chain(self.keystore, password=self.keystore_password or "")
            except ssl.SSLError as err:
                raise ConnectorError(
                    f"the key of the keystore '{self.keystore}' cannot be read",
                    expected="a PEM file of a certificate and its key, and the key's password",
                    got=f"{type(err).__name__} {err}",
                    remedy="correct 'ssl.keystore.password'",
                ) from None
        return context


def _check_pem(path: str, what: str) -> None:
    try:
        found = Path(path).read_bytes()
    except OSError as err:
        raise ConnectorError(
            f"the {what} of the schema registry cannot be read",
            expected="a PEM file on every machine that plans or runs the job",
            got=f"{type(err).__name__}: {err}",
            remedy=f"correct 'ssl.{what}.location'",
        ) from None
    if _PEM not in found:
        raise ConnectorError(
            f"the {what} '{path}' is no PEM file",
            expected="a PEM file (-----BEGIN CERTIFICATE-----)",
            got=f"{len(found)} bytes without a certificate",
            remedy="convert it: keytool -importkeystore … -deststoretype PKCS12, then openssl pkcs12 -nodes",
        )


def read_settings(name: str, read: Mapping[str, Any], options: Mapping[str, str]) -> RegistrySettings:
    """The registry of a table.

    Args:
        name: The format, which is the options' prefix.
        read: The options, typed.
        options: The table's options, among them ``<name>.properties.…``.

    Raises:
        ConnectorError: A property is unknown, or credentials are missing or said twice.
    """
    where = f"format '{name}'"
    found: dict[str, Any] = {}
    prefix = f"{name}.properties."
    for key in (k for k in options if k.startswith(prefix)):
        word = key.removeprefix(prefix)
        if word not in _PROPERTIES and word != _NORMALIZE:
            raise ConnectorError(
                f"option '{key}' has no effect",
                expected="one of " + ", ".join(sorted([*_PROPERTIES, _NORMALIZE])),
                got=f"'{key}'",
                where=where,
                remedy=nearest(word, [*_PROPERTIES, _NORMALIZE]) or "remove it",
            )
        found[_PROPERTIES.get(word, word)] = options[key]
    # Flink's options come before the properties behind them.
    given = found | {
        k.removeprefix(f"{name}."): v
        for k, v in read.items()
        if v is not None and (k in options or k.removeprefix(f"{name}.") not in found)
    }
    urls, basic = _urls(given["url"], where)
    source = given.get("basic-auth.credentials-source")
    user_info = given.get("basic-auth.user-info")
    if source == "SASL_INHERIT":
        raise _credentials(
            "the user of Kafka is not passed on to the registry", "USER_INFO or URL", source, where
        )
    if (source == "USER_INFO" or (source is None and user_info)) and basic is None:
        if not user_info or ":" not in user_info:
            got = "no such option" if not user_info else "a text without ':'"
            raise _credentials(
                f"'{name}.basic-auth.user-info' is missing or malformed", "user:password", got, where
            )
        user, _, password = user_info.partition(":")
        basic = user, password
    elif source == "URL" and basic is None:
        raise _credentials(
            "the registry's URL holds no user", "http://user:password@host:8081", "none", where
        )
    token = given.get("bearer-auth.token")
    if given.get("bearer-auth.credentials-source") and not token:
        raise _credentials(f"'{name}.bearer-auth.token' is missing", "a token", "no such option", where)
    if token and basic:
        raise _credentials("there are two credentials", "a user and password, or a token", "both", where)
    return RegistrySettings(
        urls, basic, token, given.get("ssl.truststore.location"), given.get("ssl.keystore.location"),
        given.get("ssl.keystore.password"), parse_bool(str(given.get(_NORMALIZE, "false"))),
        parse_bool(str(given["auto.register.schemas"])),
    )  # fmt: skip


def _credentials(message: str, expected: str, got: str, where: str) -> ConnectorError:
    return ConnectorError(message, expected=expected, got=got, where=where, remedy="correct the credentials")


def _urls(given: str, where: str) -> tuple[tuple[str, ...], tuple[str, str] | None]:
    """The base URLs without credentials, and the credentials that stand in them."""
    urls, basic = [], None
    for one in (part.strip() for part in given.split(",")):
        parts = urlsplit(one)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConnectorError(
                "the URL of the schema registry is malformed",
                expected="http://host:8081 or https://host:8081/path",
                got=repr(one),
                where=where,
            )
        if parts.username is not None:
            basic = unquote(parts.username), unquote(parts.password or "")
        host = parts.netloc.rpartition("@")[2]
        urls.append(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")))
    return tuple(urls), basic
