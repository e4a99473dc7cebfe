"""The DNS client: drivers of the walk, the stub resolver, and bulk lookups."""
