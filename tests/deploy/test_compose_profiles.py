"""compose.yaml's servers of connectors: each has a profile, and none starts without it. Needs no Docker engine."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml

from tests.deploy.clusters import INFRASTRUCTURE, ROOT, SERVICES, compose_command

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVERS = {name: service for name, service in COMPOSE["services"].items() if "profiles" in service}


def test_without_a_profile_only_the_cluster_starts() -> None:
    assert set(COMPOSE["services"]) - set(SERVERS) == {*SERVICES, *INFRASTRUCTURE}
    wanted = {name for service in COMPOSE["services"].values() for name in service.get("depends_on", ())}
    assert not wanted & set(SERVERS)


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_a_server_is_pinned_private_and_documented(name: str) -> None:
    service = SERVERS[name]
    assert service["profiles"] == [name]
    assert re.search(r":v?\d+(\.\d+)*(-[a-z]+)?$", service["image"]), "no version of the image"
    assert service["restart"] == "unless-stopped"
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    for volume in service.get("volumes", ()):
        assert volume.split(":")[0] in COMPOSE["volumes"]
    rows = (ROOT / "docs" / "deployment.md").read_text().splitlines()
    [row] = [line for line in rows if line.startswith(f"| `{name}` |")]
    assert service["image"] in row
    for port in service["ports"]:
        assert port.split(":")[1] in row, "a port of this machine that the page does not name"


def test_ports_of_this_machine_are_given_once() -> None:
    ports = [port.split(":")[1] for service in SERVERS.values() for port in service["ports"]]
    assert len(ports) == len(set(ports))


def test_compose_reads_the_file_with_all_profiles() -> None:
    command = compose_command()
    if command is None:
        pytest.skip("neither 'docker compose' nor docker-compose is installed")
    profiles = [word for name in SERVERS for word in ("--profile", name)]
    done = subprocess.run(
        [*command, "-f", str(ROOT / "compose.yaml"), *profiles, "config", "--services"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert set(SERVERS) <= set(done.stdout.split())
