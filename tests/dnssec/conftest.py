"""Fixtures for the signing tests."""

from __future__ import annotations

import pytest

from maptr.dnssec.keys import Algorithm, KeyState, Role, ZoneKey, add_key


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[Role, ZoneKey]:
    """Return an active key for each role: KSK and ZSK with ECDSA, the CSK with Ed25519."""
    pytest.importorskip("cryptography", reason="signing needs maptr[dnssec]")
    folder = tmp_path_factory.mktemp("keys") / "example"
    algorithms = {Role.KSK: Algorithm.ECDSAP256SHA256, Role.ZSK: Algorithm.ECDSAP256SHA256, Role.CSK: Algorithm.ED25519}
    return {role: add_key(folder, role, algorithm, KeyState.ACTIVE).key for role, algorithm in algorithms.items()}
