"""BIND, NSD and Knot with DNS cookies on, all of one secret, as servers behind one address would have them."""

from __future__ import annotations

from tests.support.peers import Bind, Knot, Nsd

SECRET = bytes.fromhex("e5e973e5a6b2a43f48e7dc849e37bfcf")  # RFC 9018 A.1's


class CookieBind(Bind):
    """BIND; its cookies are on anyway."""

    required = False

    def configure(self) -> list[str]:
        command = super().configure()
        config = self.directory / "named.conf"
        settings = f'cookie-algorithm siphash24;\n    cookie-secret "{SECRET.hex()}";\n'
        if self.required:
            settings += "    require-server-cookie yes;\n"
        config.write_text(config.read_text().replace("options {\n", "options {\n    " + settings, 1))
        return command


class StrictBind(CookieBind):
    """BIND that answers BADCOOKIE to whatever cookie is not of the shared secret."""

    required = True


class CookieNsd(Nsd):
    """NSD; its cookies are off by default."""

    def configure(self) -> list[str]:
        command = super().configure()
        config = self.directory / "nsd.conf"
        settings = f'server:\n    answer-cookie: yes\n    cookie-secret: "{SECRET.hex()}"\n'
        config.write_text(config.read_text().replace("server:\n", settings, 1))
        return command


class CookieKnot(Knot):
    """Knot; its cookies are a module, which answers every nth wrong one with BADCOOKIE."""

    slip = 10_000

    def configure(self) -> list[str]:
        command = super().configure()
        config = self.directory / "knot.conf"
        module = f"mod-cookies:\n  - id: cookies\n    secret: 0x{SECRET.hex()}\n    badcookie-slip: {self.slip}\n"
        text = config.read_text().replace("template:\n", module + "template:\n", 1)
        config.write_text(
            text.replace("  - id: default\n", "  - id: default\n    global-module: mod-cookies/cookies\n", 1)
        )
        return command


class StrictKnot(CookieKnot):
    """Knot that answers BADCOOKIE to whatever cookie is not of the shared secret."""

    slip = 1
