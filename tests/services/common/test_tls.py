"""TLS of REST with real certificates: reload, client certificates, files that are refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl

import httpx
import pytest
import trustme

from penstock.errors import SpecError
from penstock_services.common.http_serving import bind, http_server
from penstock_services.common.security.front_door import front_door
from penstock_services.common.security.tls import server_tls
from tests.services.dispatcher.conftest import *  # noqa: F403  (the fixture front)


def written(authority: trustme.CA, path, *names: str, common_name: str | None = None):
    """A certificate with its key in one file."""
    authority.issue_cert(*names, common_name=common_name).private_key_and_cert_chain_pem.write_to_path(path)
    return str(path)


@contextlib.asynccontextmanager
async def served(front, config):
    door = front_door(config, "127.0.0.1", "k")
    listener = bind("127.0.0.1", 0, "h", "p")
    server = http_server(front.rest.app(door), door.tls)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    await running


def client_of(authority: trustme.CA, certificate: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if certificate:
        context.load_cert_chain(certificate)
    return context


async def test_certificates_are_read_again(front, tmp_path):
    old, new = trustme.CA(), trustme.CA()
    path = tmp_path / "server.pem"
    config = {"security.ssl.rest.certificate": written(old, path, "127.0.0.1")}
    async with served(front, config) as url, httpx.AsyncClient(verify=client_of(old)) as kept:
        assert (await kept.get(f"{url}/config")).status_code == 200
        written(new, path, "127.0.0.1")
        os.utime(path, ns=(1, 1))
        async with httpx.AsyncClient(verify=client_of(new)) as client:
            assert (await client.get(f"{url}/config")).status_code == 200
        assert (await kept.get(f"{url}/config")).status_code == 200, "an open connection goes on"
        async with httpx.AsyncClient(verify=client_of(old)) as client:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get(f"{url}/config")
        path.write_text("broken by an edit")
        async with httpx.AsyncClient(verify=client_of(new)) as client:
            assert (await client.get(f"{url}/config")).status_code == 200
        with pytest.raises(httpx.HTTPError):
            await httpx.AsyncClient().get(url.replace("https", "http"))


async def test_a_certificate_says_who_its_client_is(front, tmp_path):
    servers, clients, others = trustme.CA(), trustme.CA(), trustme.CA()
    clients.cert_pem.write_to_path(tmp_path / "ca.pem")
    config = {
        "security.ssl.rest.certificate": written(servers, tmp_path / "server.pem", "127.0.0.1"),
        "security.ssl.rest.client-ca": str(tmp_path / "ca.pem"),
        "security.rest.certificate-roles": "ci=submit,eye=read",
    }
    ci, eye, unknown = (
        written(clients, tmp_path / f"{name}.pem", f"{name}.example", common_name=name)
        for name in ("ci", "eye", "unknown")
    )
    forged = written(others, tmp_path / "forged.pem", "ci.example", common_name="ci")
    async with served(front, config) as url:
        for certificate, reading, submitting in (
            (ci, 200, 400),
            (eye, 200, 403),
            (unknown, 401, 401),
            ("", 401, 401),
        ):
            async with httpx.AsyncClient(verify=client_of(servers, certificate), base_url=url) as client:
                assert (await client.get("/config")).status_code == reading, certificate
                assert (await client.post("/jobs", content=b"{}")).status_code == submitting, certificate
        async with httpx.AsyncClient(verify=client_of(servers, forged), base_url=url) as client:
            with pytest.raises(httpx.TransportError):
                await client.get("/config")
    async with served(front, {**config, "security.ssl.rest.authentication-enabled": "true"}) as url:
        async with httpx.AsyncClient(verify=client_of(servers), base_url=url) as client:
            with pytest.raises(httpx.TransportError):
                await client.get("/config")
        async with httpx.AsyncClient(verify=client_of(servers, eye), base_url=url) as client:
            assert (await client.get("/config")).status_code == 200


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"security.ssl.rest.certificate": "/not/there"}, "cannot be used"),
        ({"security.ssl.rest.key": "k"}, "no certificate of the server"),
        ({"security.ssl.rest.authentication-enabled": "true"}, "no certificate of the server"),
    ],
)
def test_options_that_are_refused(config, message):
    with pytest.raises(SpecError, match=message):
        server_tls(config)


def test_roles_of_certificates_need_an_authority(tmp_path):
    certificate = written(trustme.CA(), tmp_path / "s.pem", "127.0.0.1")
    with pytest.raises(SpecError, match="nobody is named who signs them"):
        server_tls(
            {"security.ssl.rest.certificate": certificate, "security.rest.certificate-roles": "a=read"}
        )
    with pytest.raises(SpecError, match="no such role"):
        front_door({"security.rest.certificate-roles": "a=root"}, "127.0.0.1", "k")
