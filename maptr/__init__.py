"""Find, by DNS, the server that answers for an ARK, and serve the DNS that makes it findable."""

__version__ = "0.1.0"
