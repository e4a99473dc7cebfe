"""What a mapping authority says of an ARK, and whether it answers.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""
