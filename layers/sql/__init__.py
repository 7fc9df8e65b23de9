"""Hosts that are SQL databases: one text of SQL, a small dialect for each, and the drivers."""
