"""The vocabulary of DNS: numbers, names, serials, cookies, addresses."""
