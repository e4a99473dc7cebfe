"""A resolver for only its operator's NAANs (gateway.naans)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maptr.config import parse
from maptr.errors import ConfigError
from maptr.gateway.objects import OwnObject
from maptr.registry.table import Entry, Nma, Table, Who
from tests.support.gateway import Gateway, objects

TABLE = Table(
    Entry(naan, "", (Nma(f"https://{naan}.example/${{content}}"),), Who(f"Library {naan}"))
    for naan in ("12148", "54321")
)
OWN = objects(OwnObject("ark:12148/x1", "https://o.example/1"), OwnObject("ark:54321/x1", "https://o.example/2"))


def gateway(**settings: Any) -> Gateway:
    return Gateway(TABLE, objects=OWN, naans=("12148",), public_url="https://gw.example", **settings)


def test_its_own_arks_are_answered() -> None:
    assert gateway().location("/ark:12148/x1") == "https://o.example/1"
    assert gateway().location("/ark:12148/x2") == "https://12148.example/12148/x2"


@pytest.mark.parametrize(
    "target", ["/ark:54321/x1", "/ark:54321/x2", "/ark:54321", "/ark:86421/x", "/ark:54321/x1?info"]
)
def test_others_are_404_with_a_link_to_the_central_resolver_or_go_to_root(target: str) -> None:
    response = gateway().ask(target)
    assert (response.status, response.reason, response.header("location")) == (404, "not-ours", "")
    assert response.header("cache-control") == "max-age=30"
    page = gateway().ask(target, accept="text/html", accept_language="fr").body.decode()
    assert "Cet identifiant n’est pas de ce site" in page
    assert f'href="https://n2t.net{target.partition("?")[0]}"' in page
    to_root = gateway(root="https://root.example").ask(target)
    assert (to_root.status, to_root.header("location")) == (302, f"https://root.example{target}")


def test_the_lists_the_search_and_the_api_have_no_others() -> None:
    found = gateway()
    for target in ("/naan/", "/naan/?q=library", "/sitemap.xml", "/api/v1/naans", "/api/v1/naans?q=library", "/"):
        body = found.ask(target).body.decode()
        assert "54321" not in body, target
        assert "12148" in body, target
    assert found.ask("/naan/54321").status == 404
    for target in ("discover?ark=ark:54321/x1", "naans/54321"):
        problem = found.ask(f"/api/v1/{target}")
        document = json.loads(problem.body)
        assert (problem.status, document["detail"]) == (404, "this gateway does not answer for ARKs of NAAN 54321")
        assert document["discovery"]["candidates"] == []
    assert "of its own organisation only" in found.ask("/?q=ark:54321/x1", accept="text/html").body.decode()


def test_the_house_of_the_operator() -> None:
    found = gateway(heading="Our <links>", home="https://library.example/", example="ark:12148/x1")
    page = found.ask("/").body.decode()
    assert "<h1>Our &lt;links&gt;</h1>" in page
    assert '<a class="brand" href="https://library.example/">' in page
    assert ">ark:12148/x1</a>" in page


@pytest.mark.parametrize("line", ['naans = ["12a48"]', 'naans = ["12148/x"]', 'home = "library"', 'example = "x"'])
def test_a_wrong_value_is_an_error_with_its_key(line: str) -> None:
    with pytest.raises(ConfigError, match=rf"gateway\.{line.partition(' ')[0]}"):
        parse(f"[gateway]\n{line}\n")
