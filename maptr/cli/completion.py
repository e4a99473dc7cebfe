"""``maptr completion``: completion scripts for shells, with a correction to click's for bash."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, add_completion_class, get_completion_class

from maptr.cli import output
from maptr.cli.group import command

SHELLS = ("bash", "zsh", "fish")


@add_completion_class
class Bash(BashComplete):
    """bash, which splits words such as ARKs and --option=value at :, @ and = (COMP_WORDBREAKS)."""

    name = "bash"

    def get_completion_args(self) -> tuple[list[str], str]:
        words, incomplete = super().get_completion_args()
        if words[-1:] == ["="]:  # --policy=na
            words.pop()
        args: list[str] = []
        for word in words:
            if args and (not word.strip(":@") or args[-1].endswith((":", "@"))):
                args[-1] += word
            else:
                args.append(word)
        return args, incomplete


@command(exits={0: "printed", 2: "bad usage, such as an unknown shell"})
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that makes your shell complete maptr's commands, options and files.

    \b
    bash, in ~/.bashrc:  eval "$(maptr completion bash)"
    zsh, in ~/.zshrc:    eval "$(maptr completion zsh)"
    fish, once:
        maptr completion fish > ~/.config/fish/completions/maptr.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click has a class for each shell here
    script = kind(ctx.find_root().command, {}, "maptr", "_MAPTR_COMPLETE")
    # Not script.source(), which runs bash to check its version and prints a warning.
    output.data((script.source_template % script.source_vars()).strip())
