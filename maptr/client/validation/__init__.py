"""Own DNSSEC validation for the client (RFC 4035 section 5), without I/O: trust anchors to verdicts."""
