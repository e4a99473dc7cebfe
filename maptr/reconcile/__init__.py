"""The table compared with DNS, the history of verdicts, and probes of mapping authorities.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""
