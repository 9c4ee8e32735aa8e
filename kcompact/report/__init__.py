"""One page about the partitions of a directory, for a ticket: HTML with figures, in one file, that loads nothing.

In: paths, `PlanOptions`. Out: the page as text, or as a file.
Imports: every other folder except `config`, `swap`, `doctor` and `cli`.

Only these modules read or write the disk:

    reading       the facts of partitions: plans, contents, dry runs
    file          the file of the page: what may be replaced

The others are functions of values:

    facts         what was read of a partition
    replay        the dirty ratio as the log grew, a model
    parts         the head of a page and of a partition, and sections with figures
    overview      a partition from its verdict to its settings, and the summary of several
    conditions    section: what decides, what changes that, what a cleaning costs
    segments      sections: the log to scale, segments over time, and their table
    dirty_ratio   section: the dirty ratio as the log grew
    keys          the figure of the keys, beside their view
    history       section: gaps, and what they prove
    batches       sections: codecs, delete horizons, producers
    transactions  section: transactions, and what their markers wait for
    drawing       figures as SVG; matplotlib draws them
    times         times in tables and on the axes of figures
    page          the page as HTML, by the template `page.html` and the style sheet `page.css`
"""
