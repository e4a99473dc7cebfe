"""Registry readers, exports, choosers and policies that installed packages declare as entry points.

    [project.entry-points."maptr.choosers"]     in the pyproject.toml of a package
    nearest = "example:nearest"                 a name, and the object that it stands for

The built-in ones are not entry points: they also work where maptr is not installed, as in a zipapp, and a built-in name
needs no search of the installed packages, which takes longer than the rest of a command's start. No package can replace
them. A package's code is loaded when its name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maptr.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

READERS, EXPORTS, CHOOSERS, POLICIES = "maptr.readers", "maptr.exports", "maptr.choosers", "maptr.policies"


def names(group: str) -> list[str]:
    """Return the names that installed packages declare in a group."""
    return sorted({point.name for point in _declared(group)})


def load(group: str, name: str) -> Any:
    """Return the object that a package declares by this name, or None.

    Raises PluginError if two packages declare the name, or if the object cannot be loaded or is not of the group.
    """
    found = {_package(point): point for point in _declared(group) if point.name == name}
    if not found:
        return None
    if len(found) > 1:
        raise PluginError(f"{name!r} ({group}) is in the packages {' and '.join(found)}: uninstall one of them")
    ((package, point),) = found.items()
    where = f"{name!r} ({group}) of the package {package}"
    try:
        loaded = point.load()
    except Exception as error:  # the package's code may raise anything
        raise PluginError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    needed, wanted = (loaded, "a function") if group != POLICIES else (getattr(loaded, "choose", None), "a policy")
    if not callable(needed) or isinstance(loaded, type):
        raise PluginError(f"{where} is {loaded!r:.60}, not {wanted}")
    return loaded


def _declared(group: str) -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points  # imported late: it doubles a command's start time

    return tuple(entry_points(group=group))


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
