"""Records as files for other tools: Parquet, Arrow, CSV.

In: runs of records (`log.records`). Out: a new file, complete or not there at all.
Imports: `errors`, `host`, `format`, `kernels`, `log`, `inspect`.

    columns    the fields that every export has, as columns
    arrow      Parquet and Arrow files, through pyarrow
    csv        rows of CSV
    files      a file that appears under its name when it is complete
"""
