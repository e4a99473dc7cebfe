"""``maptr completion``: the scripts for the shells, with corrections of click's classes."""

from __future__ import annotations

from glob import escape, glob

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
)

from maptr.cli import output
from maptr.cli.group import command

SHELLS = ("bash", "zsh", "fish")


class Bash(BashComplete):
    """bash, which splits words at :, @ and = (COMP_WORDBREAKS), such as ARKs and --option=value."""

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


class _WholeWords(ShellComplete):
    """Shells whose completions replace the whole word, such as ``--option=value``."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        found = super().get_completions(args, incomplete)
        option, mark, _ = incomplete.partition("=")
        if not mark or not option.startswith("--"):
            return found
        values: list[str] = []
        for item in found:
            values += [item.value] if item.type == "plain" else glob(f"{escape(item.value)}*")  # noqa: PTH207 - as typed
        return [CompletionItem(f"{option}={value}") for value in values]


class Zsh(_WholeWords, ZshComplete):
    name = "zsh"


class Fish(_WholeWords, FishComplete):
    name = "fish"


for kind in (Bash, Zsh, Fish):
    add_completion_class(kind)


@command(exits={0: "printed", 2: "bad usage, such as an unknown shell"})
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that makes your shell complete the commands, options and files of maptr.

    \b
    bash, in ~/.bashrc:  eval "$(maptr completion bash)"
    zsh, in ~/.zshrc:    eval "$(maptr completion zsh)"
    fish, once:
        maptr completion fish > ~/.config/fish/completions/maptr.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click has a class for each of SHELLS
    script = kind(ctx.find_root().command, {}, "maptr", "_MAPTR_COMPLETE")
    # Not script.source(), which runs bash to check its version and prints a warning.
    output.data((script.source_template % script.source_vars()).strip())
