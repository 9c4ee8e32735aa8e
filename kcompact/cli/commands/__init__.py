"""What each command does: a module per command, each with a function `run` that returns the exit code."""
