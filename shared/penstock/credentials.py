"""What a client of a cluster's REST API proves itself with: a bearer token, and its certificates.

Looked for in this order: ``PENSTOCK_TOKEN``; the file that ``PENSTOCK_TOKEN_FILE`` names; the profile, a YAML file
that nobody else may read (``PENSTOCK_PROFILE``, else ``~/.config/penstock/profile.yaml``)::

    clusters:
      https://penstock.example.com:8081:
        token: …
        ca: /etc/ssl/penstock-ca.pem          # who signed the server's certificate; default: the system's authorities
        certificate: /home/me/penstock.pem    # of the client, where the cluster asks for one
        key: /home/me/penstock.key

``PENSTOCK_CA_FILE``, ``PENSTOCK_CLIENT_CERTIFICATE`` and ``PENSTOCK_CLIENT_KEY`` name the files without a profile.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import SpecError
from penstock.redaction import hide

if TYPE_CHECKING:
    import ssl

TOKEN_VARIABLE, TOKEN_FILE_VARIABLE = "PENSTOCK_TOKEN", "PENSTOCK_TOKEN_FILE"
PROFILE_VARIABLE = "PENSTOCK_PROFILE"
CA_VARIABLE = "PENSTOCK_CA_FILE"
CERTIFICATE_VARIABLE, KEY_VARIABLE = "PENSTOCK_CLIENT_CERTIFICATE", "PENSTOCK_CLIENT_KEY"
PROFILE = "~/.config/penstock/profile.yaml"
_FIELDS = ("token", "ca", "certificate", "key")


@dataclass(frozen=True, repr=False)
class Credentials:
    """A client's proofs. Empty: it has none of this kind."""

    token: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def headers(self) -> dict[str, str]:
        """The headers of a request."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    def tls(self, url: str) -> ssl.SSLContext | bool:
        """What httpx takes as ``verify``. Raises SpecError if a file cannot be used."""
        if url.startswith("http://"):
            return (
                False  # reading the certificates of all authorities takes a third of a short command's time
            )
        if not (self.ca or self.certificate):
            return True
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key or None)
        except (OSError, ssl.SSLError) as err:
            raise SpecError(
                "the certificates of this client cannot be used",
                expected="PEM files",
                got=str(err),
                where=", ".join(filter(None, (self.ca, self.certificate, self.key))),
            ) from None
        return context


def credentials(url: str) -> Credentials:
    """What to use for the cluster at ``url``. Raises SpecError if a file cannot be read, or if others may read the
    profile."""
    known = _of_profile(url)
    token = os.environ.get(TOKEN_VARIABLE) or _of_file() or known.get("token", "")
    hide(token)
    return Credentials(
        token=token,
        ca=os.environ.get(CA_VARIABLE) or known.get("ca", ""),
        certificate=os.environ.get(CERTIFICATE_VARIABLE) or known.get("certificate", ""),
        key=os.environ.get(KEY_VARIABLE) or known.get("key", ""),
    )


def _of_file() -> str:
    path = os.environ.get(TOKEN_FILE_VARIABLE)
    if not path:
        return ""
    token = _text(Path(path), "the file of the token", TOKEN_FILE_VARIABLE).strip()
    if not token:
        raise SpecError("the file of the token is empty", where=f"{TOKEN_FILE_VARIABLE}: {path}")
    return token


def _of_profile(url: str) -> dict[str, str]:
    chosen = os.environ.get(PROFILE_VARIABLE)
    path = Path(chosen or PROFILE).expanduser()
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if chosen:
            raise SpecError("there is no such profile", where=f"{PROFILE_VARIABLE}: {path}") from None
        return {}
    except OSError:
        return {}  # a home folder that this process may not see holds no profile of its own
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SpecError(
            "others may read the profile with your tokens",
            expected="a file that you alone may read",
            got=f"mode {stat.S_IMODE(mode):o}",
            where=str(path),
            remedy=f"chmod 600 {path}",
        )
    import yaml

    form = "clusters: {URL: {token: …}}, as docs/securing.md shows"
    try:
        tree: Any = yaml.safe_load(_text(path, "the profile", str(path))) or {}
    except yaml.YAMLError:
        # Its words would show what stands in the file.
        raise SpecError("the profile is not YAML", expected=form, where=str(path)) from None
    clusters = tree.get("clusters", {}) if isinstance(tree, dict) else None
    if not isinstance(clusters, dict):
        raise SpecError("the profile cannot be understood", expected=form, where=str(path))
    found: Any = next((v for k, v in clusters.items() if str(k).rstrip("/") == url.rstrip("/")), {})
    if not isinstance(found, dict) or not found.keys() <= set(_FIELDS):
        raise SpecError(
            "the profile's entry cannot be understood",
            expected=", ".join(_FIELDS),
            got=", ".join(map(str, found)) if isinstance(found, dict) else type(found).__name__,
            where=f"{path}, {url}",
        )
    return {key: str(value) for key, value in found.items()}


def _text(path: Path, what: str, where: str) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as err:
        got = str(getattr(err, "strerror", None) or "not UTF-8")
        raise SpecError(f"{what} cannot be read", got=got, where=f"{where}: {path}") from None
