"""The cache that reconciles DNS with a table: see ``cache.Cache``, which is ``maptr.Cache``.

One file for each part: what is kept in memory and on disk, the watched table, the policies that choose between the
sides, the circuit in front of a dead server, and the questions under way.
"""
