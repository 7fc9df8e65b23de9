"""Drafts of the values that states are made of: one class of node for each kind, and what they share.

A *node* stands for one place in a state. It reads the committed value until the first write; then it copies that one
container, puts the copy into its (likewise copied) parent, and writes there. So finishing costs nothing, the committed
state is never written, and what was not touched is shared. A node remembers *where* it was written, never what: the
changed paths come from these marks and from the two containers themselves.

A draft of a list, dict or set is not a list, dict or set: it only says so to `isinstance` and to `match`. A subclass
would have contents of its own, which C code reads and writes past every method (`list.append(draft, x)`, the encoder
of `json`), and then either shows stale values or loses the change. Without the base class the same calls raise
TypeError, and everything that goes through the protocol (`dict(d)`, `{**d}`, `[*d]`, `sorted(d)`) sees the draft. A
draft of a record *is* a subclass of its class, so that methods and properties work, but it keeps no field in itself.
"""
