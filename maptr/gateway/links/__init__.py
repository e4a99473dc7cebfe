"""Checks of the links of own objects: whether the URLs to which their ARKs lead still answer.

Internal: it may change in any release. ``help(maptr)`` lists the public names.

``check`` says what to ask next and what an answer means, without I/O; ``store`` keeps the results; ``checker`` sends
the requests.
"""
