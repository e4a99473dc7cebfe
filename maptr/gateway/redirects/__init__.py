"""Own objects in files: a store, which is a SQLite database that maptr writes, or a CSV, which is followed.

Internal: it may change in any release. ``help(maptr)`` lists the public names.

``rows`` reads what others wrote, ``store`` serves the rows of a store, ``changes`` and ``importing`` change one, and
``following`` keeps a running gateway up to date.
"""
