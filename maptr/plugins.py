"""What packages import to add registry readers, exports, choosers or policies to maptr (docs/plugins.md).

readers     Reader, TableBuilder, numbered      a reader's type, what collects its records, and the lines of a text
exports     Export, Loss                        an export's type, and what its format cannot hold
choosers    Chooser                             a chooser's type
policies    SourcePolicy                        a policy's type, with the built-in ones to build on:
            DnsFirst, NatabFirst, DnsOnly, NatabOnly
            Dns, Natab, Choice, Take            the states of DNS and of the table, and what is chosen for them

``maptr`` has the values that they get and return: Table, Entry, Nma, Discovery, Candidate.
"""

from maptr.cache.policy import Choice, DnsFirst, DnsOnly, NatabFirst, NatabOnly, SourcePolicy, Take
from maptr.choose import Chooser
from maptr.registry import Reader
from maptr.registry.export import Export
from maptr.registry.natab import Loss
from maptr.registry.table import TableBuilder, numbered
from maptr.states import Dns, Natab

__all__ = [
    "Choice",
    "Chooser",
    "Dns",
    "DnsFirst",
    "DnsOnly",
    "Export",
    "Loss",
    "Natab",
    "NatabFirst",
    "NatabOnly",
    "Reader",
    "SourcePolicy",
    "TableBuilder",
    "Take",
    "numbered",
]
