"""JWTs of an OpenID Connect provider with real keys: what is accepted, what is refused, rotation."""

from __future__ import annotations

import json
import time

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from penstock.errors import SpecError
from penstock_services.common.http import UnauthorizedError
from penstock_services.common.security.oidc import LIFE_S, REFETCH_S, Oidc
from penstock_services.common.security.roles import Role

ISSUER = "https://login.example.com"
CONFIG = {
    "security.rest.oidc.issuer": ISSUER,
    "security.rest.oidc.audience": "penstock",
    "security.rest.oidc.roles": "devs=submit,all=read",
    "security.rest.oidc.roles-claim": "realm.roles",
}
OLD, NEW, OTHER = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(3))


class Provider:
    """Its keys by id; how often they were asked for; a clock."""

    def __init__(self) -> None:
        self.keys = {"old": OLD}
        self.asked = 0
        self.now_s = 1000.0
        self.oidc = Oidc(CONFIG, transport=httpx.MockTransport(self.answer), now_s=lambda: self.now_s)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("openid-configuration"):
            return httpx.Response(200, json={"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"})
        self.asked += 1
        keys = [
            {**json.loads(RSAAlgorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig", "alg": "RS256"}
            for kid, key in self.keys.items()
        ]
        return httpx.Response(200, json={"keys": keys})


def token(key=OLD, kid="old", algorithm="RS256", headers=None, **claims) -> str:
    now = int(time.time())
    body = {
        "iss": ISSUER, "aud": "penstock", "sub": "u1", "iat": now, "exp": now + 60,
        "realm": {"roles": ["all", "devs"]}, **claims,
    }  # fmt: skip
    body = {name: value for name, value in body.items() if value is not None}
    return jwt.encode(body, key, algorithm=algorithm, headers={"kid": kid, **(headers or {})})


async def test_who_it_is():
    oidc = Provider().oidc
    found = await oidc.verify(token(sub="ada", preferred_username="admin"))
    assert (found.name, found.role, found.via) == ("ada", Role.SUBMIT, "oidc")
    assert (await oidc.verify(token(realm={"roles": "all other"}))).role is Role.READ
    assert (await oidc.verify(token())).name == "u1"
    assert await oidc.verify("pst_no_jwt") is None
    assert (await oidc.verify(token(exp=int(time.time()) - 10))).name == "u1", "within the clocks' difference"


NOW = int(time.time())
PUBLIC = OLD.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def confused() -> str:
    """HS256 with the public key as the password, which PyJWT itself refuses to make."""
    import base64
    import hashlib
    import hmac

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    _, body, _ = token().split(".")
    text = f"{part(json.dumps({'alg': 'HS256', 'kid': 'old', 'typ': 'JWT'}).encode())}.{body}"
    return f"{text}.{part(hmac.new(PUBLIC, text.encode(), hashlib.sha256).digest())}"


@pytest.mark.parametrize(
    "bad",
    [
        token(exp=NOW - 3600),
        token(nbf=NOW + 3600),
        token(iat=NOW + 3600),
        token(iss="https://evil.example.com"),
        token(aud="another"),
        token(exp=None),
        token(sub=None),
        token(aud=None),
        token(realm={"roles": ["nobody"]}),
        token(realm=5),
        token(key=OTHER),
        token(key=OTHER, headers={"jwk": json.loads(RSAAlgorithm.to_jwk(OTHER.public_key()))}),
        token(kid="unknown"),
        token(algorithm="RS512"),
        token(key=None, algorithm="none"),
        confused(),
        token()[:-4] + "AAAA",
        "a.b.c",
        "..",
        "é.é.é",
    ],
)
async def test_tokens_that_are_refused(bad):
    with pytest.raises(UnauthorizedError):
        await Provider().oidc.verify(bad)


async def test_a_key_without_a_name_is_taken_if_it_is_the_only_one():
    provider = Provider()
    nameless = jwt.encode(jwt.decode(token(), options={"verify_signature": False}), OLD, algorithm="RS256")
    assert "kid" not in jwt.get_unverified_header(nameless)
    assert (await provider.oidc.verify(nameless)).name == "u1"
    two = Provider()
    two.keys["new"] = NEW
    with pytest.raises(UnauthorizedError, match="not valid"):
        await two.oidc.verify(nameless)


async def test_keys_rotate():
    provider = Provider()
    await provider.oidc.verify(token())
    provider.keys = {"new": NEW}
    for _ in range(5):  # a stranger cannot make us ask again and again
        with pytest.raises(UnauthorizedError):
            await provider.oidc.verify(token(NEW, "new"))
    assert provider.asked == 1
    provider.now_s += REFETCH_S + 1
    assert (await provider.oidc.verify(token(NEW, "new"))).name == "u1"
    with pytest.raises(UnauthorizedError):
        await provider.oidc.verify(token())
    provider.keys = {"third": OTHER}
    assert (await provider.oidc.verify(token(NEW, "new"))).name == "u1"
    provider.now_s += LIFE_S + 1
    with pytest.raises(UnauthorizedError):
        await provider.oidc.verify(token(NEW, "new"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"security.rest.oidc.audience": ""}, "in part"),
        ({"security.rest.oidc.roles": ""}, "in part"),
        ({"security.rest.oidc.roles": "a=root"}, "no such role"),
        ({"security.rest.oidc.algorithms": "HS256"}, "cannot be checked"),
        ({"security.rest.oidc.algorithms": "none"}, "cannot be checked"),
    ],
)
def test_options_that_are_refused(changed, message):
    with pytest.raises(SpecError, match=message):
        Oidc({**CONFIG, **changed})
