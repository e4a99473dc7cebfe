"""``python -m maptr`` is the ``maptr`` command."""

from maptr.cli.start import run

run()
