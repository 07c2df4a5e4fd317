"""Roles and identities. Pure.

The roles are ordered: whoever has one may do all that the lower ones may::

    read     sees jobs, plans, metrics, logs and dead letters
    operate  cancels and stops jobs, makes and deletes checkpoints and savepoints
    submit   runs jobs: that is, runs code with the rights of the cluster's processes
    admin    changes the cluster itself
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from penstock.errors import SpecError


class Role(enum.IntEnum):
    """What somebody may do; see the module."""

    READ = 1
    OPERATE = 2
    SUBMIT = 3
    ADMIN = 4

    @property
    def word(self) -> str:
        """As configuration, documents and errors spell it."""
        return self.name.lower()


WORDS = tuple(role.word for role in Role)


def role_of(text: str, where: str) -> Role:
    """The role of this name. Raises SpecError, with the place ``where``, if there is none."""
    if text not in WORDS:
        raise SpecError("no such role", expected=", ".join(WORDS), got=repr(text)[:80], where=where)
    return Role[text.upper()]


@dataclass(frozen=True)
class Identity:
    """Who sent a request. ``via``: how that was proven: token, session, oidc, certificate, bus, or open (no
    authentication is configured). ``expires_s``: Unix time at which the proof ends; None: never."""

    name: str
    role: Role
    via: str
    expires_s: float | None = None


#: Everybody, where no authentication is configured.
ANYONE = Identity("anyone", Role.ADMIN, "open")
#: Whoever may publish submissions on the bus. NATS' own permissions decide who that is.
ON_THE_BUS = Identity("bus", Role.SUBMIT, "bus")
