"""Zone transfers, their access control, NOTIFY, catalog zones and TSIG, without I/O."""
