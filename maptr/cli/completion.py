"""``maptr completion``: the script that has a shell complete the words of maptr."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maptr.cli import output

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SHELLS = ("bash", "zsh", "fish")


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ``shell_complete`` of a parameter that names a file: the shell knows which there are."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The same for a folder."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that has SHELL complete maptr's commands, options and files.

    \b
    bash, in ~/.bashrc:  eval "$(maptr completion bash)"
    zsh, in ~/.zshrc:    eval "$(maptr completion zsh)"
    fish, once:
        maptr completion fish > ~/.config/fish/completions/maptr.fish

    \b
    Exit codes:
      0  printed
      2  bad usage, such as a shell that is not known
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - the choice has click's own three
    script = kind(ctx.find_root().command, {}, "maptr", "_MAPTR_COMPLETE")
    # source() would first run bash for its version, and talk of it where it is old.
    output.data((script.source_template % script.source_vars()).strip())
