"""The health check of a container: the process of that role, on that host, must answer."""

import pytest

from penstock.bus.nats import NatsTransport
from penstock.bus.subjects import Subjects
from penstock.errors import BrokerError, ExternalError
from penstock_services.common import alive
from penstock_services.common.presence import announce

pytestmark = pytest.mark.cluster


async def test_only_the_role_on_this_host_counts(nats_url, monkeypatch):
    monkeypatch.setattr("penstock_services.common.presence.socket.gethostname", lambda: "here")
    transport = await NatsTransport.connect(nats_url)
    try:
        await announce(transport, Subjects("alive-test"), "taskmanager", "taskmanager-1")
        found = await alive.check("taskmanager", nats_url, "alive-test", "here", timeout_s=60)
        assert found == "taskmanager-1"
        # To connect may take its time: so long only an answer is waited for.
        connect = alive.NatsTransport.connect
        monkeypatch.setattr(
            alive.NatsTransport,
            "connect",
            lambda url, **options: connect(url, **options | {"deadline_s": 60}),
        )
        for role, host in (("jobmanager", "here"), ("taskmanager", "there")):
            with pytest.raises(ExternalError, match=f"no {role} on {host} answers"):
                await alive.check(role, nats_url, "alive-test", host, timeout_s=0.4)
    finally:
        await transport.close()


async def test_without_a_broker_it_says_so(unused_tcp_port):
    with pytest.raises(BrokerError, match="cannot connect"):
        await alive.check("taskmanager", f"nats://127.0.0.1:{unused_tcp_port}", "x", "here", timeout_s=0.4)


def test_exit_codes(capsys):
    assert alive.main([]) == 2
    assert alive.main(["taskmanager", "-D", "nonsense"]) == 1
    assert "malformed -D" in capsys.readouterr().err
