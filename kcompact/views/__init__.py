"""What people are shown of a value: sections of lines, items and tables. A terminal and a page print the same ones.

In: values of the other folders. Out: the parts of `parts`, without escapes, styles or markup.
Imports: `readable`, `remarks`, `errors`, `log`, `config`, `plan`, `inspect`, `keys`, `doctor`, `compare`,
`search`, `cleaner`; neither rich nor jinja2 nor click.

    parts         what a view consists of: headings, lines, items, tables, sections
    sentences     sentences that several views and the JSON share
    segments      one partition: its offsets, its segments, what a verification finds
    keys          the keys of a log: classes of records, versions, ages, the keys and prefixes that take most
    searches      a statement of search
    gaps          where offsets are missing, and what that proves
    transactions  how many, what they hold back, which are open
    batches       batches by codec, delete horizons, producers
    groups        the groups of `__consumer_offsets`
    plans         verdicts on partitions, details, notes, what is left out, totals
    explanations  the conditions of a plan, and what follows from them
    comparison    what other settings would change in a plan
    findings      what `doctor` found
    replicas      what `compare` found
    searches      what `search-key` found
    outcome       what a cleaning did, and the copy that it made
"""
