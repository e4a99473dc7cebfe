"""DNSSEC signing of zones: keys, policy, signatures and their expiry."""
