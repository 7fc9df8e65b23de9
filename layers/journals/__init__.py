"""The journal over a ledger, a part of what it does in each module."""
