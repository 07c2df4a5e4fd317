"""The description of the REST API, and its page."""

from __future__ import annotations

import re
from pathlib import Path

from penstock_services.dispatcher.openapi import page
from penstock_services.dispatcher.rest import described

PAGE = Path(__file__).parents[3] / "docs" / "rest-endpoints.md"


def test_the_page_is_what_the_code_says() -> None:
    command = "python -m penstock_services.dispatcher.rest > docs/rest-endpoints.md"
    assert PAGE.read_text() == page(described()), f"run: {command}"


def test_no_endpoint_hides_another() -> None:
    seen: list[tuple[str, str]] = []
    for endpoint in described():
        pattern = re.sub("{[^}]+}", "[^/]+", endpoint.path)
        hidden = [
            path for method, path in seen if method == endpoint.method and re.fullmatch(path, endpoint.path)
        ]
        assert not hidden, f"{hidden} is tried before {endpoint.path}"
        seen.append((endpoint.method, pattern))


async def test_the_document_has_every_endpoint_and_every_shape(front) -> None:
    found = (await front.http.get("/openapi.json")).json()
    asked = {(method.upper(), path) for path, methods in found["paths"].items() for method in methods}
    assert asked == {(e.method, e.path) for e in described()}
    referred = set(re.findall(r"#/components/schemas/(\w+)", str(found)))
    assert referred == set(found["components"]["schemas"])
    job = found["components"]["schemas"]["Job"]["properties"]
    assert {"jid", "start-time", "maxParallelism", "status-counts"} <= set(job)
    cancel = found["paths"]["/jobs/{job}"]["patch"]
    assert [p["name"] for p in cancel["parameters"]] == ["job", "mode"]
    assert set(cancel["responses"]) == {"202", "default"}
