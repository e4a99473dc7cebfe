"""``maptr completion``: completion scripts for shells."""

from __future__ import annotations

import click

from maptr.cli import output

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that makes SHELL complete the commands, options and files of maptr.

    \b
    bash, in ~/.bashrc:  eval "$(maptr completion bash)"
    zsh, in ~/.zshrc:    eval "$(maptr completion zsh)"
    fish, once:
        maptr completion fish > ~/.config/fish/completions/maptr.fish

    \b
    Exit codes:
      0  printed
      2  bad usage, such as an unknown shell
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - the choice has click's own three
    script = kind(ctx.find_root().command, {}, "maptr", "_MAPTR_COMPLETE")
    # Not script.source(), which runs bash to check its version and prints a warning.
    output.data((script.source_template % script.source_vars()).strip())
