"""Pure and synchronous: values, tables and decisions. No IO, no clock, no randomness."""
