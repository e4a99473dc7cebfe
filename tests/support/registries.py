"""Registry files for tests: natabs, JSON records, broken files, and minisign signatures."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from maptr.registry import pull
from maptr.registry.minisign import PublicKey
from maptr.registry.plan import Plan
from maptr.registry.pull import Requirements
from maptr.registry.table import Entry, Table

ANY = Requirements()


def natab(*naans: int, host: str = "h.example.org") -> bytes:
    return b"".join(b"%d:\n    %s  ACR\n" % (naan, host.encode()) for naan in naans) + b"#--- end of data ---\n"


def json_v1(*records: object) -> bytes:
    return json.dumps({"metadata": {"version": "2"}, "data": records}).encode()


def applied(plan: Plan, table: Table) -> dict[str, Entry]:
    """The entries of a table after a plan, in no particular order."""
    assert all(table[entry.key] == entry for entry in (*plan.removed, *(old for old, _ in plan.changed)))
    found = {key: entry for key, entry in table.items() if entry not in plan.removed}
    return found | {entry.key: entry for entry in (*plan.added, *(new for _, new in plan.changed))}


OLD = natab(*range(10000, 10010))
NEW = natab(*range(10000, 10011))

# --- minisign

KEY_ID = bytes(range(8))
_PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(32))
KEY = PublicKey(KEY_ID, _PRIVATE.public_key().public_bytes_raw())
PUB = "untrusted comment: minisign public key\n" + base64.b64encode(b"Ed" + KEY_ID + KEY.key).decode() + "\n"


def signature(content: bytes, comment: str = "timestamp:1700000000\tfile:naans", *, kind: bytes = b"ED") -> str:
    """A signature as ``minisign -S`` writes it, of the hash (ED) or of the content (Ed)."""
    made = _PRIVATE.sign(hashlib.blake2b(content).digest() if kind == b"ED" else content)
    lines = ["untrusted comment: x", base64.b64encode(kind + KEY_ID + made).decode(), f"trusted comment: {comment}"]
    return "\n".join([*lines, base64.b64encode(_PRIVATE.sign(made + comment.encode())).decode()]) + "\n"


# --- one file of each format, and files of many records

SAMPLES = [
    """{"metadata": {"version": "1.0"}, "data": [
{"what": "12345", "where": "http://a.example.org",
"target": {"url": "http://a.example.org/ark:/${content}", "http_code": 302}, "when": "2001",
"who": {"name": "A", "name_native": null, "acronym": "AA"},
"na_policy": {"orgtype": "NP", "policy": "NR", "tenure": "2001", "policy_url": null}},
{"shoulder": "x6", "naan": "12345", "what": "12345/x6", "where": "303 b.example.org",
"nmas": [{"where": "c"}]}]}""",
    """{"date_created": "2025", "index": {"12345": 0}, "data": {"12345": {"where": "https://[::1]:8080/?",
"target": "https://a.example.org/$arkpid", "who": {"name": "A", "location": "X"}}}}""",
    """erc:\nwho: x\n\nnaa:\nwho: A (=) B (=) C\nwhat: ark:/12345/x6\nwhere: 303 http://a.example.org/$id\n
naa:\nwhat: 12345\nhow: NP | OP | 2001 | u\n!contact: x\n  y%41%\n""",
    """# A\n12345: http://a.example.org/p\n  a.example.org:80 AA\n  127.0.0.1 BB
#--- end of data ---\nmy $x;\n""",
    """---\nark:/12345:\n  name: "A\\n"\n  redirect: 'http://a.example.org/ark:$id' # x
ark:/1/x6:\n  redirect: b.c/${blade}\n""",
]


def _json(records: object, **members: object) -> str:
    return json.dumps({**members, "data": records})


BAD_RECORDS: dict[str, Callable[[int], str]] = {
    "JSON v1": lambda count: _json([{}] * count),
    "JSON v2": lambda count: _json({f"!{number}": {} for number in range(count)}, index={}),
    "ANVL": lambda count: "erc:\nwho: x\n" + "\nnaa:\nwho: x\nwhat: ark\n" * count,
    "natab": lambda count: "12345:\n    h.example.org A\n" + "stray\n" * count,
    "natab, scattered": lambda count: "".join(f"{n}:\n  h.example.org A\n!\n" for n in range(count)),
    "natab, duplicates": lambda count: "12345:\n    h.example.org A\n" * (count + 1),
    "prefixes": lambda count: "---\n" + "".join(f"ark:/a{n}:\n  name: x\n" for n in range(count)),
}
"""Files with a number of bad records, by format."""

GOOD_RECORDS: dict[str, Callable[[int], str]] = {
    "JSON v1": lambda count: _json([{"what": str(number)} for number in range(count)]),
    "JSON v2": lambda count: _json({str(number): {"where": "h.example.org"} for number in range(count)}, index={}),
    "ANVL": lambda count: (
        "erc:\nwho: x\n" + "".join(f"\nnaa:\nwho: x\nwhat: {n}\nwhere: h.example\n" for n in range(count))
    ),
    "natab": lambda count: "".join(f"{number}:\n  h.example.org A\n" for number in range(count)),
    "natab, commented": lambda count: "".join(f"{number}: \n\n# x\n\n  h.example.org A\n" for number in range(count)),
    "prefixes": lambda count: "---\n" + "".join(f"ark:/{n}:\n  redirect: h.example/$id\n" for n in range(count)),
}
"""Files with a number of good records, by format."""


def plan_pull(target: Path, places: Iterable[str], requirements: Requirements = ANY, **given: Any) -> pull.Pull:
    return pull.plan_pull(target, pull.PullSources(tuple(places), requirements), **given)
