"""Expressions of ``faker``: text with ``#{provider.method 'argument', …}`` in it, with Datafaker's method
names.

Datafaker is a Java library; Penstock makes the values of its common methods with Python's Faker. An
expression may also name a method of Python's Faker (``#{license_plate}``).
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from typing import TYPE_CHECKING, Any

from penstock.errors import ConnectorError, nearest

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from faker import Faker

#: ``#{…}`` with quoted arguments, which may contain a brace.
_CALL = re.compile(r"#\{\s*(?P<name>[A-Za-z_][\w.]*)\s*(?P<arguments>(?:[^}']|'[^']*')*)\}")
_ARGUMENT = re.compile(r"'([^']*)'")
_UNITS = {
    "NANOSECONDS": 1e-9, "MICROSECONDS": 1e-6, "MILLISECONDS": 1e-3, "SECONDS": 1, "MINUTES": 60, "HOURS": 3600,
    "DAYS": 86_400,
}  # fmt: skip

#: Datafaker's method, in lower case, → a method of Python's Faker.
_SAME = {
    "name.fullname": "name", "name.name": "name", "name.firstname": "first_name", "name.lastname": "last_name",
    "name.prefix": "prefix", "name.suffix": "suffix", "name.title": "job", "name.username": "user_name",
    "address.fulladdress": "address", "address.streetaddress": "street_address", "address.streetname": "street_name",
    "address.buildingnumber": "building_number", "address.city": "city", "address.cityname": "city",
    "address.zipcode": "postcode", "address.postcode": "postcode", "address.state": "state",
    "address.stateabbr": "state_abbr", "address.country": "country", "address.countrycode": "country_code",
    "address.latitude": "latitude", "address.longitude": "longitude", "address.timezone": "timezone",
    "internet.emailaddress": "email", "internet.safeemailaddress": "safe_email", "internet.domainname": "domain_name",
    "internet.url": "url", "internet.ipv4address": "ipv4", "internet.privateipv4address": "ipv4_private",
    "internet.publicipv4address": "ipv4_public", "internet.ipv6address": "ipv6", "internet.macaddress": "mac_address",
    "internet.uuid": "uuid4", "internet.useragent": "user_agent", "internet.useragentany": "user_agent",
    "internet.password": "password", "internet.slug": "slug", "internet.image": "image_url",
    "company.name": "company", "company.suffix": "company_suffix", "company.catchphrase": "catch_phrase",
    "company.bs": "bs", "company.profession": "job", "job.title": "job",
    "phonenumber.phonenumber": "phone_number", "phonenumber.cellphone": "phone_number",
    "lorem.word": "word", "lorem.sentence": "sentence", "lorem.paragraph": "paragraph", "lorem.characters": "pystr",
    "finance.creditcard": "credit_card_number", "finance.iban": "iban", "finance.bic": "swift",
    "currency.code": "currency_code", "currency.name": "currency_name", "money.currencycode": "currency_code",
    "color.name": "color_name", "color.hex": "hex_color", "commerce.color": "color_name",
    "file.filename": "file_name", "file.extension": "file_extension", "file.mimetype": "mime_type",
    "code.isbn10": "isbn10", "code.isbn13": "isbn13", "code.ean8": "ean8", "code.ean13": "ean13",
    "hashing.md5": "md5", "hashing.sha1": "sha1", "hashing.sha256": "sha256",
    "bool.bool": "pybool", "idnumber.ssnvalid": "ssn",
}  # fmt: skip


@functools.lru_cache(maxsize=8)
def faker_of(locale: str, owner: str) -> Faker:
    """The library, for one language and country. ConnectorError for a locale that it does not have."""
    from faker import Faker
    from faker.config import AVAILABLE_LOCALES

    name = locale.replace("-", "_")
    if name not in AVAILABLE_LOCALES:
        raise ConnectorError(
            f"option 'locale': there is no '{locale}'",
            expected="a language and country such as en_US, de_DE, ja_JP",
            got=repr(locale),
            where=owner,
            remedy=nearest(name, sorted(AVAILABLE_LOCALES)),
        )
    # Values without weights are made in a fraction of the time.
    return Faker(name, use_weighting=False)


class Expression:
    """An expression. ``make(source)`` makes its value from the random numbers of ``source``: a text, or, if
    the expression is a single call, the result of that call."""

    def __init__(self, source: str, faker: Faker, where: str) -> None:
        self._faker = faker
        self._where = where
        self._parts: list[str | Callable[[random.Random], Any]] = []
        at = 0
        for found in _CALL.finditer(source):
            if found.start() > at:
                self._parts.append(self._plain(source[at : found.start()]))
            self._parts.append(self._call(found["name"], _ARGUMENT.findall(found["arguments"])))
            at = found.end()
        if at < len(source):
            self._parts.append(self._plain(source[at:]))

    def make(self, source: random.Random) -> Any:
        """A value, from the random numbers of ``source``."""
        made = [part if isinstance(part, str) else part(source) for part in self._parts]
        return made[0] if len(made) == 1 else "".join(map(str, made))

    def _plain(self, text: str) -> str:
        if "#{" in text:
            raise self._error(
                "an expression has no end, or a wrong argument", "#{provider.method 'argument', …}", text
            )
        return text

    def _call(self, name: str, arguments: Sequence[str]) -> Callable[[random.Random], Any]:
        key = name.lower().replace("_", "")
        try:
            ours = _OURS.get(key)
            if ours is not None:
                return ours(*arguments)
        except (TypeError, ValueError, KeyError) as err:
            raise self._error(
                f"the arguments of '{name}' do not fit", "Datafaker's arguments", str(err)
            ) from None
        generator: Any = self._faker.factories[0]
        method = _SAME.get(key) or (name if "." not in name else None)
        if method is None or method.startswith("_") or not callable(getattr(generator, method, None)):
            known = sorted({*_SAME, *_OURS})
            raise self._error(
                f"faker has no '{name}'", "one of " + ", ".join(known), name, nearest(key, known)
            )
        if arguments and method not in ("numerify", "bothify", "lexify"):
            raise self._error(f"'{name}' takes no arguments here", f"#{{{name}}}", ", ".join(arguments))
        call = getattr(generator, method)

        def made(source: random.Random) -> Any:
            generator.random = source
            return call(*arguments)

        return made

    def _error(self, what: str, expected: str, got: str, remedy: str | None = None) -> ConnectorError:
        return ConnectorError(
            what, expected=expected, got=got, where=self._where, remedy=remedy or "correct the expression"
        )


def _between(low: str, high: str) -> Callable[[random.Random], int]:
    first, last = int(low), int(high)  # the last number is excluded, as in Datafaker
    if last <= first:
        raise ValueError(f"{high} is not above {low}")
    return lambda source: source.randrange(first, last)


def _double(digits: str, low: str, high: str) -> Callable[[random.Random], float]:
    places, first, last = int(digits), float(low), float(high)
    return lambda source: round(source.uniform(first, last), places)


def _digits(count: str = "1") -> Callable[[random.Random], str]:
    length = int(count)
    return lambda source: "".join(source.choice("0123456789") for _ in range(length))


def _option(*choices: str) -> Callable[[random.Random], str]:
    if not choices:
        raise ValueError("no choices")
    return lambda source: source.choice(choices)


def _past(most: str, unit: str, least: str = "0") -> Callable[[random.Random], dt.datetime]:
    longest, shortest = _span(most, unit), _span(least, unit)
    return lambda source: _now() - dt.timedelta(seconds=source.uniform(shortest, longest))


def _future(most: str, unit: str) -> Callable[[random.Random], dt.datetime]:
    longest = _span(most, unit)
    return lambda source: _now() + dt.timedelta(seconds=source.uniform(0, longest))


def _birthday(least: str = "18", most: str = "65") -> Callable[[random.Random], dt.date]:
    first, last = int(least) * 365, int(most) * 365
    return lambda source: (_now() - dt.timedelta(days=source.randint(first, last))).date()


def _span(count: str, unit: str) -> float:
    return int(count) * _UNITS[unit.upper()]


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(tzinfo=None)


def _regexify(pattern: str) -> Callable[[random.Random], str]:
    from penstock.connectors.faker.regexify import regexify

    return regexify(pattern)


#: Methods that Python's Faker lacks, or has with other arguments.
_OURS: dict[str, Callable[..., Callable[[random.Random], Any]]] = {
    "number.numberbetween": _between,
    "number.randomdouble": _double,
    "number.randomdigit": _digits,
    "number.digit": _digits,
    "number.digits": _digits,
    "options.option": _option,
    "date.past": _past,
    "date.future": _future,
    "date.birthday": _birthday,
    "regexify": _regexify,
}
