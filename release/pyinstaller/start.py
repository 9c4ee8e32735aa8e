"""The first module of the archive's program."""

from kcompact.__main__ import main

main()
