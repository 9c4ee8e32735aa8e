"""`python -m kcompact`."""

from kcompact.cli import main

main(prog_name="kcompact")
