"""``python -m maptr`` runs the ``maptr`` command."""

from maptr.cli.start import run

run()
