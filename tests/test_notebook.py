"""A discovery in a notebook: candidates as links, the walk below, and no text from DNS as HTML."""

from __future__ import annotations

import copy
import json
import pickle
from html.parser import HTMLParser

import pytest

from maptr import Ark, Discovery
from maptr.ark import NO_ARK
from maptr.discovery import Candidate, Outcome, Step
from maptr.testing import offline_client

HOSTILE = "<script>alert(1)</script>\"'&"
CLIENT = offline_client({"12345": ["https://ark.example.org/ark:${content}", "https://b.example/${value}"]})


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]


def test_it_has_each_candidate_and_each_record() -> None:
    found = CLIENT.discover("ark:12345/x1")
    shown = Tags(found._repr_html_())
    assert shown.links == found.urls() == ["https://ark.example.org/ark:12345/x1", "https://b.example/x1"]
    assert shown.tags.count("li") == 3  # the query and its two records
    assert "complete, indeterminate, from dns" in found._repr_html_()


def test_it_says_why_there_is_none() -> None:
    found = CLIENT.discover("ark:99999/x1", raise_on_none=False)
    assert "no such name" in found._repr_html_()
    assert "table" not in Tags(found._repr_html_()).tags
    item = Discovery(NO_ARK, complete=False, reason=HOSTILE)
    assert "script" not in Tags(item._repr_html_()).tags
    (no_ark,) = CLIENT.discover_many(["<b>"])
    assert no_ark._repr_html_() == "<div><b>no ark: label in &#x27;b&#x27;</b></div>"


@pytest.mark.parametrize("target", [HOSTILE, "javascript:alert(1)", "data:text/html,x", 'https://a.example/"onclick='])
def test_text_of_dns_is_neither_a_tag_nor_a_link_of_another_kind(target: str) -> None:
    candidate = Candidate("a.example", None, 0, 0, HOSTILE, target=target, ark=Ark("12345", "x1"))
    step = Step((b"12345",), 0, Outcome.SERVFAIL, note=HOSTILE, server=HOSTILE)
    found = Discovery(Ark("12345", "x1"), (candidate,), (step,), complete=False, reason=HOSTILE)
    shown = Tags(found._repr_html_())
    assert set(shown.tags) <= {
        "div",
        "b",
        "small",
        "table",
        "tr",
        "th",
        "td",
        "a",
        "details",
        "summary",
        "ol",
        "ul",
        "li",
    }
    assert all(link.startswith("https://") for link in shown.links)


def test_dictionaries_and_json_of_results() -> None:
    found = CLIENT.discover("ark:12345/x1?info")
    assert json.loads(found.to_json()) == found.to_dict()
    assert json.loads(found.ark.to_json()) == found.ark.to_dict()
    assert found.ark.to_dict()["inflection"] == "?info"
    assert {"host", "port", "ttl"} < json.loads(json.dumps(found[0].to_dict())).keys()
    for step in found.trace:
        assert json.loads(json.dumps(step.to_dict())) == step.to_dict()
    assert pickle.loads(pickle.dumps(found.ark)) == copy.deepcopy(found.ark) == found.ark
    assert copy.deepcopy(found.trace) == pickle.loads(pickle.dumps(found.trace)) == found.trace
