"""Runs the command line: `python -m kcompact`."""

from kcompact.cli.app import main

main(prog_name="kcompact")
