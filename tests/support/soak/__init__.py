"""The soak: primary, secondaries, resolver, gateway and clients for simulated months, with faults. See scripts/soak."""
