"""NAPTR records as Maptr reads them, and the regexps in them."""
