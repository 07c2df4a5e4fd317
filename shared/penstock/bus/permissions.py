"""What each service may say and hear on NATS, as a configuration of nats-server.

``python -m penstock.bus.permissions [CLUSTER]`` prints it; ``deploy/nats-permissions.conf`` is its text for the cluster
``penstock``. Only those who may submit can publish on ``<cluster>.jobs.*``, and no task manager can.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from penstock.bus.subjects import Subjects

#: Where answers to the requests of a submitter arrive, who may use any client of NATS.
_INBOX = "_INBOX.>"


@dataclass(frozen=True)
class Permissions:
    """Subjects that a user may publish on and subscribe to. Whoever serves requests may answer them, too."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def inbox_prefix(role: str) -> str:
    """The first part of the subjects on which answers to requests of a service arrive. No other service may hear them."""
    return f"_INBOX_{role}"


def _answers(role: str) -> str:
    return f"{inbox_prefix(role)}.>"


def permissions(cluster: str) -> dict[str, Permissions]:
    """User → permissions. ``submitter``: a client that submits, lists and cancels jobs on the bus."""
    c = Subjects(cluster).cluster
    events = Subjects(cluster).all_job_events
    to_master, to_manager = f"{c}.job.*.*", f"{c}.taskmanager.*.*"
    who, here, to_resources = f"{c}.processes.who", f"{c}.processes.here", f"{c}.resourcemanager.*"
    return {
        "dispatcher": Permissions(
            (to_master, to_manager, to_resources, f"{c}.jobmanager.run", who, here),
            (f"{c}.jobs.*", events, who, here, _answers("dispatcher")),
        ),
        "jobmanager": Permissions(
            (to_master, to_manager, to_resources, f"{c}.taskmanagers.*", f"{c}.events.>", events, here),
            (to_master, f"{c}.jobmanager.run", who, _answers("jobmanager")),
        ),
        "resourcemanager": Permissions(
            (to_master, to_manager, here), (to_resources, who, _answers("resourcemanager"))
        ),
        "taskmanager": Permissions(
            (to_master, to_resources, here), (to_manager, f"{c}.taskmanagers.*", who, _answers("taskmanager"))
        ),
        "submitter": Permissions((f"{c}.jobs.*",), (events, _INBOX)),
    }


def users(cluster: str) -> str:
    """The block ``authorization`` of a nats-server's configuration. Passwords come from its environment:
    ``DISPATCHER_PASSWORD`` and so on."""
    lines = ["authorization {", "  users: ["]
    for user, allowed in permissions(cluster).items():
        lines += [
            "    {",
            f"      user: {user}, password: ${user.upper()}_PASSWORD",
            "      permissions: {",
            f"        publish: {{ allow: [{_quoted(allowed.publish)}] }}",
            f"        subscribe: {{ allow: [{_quoted(allowed.subscribe)}] }}",
            "        allow_responses: true",
            "      }",
            "    }",
        ]
    return "\n".join([*lines, "  ]", "}", ""])


def _quoted(subjects: tuple[str, ...]) -> str:
    return ", ".join(f'"{subject}"' for subject in subjects)


if __name__ == "__main__":
    sys.stdout.write(
        "# Made by `python -m penstock.bus.permissions CLUSTER`; passwords come from the server's environment.\n"
        "# include it in nats-server's configuration, and see docs/securing.md.\n"
        + users(sys.argv[1] if len(sys.argv) > 1 else "penstock")
    )
