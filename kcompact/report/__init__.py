"""One page about the partitions of a directory, for a ticket: HTML with figures, in one file, that loads nothing.

In: paths, `PlanOptions`; or what `compare` has found. Out: the page as text, or as a file.
Imports: every other folder except `config`, `swap`, `doctor` and `cli`.

Only these modules read or write the disk:

    reading       the facts of partitions: plans, contents, dry runs
    file          the file of the page: what may be replaced

The others are functions of values:

    replay        the dirty ratio as the log grew, a model
    overview      a partition from its verdict to its settings, and the summary of several
    figures       sections with figures: the log to scale, segments over time, versions of keys
    dirty_ratio   section: the dirty ratio as the log grew
    drawing       figures as SVG; matplotlib draws them; dates on their axes
    replicas      the page of `compare`
    page          the page as a value and as HTML, by the template `page.html` and the style sheet `page.css`
"""
