"""Link checks for own objects: do the URLs that their ARKs lead to still answer?

Internal: it may change in any release. ``help(maptr)`` lists the public names.

``check`` decides what to request next and what a response means, without I/O; ``store`` keeps the results; ``checker``
sends the requests; ``monitor`` runs the checks in a gateway.
"""
