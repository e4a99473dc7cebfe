"""Descriptions of ARKs by their mapping authorities, and tests whether an authority answers.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""
