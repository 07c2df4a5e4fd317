"""What somebody may submit: kinds of programs, folders of code, names of secrets, sizes. Pure but for the resolution
of links in paths."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from penstock import config as conf
from penstock import secrets
from penstock.errors import SpecError
from penstock_services.common.http import ForbiddenError, TooLargeError
from penstock_services.common.security.limits import Limit
from penstock_services.dispatcher.folders import AllowedFolders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.jobgraph import JobGraph
    from penstock.messages.cluster import JobSpec
    from penstock_services.common.security.roles import Identity

_KINDS = ("sql", "python", "job_graph")


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


class Policy:
    """The rules of a cluster. Raises SpecError for a rule that cannot be understood."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config
        self._kinds = _parts(conf.SUBMISSION_KINDS.read(config))
        if not set(self._kinds) <= set(_KINDS):
            raise SpecError(
                "an unknown kind of program", expected=", ".join(_KINDS), got=", ".join(self._kinds),
                where=conf.SUBMISSION_KINDS.key,
            )  # fmt: skip
        self.folders = AllowedFolders(config)
        self._longest = conf.MAX_SQL_CHARS.read(config)
        per_minute = conf.SUBMISSIONS_PER_MINUTE.read(config)
        self.limit = Limit(per_minute / 60, per_minute)

    def secrets_of(self, who: Identity) -> tuple[str, ...]:
        """The patterns of the secrets that somebody may name."""
        for key in (f"user.{who.name}", f"role.{who.role.word}"):
            found = self._config.get(f"{conf.SECRETS_ALLOWED_PREFIX}{key}")
            if found is not None:
                return _parts(found)
        return _parts(conf.SECRETS_ALLOWED.read(self._config))

    def check_spec(self, spec: JobSpec) -> None:
        """Raises ForbiddenError for a kind of program or a folder that is not allowed, TooLargeError for a text that
        is too long."""
        kind = next(name for name in _KINDS if getattr(spec, name) is not None)
        if kind not in self._kinds:
            raise ForbiddenError(
                f"this cluster takes no specs with '{kind}'",
                expected=" or ".join(self._kinds),
                where=f"field '{kind}' ({conf.SUBMISSION_KINDS.key})",
            )
        length = len(spec.sql or spec.python or "")
        if length > self._longest:
            raise TooLargeError(
                "the program is too long",
                expected=f"at most {self._longest} characters",
                got=str(length),
                where=f"field '{kind}' ({conf.MAX_SQL_CHARS.key})",
            )
        self.folders.check_code(spec.files, "field 'files'")

    def check_graph(self, graph: JobGraph, who: Identity) -> None:
        """Raises ForbiddenError if the planned job names a secret, a folder of code or a folder of savepoints that is not
        allowed. A secret that pickled code looks up by itself is not seen."""
        self.folders.check_code(graph.python_path, "the job's Python path")
        self.folders.check_savepoints(conf.SAVEPOINT_DIR.read(graph.config), conf.SAVEPOINT_DIR.key)
        allowed = self.secrets_of(who)
        if "*" in allowed:
            return
        for name in sorted(secrets.names_in(msgspec.to_builtins(graph))):
            if not any(fnmatchcase(name, pattern) for pattern in allowed):
                raise ForbiddenError(
                    f"the job may not name the secret '{name}'",
                    expected=", ".join(allowed) or "no secret at all",
                    got=f"{who.name}, of the role {who.role.word}",
                    where=f"{conf.SECRETS_ALLOWED.key}, {conf.SECRETS_ALLOWED_PREFIX}…",
                    remedy="ask whoever runs the cluster to allow it",
                )
