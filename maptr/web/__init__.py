"""Outgoing HTTP, bounded in size, time and destination.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""
