"""The table compared with DNS, the history of verdicts, and probes of mapping authorities.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""
