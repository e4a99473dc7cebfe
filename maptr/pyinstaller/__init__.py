"""The hook with which PyInstaller collects maptr into a program: an entry point of ``pyinstaller40`` names it.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""

from __future__ import annotations

from pathlib import Path


def hook_folders() -> list[str]:
    return [str(Path(__file__).parent)]
