"""Parts of scripts/demo: ARKs to show, a comparison of DNS with the registry, and a redirect.

python scripts/demo_report.py examples REGISTRY
python scripts/demo_report.py compare REGISTRY PORT
python scripts/demo_report.py redirect URL
"""

from __future__ import annotations

import http.client
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from maptr import discover
from maptr.ark import Ark
from maptr.discovery import DiscoveryError, NoMappingAuthority
from maptr.registry import read
from maptr.registry.table import Table

KNOWN = (  # ARKs of well-known things; those whose NAAN is in the registry are shown
    "ark:/12148/btv1b8449691v/f29",  # Bibliothèque nationale de France
    "ark:/13030/tf5p30086k",  # California Digital Library
    "ark:/67531/metapth346793",  # University of North Texas
    "ark:/53355/cl010066723",  # Louvre
)
EXAMPLES = 4
NAMED = 10  # differences shown one by one


def load(path: str) -> Table:
    """Read the registry without its bad records, which ``maptr zone build`` has already listed."""
    return read(Path(path).read_bytes(), filename=path, on_bad=lambda error: None)


def examples(table: Table) -> list[str]:
    """Return a few ARKs from the table, one of them under a shoulder if there is any."""
    arks = [ark for ark in KNOWN if Ark.parse(ark).naan in table]
    arks += [probe(key) for key in table.naans() if len(arks) < EXAMPLES]
    return arks[:EXAMPLES] + [probe(key) for key in table if "/" in key][:1]


def probe(key: str) -> str:
    """Return an example ARK for the record ``12345`` or ``12345/x6``."""
    return f"ark:{key}1demo" if "/" in key else f"ark:{key}/x1demo"


def compare(table: Table, port: int) -> Iterator[tuple[str, str]]:
    """Yield the key of each record, and DNS's answer if it differs from the target, else an empty text."""
    for key in table:
        ark = Ark.parse(probe(key))
        entry = table.lookup(ark)
        expected = [nma.url(ark, entry.shoulder) for nma in entry.nmas] if entry else []
        try:
            url = discover(str(ark), nameservers=f"127.0.0.1#{port}").url()
        except NoMappingAuthority:
            yield key, "not in DNS"
        except DiscoveryError as error:
            yield key, f"DNS did not say: {error}"
        else:
            yield key, "" if url in expected else f"{url}, the registry: {', '.join(expected) or 'nothing'}"


def report(table: Table, port: int) -> None:
    """Print the counts, then the differences."""
    results = dict(compare(table, port))
    for what, keys in (
        ("NAANs", [key for key in results if "/" not in key]),
        ("shoulders", [key for key in results if "/" in key]),
    ):
        if keys:
            agree = sum(not results[key] for key in keys)
            print(f"{agree} of {len(keys)} {what}: DNS gives the URL that the registry means")
    absent = [key for key, said in results.items() if said == "not in DNS"]
    if absent:
        print(f"not in DNS, since the zone leaves them out: {', '.join(absent)}")
    differ = [f"{key}: {said}" for key, said in results.items() if said not in ("", "not in DNS")]
    print(*differ[:NAMED], sep="\n", end="\n" if differ else "")
    if len(differ) > NAMED:
        print(f"... and {len(differ) - NAMED} more")


def redirect(url: str) -> None:
    """Print a request for the ARK, and the redirect that answers it."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    connection.request("GET", parts.path)
    response = connection.getresponse()
    print(f"GET {url}\n{response.status} {response.reason}")
    for name in ("Location", "Maptr-Source"):
        print(f"{name}: {response.headers.get(name)}")


def main(arguments: list[str]) -> None:
    """Run one of the parts."""
    match arguments:
        case ["examples", registry]:
            print(*examples(load(registry)), sep="\n")
        case ["compare", registry, port]:
            report(load(registry), int(port))
        case ["redirect", url]:
            redirect(url)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
