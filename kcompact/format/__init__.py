"""Bytes to values and back: pure functions without a path, a clock or a print."""
