"""``python -m maptr`` is the ``maptr`` command."""

from maptr.cli import main

main(prog_name="maptr")
