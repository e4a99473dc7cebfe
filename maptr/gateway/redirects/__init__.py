"""Own objects in files: a store (a SQLite database that maptr writes), or a CSV that is followed.

Internal: it may change in any release. ``help(maptr)`` lists the public names.

``rows`` reads files that others wrote, ``store`` serves the rows of a store, ``changes`` and ``importing`` change a
store, and ``following`` keeps a running gateway up to date.
"""
