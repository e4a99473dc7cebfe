"""Descriptions of ARKs by their mapping authorities, and tests whether an authority answers.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""
