"""Secrets by reference: ``'password' = 'secret:NAME'`` in the options of a connector or catalog.

A plan, a savepoint, a log and a REST answer hold the reference. The value is looked up where an option is read, in
the process that opens the connection, and nowhere kept but in that process's memory. Where it is looked up, in this
order:

1. the folder that ``PENSTOCK_SECRETS_FOLDER`` names: a file for each secret, as Kubernetes and Docker mount them;
2. the file that ``PENSTOCK_SECRETS_FILE`` names: YAML or JSON, ``NAME: value``;
3. the environment: ``PENSTOCK_SECRET_NAME``, the prefix of ``PENSTOCK_SECRETS_PREFIX``.

Services set these variables from the keys ``secrets.*`` of their configuration (``announce``), so that slots and
helper processes inherit them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from penstock.config import SECRETS_FILE, SECRETS_FOLDER, SECRETS_PREFIX
from penstock.errors import SecretError
from penstock.redaction import HIDDEN, hide, sensitive

PREFIX = "secret:"
#: The whole value, or ``${secret:NAME}`` inside a longer one.
_WHOLE = re.compile(r"secret:(?P<name>.*)", re.DOTALL)
_INSIDE = re.compile(r"\$\{secret:(?P<name>[^}]*)\}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

FOLDER_VARIABLE = "PENSTOCK_SECRETS_FOLDER"
FILE_VARIABLE = "PENSTOCK_SECRETS_FILE"
PREFIX_VARIABLE = "PENSTOCK_SECRETS_PREFIX"
#: Patterns, separated by commas, of the names that this process may look up. Not set: any.
ALLOWED_VARIABLE = "PENSTOCK_SECRETS_ALLOWED"


def announce(config: Mapping[str, str]) -> None:
    """Let this process and those that it starts look secrets up where ``config`` says."""
    for option, variable in (
        (SECRETS_FOLDER, FOLDER_VARIABLE),
        (SECRETS_FILE, FILE_VARIABLE),
        (SECRETS_PREFIX, PREFIX_VARIABLE),
    ):
        if option.key in config:
            os.environ[variable] = option.read(config)


def refers(value: str) -> bool:
    """Whether an option's value names a secret."""
    return value.startswith(PREFIX) or _INSIDE.search(value) is not None


def names_in(tree: Any) -> set[str]:
    """The names of all secrets to which texts in ``tree`` (plain lists and mappings) refer, keys among them."""
    found: set[str] = set()
    left = [tree]
    while left:
        match left.pop():
            case str(text):
                if (whole := _WHOLE.fullmatch(text)) is not None:
                    found.add(whole["name"])
                found.update(match["name"] for match in _INSIDE.finditer(text))
            case dict(mapping):
                left += [*mapping, *mapping.values()]
            case list(items) | tuple(items):
                left += items
    return found


def resolve(value: str, *, where: str) -> str:
    """``value`` with its secrets in place of their names. ``where``: the option, for errors.

    Raises SecretError, which names the places that were looked at, for a secret that is in none.
    """
    whole = _WHOLE.fullmatch(value)
    if whole is not None:
        return _secret(whole["name"], where)
    return _INSIDE.sub(lambda found: _secret(found["name"], where), value)


def resolved(options: Mapping[str, str], *, where: str = "") -> Mapping[str, str]:
    """``options`` as a connector reads them: a secret is looked up whenever its option is read."""
    if isinstance(options, SecretOptions) or not any(refers(value) for value in options.values()):
        return options
    return SecretOptions(options, where)


def unresolved(options: Mapping[str, str]) -> Mapping[str, str]:
    """``options`` as they were written, for another process."""
    return options.written if isinstance(options, SecretOptions) else options


def check(options: Mapping[str, str], *, where: str = "") -> None:
    """SecretError if a secret that an option names is nowhere to be found."""
    refuse_hidden(options, where=where)
    for key, value in unresolved(options).items():
        if refers(value):
            resolve(value, where=_place(key, where))


def refuse_hidden(options: Mapping[str, str], *, where: str = "") -> None:
    """SecretError for a password that is the ``******`` of a statement that SHOW CREATE has printed."""
    for key, value in unresolved(options).items():
        if value == HIDDEN and sensitive(key):
            raise SecretError(
                f"option '{key}' holds '{HIDDEN}', which stands for a value that is not shown",
                expected="the value itself, or 'secret:NAME'",
                got=f"'{key}' = '{HIDDEN}'",
                where=where,
                remedy=f"write '{key}' = 'secret:NAME', and put NAME where secrets lie",
            )


class SecretOptions(Mapping[str, str]):
    """Options some of which name secrets. Its text and its representation have the names, not the values."""

    def __init__(self, written: Mapping[str, str], where: str = "") -> None:
        self.written = written
        self._where = where

    def __getitem__(self, key: str) -> str:
        return resolve(self.written[key], where=_place(key, self._where))

    def __contains__(self, key: object) -> bool:
        return key in self.written

    def __iter__(self) -> Iterator[str]:
        return iter(self.written)

    def __len__(self) -> int:
        return len(self.written)

    def __repr__(self) -> str:
        return f"SecretOptions({dict(self.written)!r})"

    def __reduce__(self) -> tuple[type[SecretOptions], tuple[dict[str, str], str]]:
        return SecretOptions, (dict(self.written), self._where)


def _place(key: str, where: str) -> str:
    return f"{where}, option '{key}'" if where else f"option '{key}'"


def _secret(name: str, where: str) -> str:
    if not _NAME.fullmatch(name):
        raise SecretError(
            "a reference to a secret has no proper name",
            expected="'secret:NAME' of letters, digits, '.', '_' and '-'",
            got=repr(f"secret:{name}"),
            where=where,
        )
    allowed = os.environ.get(ALLOWED_VARIABLE)
    if allowed is not None and not any(fnmatchcase(name, p.strip()) for p in allowed.split(",")):
        raise SecretError(
            f"the secret '{name}' may not be named here",
            expected=allowed or "no secret at all",
            where=where,
            remedy="ask whoever runs the cluster to allow it (secrets.allowed)",
        )
    looked: list[str] = []
    found = _in_folder(name, looked, where)
    if found is None:
        found = _in_file(name, looked, where)
    if found is None:
        found = _in_environment(name, looked)
    if found is None:
        raise SecretError(
            f"there is no secret '{name}'",
            expected=f"'{name}' in " + ", or ".join(looked),
            got="none of them has it in this process",
            where=where,
            remedy=f"put it there, or name the place: {SECRETS_FOLDER.key}, {SECRETS_FILE.key} in the services' "
            f"configuration, {FOLDER_VARIABLE}, {FILE_VARIABLE} in the environment of a program",
        )
    hide(found)
    return found


def _in_folder(name: str, looked: list[str], where: str) -> str | None:
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return None
    path = Path(folder) / name
    looked.append(f"the file {path}")
    try:
        # Editors and ``echo`` end a file with a line break; no password ends with one.
        return path.read_text().rstrip("\r\n")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as err:
        raise _unreadable(str(path), err, where) from None


def _in_file(name: str, looked: list[str], where: str) -> str | None:
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        return None
    looked.append(f"the file {path}")
    import yaml

    try:
        tree = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as err:
        raise _unreadable(path, err, where) from None
    except yaml.YAMLError:
        # Its words would show what stands in the file.
        raise SecretError(
            "the file of secrets is not YAML", expected="lines 'NAME: value'", where=path
        ) from None
    if not isinstance(tree, dict):
        raise SecretError(
            "the file of secrets holds no names",
            expected="lines 'NAME: value'",
            got=type(tree).__name__,
            where=path,
        )
    value = tree.get(name)
    if value is not None and not isinstance(value, str):
        raise SecretError(
            f"secret '{name}' is not a text",
            expected="a value in quotes: YAML reads 0123 and yes as something else",
            got=type(value).__name__,
            where=path,
        )
    return value


def _in_environment(name: str, looked: list[str]) -> str | None:
    variable = os.environ.get(PREFIX_VARIABLE, SECRETS_PREFIX.default) + re.sub(r"[.-]", "_", name)
    looked.append(f"the environment's {variable}")
    return os.environ.get(variable)


def _unreadable(path: str, err: Exception, where: str) -> SecretError:
    return SecretError(
        "a secret cannot be read",
        expected="a readable text file",
        got=f"{type(err).__name__}: {getattr(err, 'strerror', None) or 'not UTF-8'}",
        where=f"{where}: {path}",
    )
