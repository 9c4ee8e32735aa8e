"""Mutation testing: lines of some rooms are changed, one at a time, and a test of the room has to fail."""
