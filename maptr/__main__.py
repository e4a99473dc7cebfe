"""``python -m maptr`` is the ``maptr`` command."""

from maptr.cli.brief import run

run()
